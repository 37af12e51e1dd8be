#include "store/read/verify.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/format/safetensors_header.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/status.h"
#include "common/tensor/fingerprint.h"

namespace cairn {
namespace {

constexpr size_t kMaxFaults = 1000;
constexpr uint64_t kChunkBytes = 8 << 20;

struct Expected {
  StoredItem item;
  uint64_t offset = 0;  // in the file
  uint32_t crc32c = 0;
  std::optional<uint32_t> tensor;  // an index into Manifest::tensors; nothing for an object
};

FingerprintPart PartOf(const StoredItem& item) {
  return {item.global_shape, item.box, item.flat.value_or(FlatRange{0, item.box.size()}), BytesOf(item.dtype)};
}

class Verifier {
 public:
  Verifier(Storage& storage, const Manifest& manifest, const VerifyOptions& options)
      : storage_(storage),
        manifest_(manifest),
        options_(options),
        expected_(manifest.files.size()),
        parts_(manifest.tensors.size()) {
    for (const ManifestShard& shard : manifest.shards) {
      expected_[shard.file].push_back({manifest.item_of(shard), shard.file_offset, shard.crc32c, shard.tensor});
    }
    for (const ManifestObject& object : manifest.objects) {
      expected_[object.file].push_back({Manifest::item_of(object), object.file_offset, object.crc32c, std::nullopt});
    }
    for (auto& items : expected_) {
      std::sort(items.begin(), items.end(), [](const Expected& a, const Expected& b) { return a.offset < b.offset; });
    }
  }

  VerifyReport Run() {
    RunOnThreads(options_.threads, [this] {
      for (size_t file = next_++; file < manifest_.files.size() && !Stopped(); file = next_++) {
        const absl::Status checked = WithMemory("to verify it", [&] {
          Check(file);
          return absl::OkStatus();
        });
        if (!checked.ok()) {
          Add(Reason::kMemoryLimit, absl::StrCat(manifest_.job, "/", manifest_.path_of(manifest_.files[file])), 0, "",
              std::string(checked.message()));
        }
      }
    });
    MutexLock lock(mutex_);
    std::sort(report_.faults.begin(), report_.faults.end(), [](const VerifyFault& a, const VerifyFault& b) {
      return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
    });
    report_.bytes = bytes_;
    if (options_.fingerprints && report_.faults.empty() && !Stopped()) {
      for (size_t tensor = 0; tensor < parts_.size(); ++tensor) {
        const ManifestTensor& described = manifest_.tensors[tensor];
        const auto elements = static_cast<uint64_t>(ElementCount(described.global_shape).value_or(0));
        report_.fingerprints.push_back(
            FingerprintFromParts(parts_[tensor], elements * static_cast<uint64_t>(BytesOf(described.dtype))));
        const std::optional<uint64_t> wanted = manifest_.fingerprint_of(tensor);
        if (!wanted.has_value() || *wanted == report_.fingerprints.back()) continue;
        ++report_.faults_in_all;
        report_.faults.push_back(
            {Reason::kChecksumMismatch, "", 0, described.name,
             absl::StrCat(described.name, " does not have the fingerprint ", FingerprintText(*wanted),
                          " that it had when it was saved, though every checksum agrees")});
      }
      if (!report_.faults.empty()) report_.fingerprints.clear();
    }
    return report_;
  }

 private:
  bool Stopped() const { return options_.interrupted && options_.interrupted(); }

  void Add(Reason reason, const std::string& file, uint64_t offset, const std::string& tensor,
           const std::string& what) {
    MutexLock lock(mutex_);
    ++report_.faults_in_all;
    if (report_.faults.size() >= kMaxFaults) return;
    report_.faults.push_back(
        {reason, file, offset, tensor,
         absl::StrCat(file, " at ", offset, tensor.empty() ? "" : absl::StrCat(" (", tensor, ")"), ": ", what)});
  }

  void AddPart(uint32_t tensor, uint64_t part) {
    MutexLock lock(mutex_);
    parts_[tensor] ^= part;
  }

  void Check(size_t index) {
    const ManifestFile& file = manifest_.files[index];
    const std::string path = absl::StrCat(manifest_.job, "/", manifest_.path_of(file));
    {
      MutexLock lock(mutex_);
      ++report_.files;
    }
    const auto opened = storage_.Open(path, {.cache = Cache::kBypass});
    if (!opened.ok()) {
      Add(ReasonOf(opened.status()).value_or(Reason::kStorageError), path, 0, "",
          std::string(opened.status().message()));
      return;
    }
    const uint64_t size = (*opened)->bytes();
    if (size != file.bytes()) {
      Add(Reason::kFileTruncated, path, std::min(size, file.bytes()), "",
          absl::StrCat("the file has ", size, " bytes, the manifest says ", file.bytes()));
      if (size < file.header_bytes) return;
    }
    Read(**opened, path, size, index);
  }

  // Reads the header, then the data in chunks.
  void Read(StoredFile& stored, const std::string& path, uint64_t size, size_t index) {
    const ManifestFile& file = manifest_.files[index];
    AlignedBuffer buffer(RoundUpToIo(std::max<uint64_t>(kChunkBytes, file.header_bytes)));
    if (!ReadAt(stored, path, buffer.data(), 0, file.header_bytes)) return;
    const std::string_view header(buffer.data(), file.header_bytes);
    std::optional<ParsedHeader> parsed;
    if (Crc32c(header.data(), header.size()) != file.header_crc32c) {
      Add(Reason::kChecksumMismatch, path, 0, "", "the header's checksum is wrong");
    } else if (auto result = ParseHeader(header); result.ok()) {
      parsed = *std::move(result);
      Compare(path, file, *parsed, expected_[index]);
    } else {
      Add(Reason::kBadSafetensors, path, 0, "", std::string(result.status().message()));
    }

    std::vector<uint32_t> item_crc(expected_[index].size(), 0);
    std::vector<bool> block_fault(expected_[index].size(), false);
    const uint64_t end = std::min(size, file.bytes());
    uint32_t block_crc = 0;
    std::optional<FingerprintPart> part_of_tensor;
    size_t item = 0;
    for (uint64_t at = file.header_bytes; at < end && !Stopped(); at += kChunkBytes) {
      const uint64_t length = std::min(kChunkBytes, end - at);
      if (!ReadAt(stored, path, buffer.data(), at, length)) return;
      // The chunk is cut where items and their blocks end.
      for (uint64_t done = 0; done < length;) {
        while (item < expected_[index].size() &&
               expected_[index][item].offset + expected_[index][item].item.bytes() <= at + done) {
          ++item;
        }
        if (item == expected_[index].size()) break;
        const Expected& expected = expected_[index][item];
        const uint64_t within = at + done - expected.offset;
        const uint64_t block_end =
            std::min((within / kChecksumBlockBytes + 1) * kChecksumBlockBytes, expected.item.bytes());
        const uint64_t part = std::min(block_end - within, length - done);
        if (within % kChecksumBlockBytes == 0) block_crc = 0;
        block_crc = ExtendCrc32c(block_crc, buffer.data() + done, part);
        if (options_.fingerprints && expected.tensor.has_value()) {
          if (within == 0) part_of_tensor.emplace(PartOf(expected.item));
          part_of_tensor->Add(buffer.data() + done, part);
          if (within + part == expected.item.bytes()) AddPart(*expected.tensor, part_of_tensor->Value());
        }
        if (within + part == block_end) {
          const uint64_t block = within / kChecksumBlockBytes;
          const uint64_t block_begin = block * kChecksumBlockBytes;
          item_crc[item] = CombineCrc32c(item_crc[item], block_crc, block_end - block_begin);
          if (parsed && item < parsed->items.size() && block < parsed->items[item].checksums.blocks.size() &&
              parsed->items[item].checksums.blocks[block] != block_crc) {
            block_fault[item] = true;
            Add(Reason::kChecksumMismatch, path, expected.offset + block_begin, expected.item.name,
                absl::StrCat("block ", block, " of ", expected.item.stored_name(), " is damaged"));
          }
          if (block_end == expected.item.bytes() && item_crc[item] != expected.crc32c && !block_fault[item]) {
            Add(Reason::kChecksumMismatch, path, expected.offset, expected.item.name,
                absl::StrCat(expected.item.stored_name(), " does not have the checksum that was written"));
          }
        }
        done += part;
      }
    }
  }

  void Compare(const std::string& path, const ManifestFile& file, const ParsedHeader& parsed,
               const std::vector<Expected>& expected) {
    std::vector<const ParsedItem*> items;
    for (const ParsedItem& item : parsed.items) items.push_back(&item);
    bool same = items.size() == expected.size() && parsed.data_bytes == file.data_bytes;
    for (size_t i = 0; same && i < items.size(); ++i) {
      same = items[i]->begin + file.header_bytes == expected[i].offset &&
             items[i]->item.stored_name() == expected[i].item.stored_name() &&
             items[i]->item.dtype == expected[i].item.dtype && items[i]->checksums.crc32c == expected[i].crc32c;
    }
    if (!same) Add(Reason::kBadSafetensors, path, 0, "", "the header lists other items than the manifest");
  }

  // Reads [at, at + length). The buffer has room for that in whole blocks.
  bool ReadAt(StoredFile& stored, const std::string& path, char* buffer, uint64_t at, uint64_t length) {
    const absl::Status read = stored.Read(at, length, buffer, /*in_place=*/at % kReadAlignment == 0);
    if (!read.ok()) {
      Add(ReasonOf(read).value_or(Reason::kStorageError), path, at, "", std::string(read.message()));
      return false;
    }
    const uint64_t total = bytes_ += length;
    if (options_.progress) options_.progress(total);
    return true;
  }

  Storage& storage_;
  const Manifest& manifest_;
  const VerifyOptions& options_;
  std::vector<std::vector<Expected>> expected_;  // per file, by position
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  Mutex mutex_;
  VerifyReport report_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> parts_ ABSL_GUARDED_BY(mutex_);  // of fingerprints, by tensor
};

}  // namespace

VerifyReport VerifyCheckpoint(Storage& storage, const Manifest& manifest, const VerifyOptions& options) {
  return Verifier(storage, manifest, options).Run();
}

}  // namespace cairn
