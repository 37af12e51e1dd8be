#include "corpus/indexed/indexed_merge.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_reader.h"
#include "corpus/io/copied_file.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/input_path.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCopyStep = uint64_t{64} << 20;  // the stop flag is looked at after each step
constexpr size_t kStreamStep = size_t{1} << 20;

__extension__ using Uint128 = unsigned __int128;

absl::Status NoStore(const std::string& name) {
  return MakeError(Reason::kUnsupported, absl::StrCat(name, ": several tasks cannot write one object"),
                   {{"file", name}, {"next", "Leave --engine out, or merge on a shared file system."}});
}

absl::Status CheckAlike(const IndexedReader& first, const IndexedReader& other) {
  if (first.header().dtype != other.header().dtype) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat(IdxPath(other.prefix()), " holds ", std::string(IndexedDtypeName(other.header().dtype)), ", but ",
                     IdxPath(first.prefix()), " holds ", std::string(IndexedDtypeName(first.header().dtype))),
        {{"file", IdxPath(other.prefix())}});
  }
  // A pair without sequences fits either kind, because it has no modes.
  if (first.header().sequences > 0 && other.header().sequences > 0 && first.multimodal() != other.multimodal()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("one of ", first.prefix(), " and ", other.prefix(),
                                                       " is multimodal, the other is not"));
  }
  return absl::OkStatus();
}

// The output must have a name of its own, or the next merge of this directory would take each document twice, and then
// replace what it has read.
absl::Status CheckOutput(const std::vector<std::string>& prefixes, const std::string& output) {
  if (output.empty() || output.back() == '/') {
    return MakeError(Reason::kBadRequest, absl::StrCat("the output prefix \"", output, "\" has no name"),
                     {{"next", "Give the prefix a name, as merged: it makes merged.bin and merged.idx."}});
  }
  if (const ObjectStores* const stores = StoresOf(output)) CAIRN_RETURN_IF_ERROR(stores->NameOf(output).status());
  std::error_code ignored;  // most outputs do not stand there yet
  for (const std::string& prefix : prefixes) {
    for (const auto path_of : {BinPath, IdxPath}) {
      const std::string path = path_of(output);
      const bool same = StoresOf(path) != nullptr ? !CheckIsNoInput(path, path_of(prefix)).ok()
                                                  : fs::equivalent(path, path_of(prefix), ignored);
      if (!same) continue;
      return MakeError(Reason::kBadRequest, absl::StrCat("the output ", path, " is among the inputs"),
                       {{"file", path},
                        {"next",
                         "Give an output prefix outside of the inputs' directory; if this file is an earlier "
                         "output and no input, move its pair out first."}});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListIndexed(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> paths, InputsIn(directory));
  std::map<std::string, int> found;  // bit 0: .bin, bit 1: .idx
  for (const std::string& path : paths) {
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    if (name.starts_with('.') || (!name.ends_with(".bin") && !name.ends_with(".idx"))) continue;
    found[path.substr(0, path.size() - 4)] |= name.ends_with(".bin") ? 1 : 2;
  }
  std::vector<std::string> prefixes, lonely;
  for (const auto& [prefix, files] : found) {
    if (files == 3) {
      prefixes.push_back(prefix);
    } else {
      lonely.push_back(files == 1 ? BinPath(prefix) : IdxPath(prefix));
    }
  }
  if (!lonely.empty()) {
    return MakeError(Reason::kInputUnreadable,
                     absl::StrCat("without the other file of the pair: ", absl::StrJoin(lonely, ", ")));
  }
  // The map sorts by bytes, which for UTF-8 is the order of code points.
  return prefixes;
}

namespace {

class Merger {
 public:
  Merger(const std::vector<std::string>& prefixes, const std::string& output, const std::atomic<bool>& stop,
         std::atomic<uint64_t>* bytes_done, const TokenCopier& copier)
      : prefixes_(prefixes), output_(output), stop_(stop), bytes_done_(bytes_done), copier_(copier) {}

  absl::StatusOr<MergeReport> Run() {
    CAIRN_RETURN_IF_ERROR(CheckOutput(prefixes_, output_));
    CAIRN_RETURN_IF_ERROR(Survey());
    if (through_memory_ && copier_ != nullptr) return NoStore(output_);
    CAIRN_ASSIGN_OR_RETURN(const MadeDirectory directory, MadeDirectory::Of(BinPath(output_)));
    if (through_memory_) {
      CAIRN_ASSIGN_OR_RETURN(const auto bin, StreamTokens());
      CAIRN_RETURN_IF_ERROR(Publish(*bin));
    } else {
      CAIRN_ASSIGN_OR_RETURN(const auto bin, CopyTokens());
      CAIRN_RETURN_IF_ERROR(Publish(*bin));
    }
    return std::move(report_);
  }

 private:
  absl::Status Stopped() const {
    return stop_.load() ? MakeError(Reason::kInterrupted, "interrupted") : absl::OkStatus();
  }

  // Only one pair is open at a time, because there may be more pairs than file descriptors.
  absl::Status ForEach(absl::FunctionRef<absl::Status(const IndexedReader&)> visitor) const {
    for (const std::string& prefix : prefixes_) {
      CAIRN_RETURN_IF_ERROR(Stopped());
      CAIRN_ASSIGN_OR_RETURN(const auto reader, IndexedReader::Open(prefix));
      CAIRN_RETURN_IF_ERROR(visitor(*reader));
    }
    return absl::OkStatus();
  }

  // Writes the index, and gives both files their names. `bin` is an OutputFile or a CopiedFile.
  template <typename Bin>
  absl::Status Publish(Bin& bin) {
    CAIRN_ASSIGN_OR_RETURN(auto idx, WriteIndex());
    CAIRN_RETURN_IF_ERROR(idx->Finish());
    CAIRN_RETURN_IF_ERROR(bin.Finish());
    CAIRN_RETURN_IF_ERROR(RemoveReplaced({{idx->path()}}));  // as IndexedWriter::Finish
    CAIRN_RETURN_IF_ERROR(bin.Commit());
    return idx->Commit();
  }

  // Checks everything before anything is written.
  absl::Status Survey() {
    if (prefixes_.empty()) return MakeError(Reason::kBadRequest, "there is no .bin/.idx pair to merge");
    std::unique_ptr<IndexedReader> first;
    return ForEach([&](const IndexedReader& reader) -> absl::Status {
      if (first == nullptr) {
        CAIRN_ASSIGN_OR_RETURN(first, IndexedReader::Open(reader.prefix()));
      }
      CAIRN_RETURN_IF_ERROR(CheckAlike(*first, reader));
      if (first->header().sequences == 0 && reader.header().sequences > 0) {
        CAIRN_ASSIGN_OR_RETURN(first, IndexedReader::Open(reader.prefix()));
      }
      CAIRN_RETURN_IF_ERROR(VerifyIndexed(reader, false).status());
      through_memory_ |= reader.bin_fd() < 0;
      bin_bytes_ += reader.bin_bytes();
      header_.dtype = reader.header().dtype;
      header_.sequences += reader.header().sequences;
      report_.documents += reader.documents();
      report_.tokens += reader.tokens();
      report_.prefixes.push_back(reader.prefix());
      report_.sequences = header_.sequences;
      header_.document_indices = report_.documents + 1;
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::unique_ptr<OutputFile>> StreamTokens() {
    CAIRN_ASSIGN_OR_RETURN(auto bin, OutputFile::Create(BinPath(output_), {}));
    AlignedBuffer buffer(kStreamStep);
    const auto stream = [&](const IndexedReader& reader) -> absl::Status {
      const std::string path = BinPath(reader.prefix());
      CAIRN_ASSIGN_OR_RETURN(const auto source, OpenPlainSource(path, 0, UINT64_MAX, {.stop = &stop_}));
      for (uint64_t done = 0;;) {
        CAIRN_ASSIGN_OR_RETURN(const size_t count, source->Read(buffer.data(), buffer.size()));
        done += count;
        if (count == 0 ? done != reader.bin_bytes() : done > reader.bin_bytes()) {
          return MakeError(Reason::kInputUnreadable, absl::StrCat(path, ": its size changed meanwhile"),
                           {{"file", path}});
        }
        if (count == 0) return absl::OkStatus();
        CAIRN_RETURN_IF_ERROR(bin->Append({buffer.data(), count}));
        if (bytes_done_ != nullptr) bytes_done_->fetch_add(count);
      }
    };
    CAIRN_RETURN_IF_ERROR(ForEach(stream));
    return bin;
  }

  absl::StatusOr<std::unique_ptr<CopiedFile>> CopyTokens() {
    CAIRN_ASSIGN_OR_RETURN(auto bin, CopiedFile::Create(BinPath(output_)));
    if (copier_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(copier_(bin->partial_path(), bin_bytes_));
      bin->Extend(bin_bytes_);
      std::error_code error;
      const uint64_t found = fs::file_size(bin->partial_path(), error);
      if (!error && found == bin_bytes_) return bin;
      return MakeError(Reason::kStorageError,
                       absl::StrCat(bin->partial_path(), " has ", error ? 0 : found, " bytes instead of ", bin_bytes_),
                       {{"file", bin->partial_path()}});
    }
    CAIRN_RETURN_IF_ERROR(ForEach([&](const IndexedReader& reader) { return CopyBin(reader, *bin); }));
    report_.kernel_bytes = bin->kernel_bytes();
    return bin;
  }

  absl::Status CopyBin(const IndexedReader& reader, CopiedFile& bin) {
    uint64_t done = 0;
    while (done < reader.bin_bytes()) {
      CAIRN_RETURN_IF_ERROR(Stopped());
      const uint64_t step = std::min(kCopyStep, reader.bin_bytes() - done);
      CAIRN_ASSIGN_OR_RETURN(const uint64_t copied,
                             bin.AppendFrom(reader.bin_fd(), BinPath(reader.prefix()), done, step));
      done += copied;
      if (bytes_done_ != nullptr) bytes_done_->fetch_add(copied);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<OutputFile>> WriteIndex() {
    CAIRN_ASSIGN_OR_RETURN(auto idx, OutputFile::Create(IdxPath(output_), {}));
    CAIRN_RETURN_IF_ERROR(idx->Append(EncodeIndexHeader(header_)));
    const auto append = [&idx](const auto* values, size_t count) {
      return idx->Append({reinterpret_cast<const char*>(values), count * sizeof *values});
    };
    CAIRN_RETURN_IF_ERROR(ForEach([&](const IndexedReader& r) { return r.VisitLengths(append); }));
    std::vector<int64_t> moved;
    uint64_t base = 0;
    const auto append_moved = [&](const int64_t* values, size_t count) {
      moved.resize(count);
      for (size_t i = 0; i < count; ++i) moved[i] = values[i] + static_cast<int64_t>(base);
      return append(moved.data(), count);
    };
    absl::Status status = ForEach([&](const IndexedReader& r) {
      absl::Status appended = r.VisitPointers(append_moved);
      base += r.bin_bytes();
      return appended;
    });
    CAIRN_RETURN_IF_ERROR(status);
    base = 0;
    const int64_t zero = 0;
    CAIRN_RETURN_IF_ERROR(append(&zero, 1));
    status = ForEach([&](const IndexedReader& r) {
      bool skipped = false;  // set once the leading 0 is skipped
      absl::Status appended = r.VisitDocuments([&](const int64_t* values, size_t count) {
        const size_t skip = std::exchange(skipped, true) ? 0 : 1;
        return append_moved(values + skip, count - skip);
      });
      base += r.header().sequences;
      return appended;
    });
    CAIRN_RETURN_IF_ERROR(status);
    CAIRN_RETURN_IF_ERROR(ForEach([&](const IndexedReader& r) { return r.VisitModes(append); }));
    return idx;
  }

  const std::vector<std::string>& prefixes_;
  const std::string& output_;
  const std::atomic<bool>& stop_;
  std::atomic<uint64_t>* const bytes_done_;
  const TokenCopier& copier_;
  uint64_t bin_bytes_ = 0;
  IndexHeader header_{};
  bool through_memory_ = StoresOf(output_) != nullptr;  // the kernel knows no object stores
  MergeReport report_;
};

}  // namespace

absl::StatusOr<MergeReport> MergeIndexed(const std::vector<std::string>& prefixes, const std::string& output,
                                         const std::atomic<bool>& stop, std::atomic<uint64_t>* bytes_done,
                                         const TokenCopier& copier) {
  return Merger(prefixes, output, stop, bytes_done, copier).Run();
}

absl::StatusOr<uint64_t> CopyPartOfTokens(const std::vector<std::string>& prefixes, uint32_t number, uint32_t of,
                                          const std::string& bin, const std::atomic<bool>& stop) {
  uint64_t total = 0;
  for (const std::string& prefix : prefixes) {
    CAIRN_ASSIGN_OR_RETURN(const auto reader, IndexedReader::Open(prefix));
    if (reader->bin_fd() < 0) return NoStore(prefix);
    total += reader->bin_bytes();
  }
  const auto edge = [&](uint64_t part) { return static_cast<uint64_t>(Uint128{total} * part / of); };
  const uint64_t low = edge(number - 1), high = edge(number);
  const UniqueFd file(open(bin.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return InputError("open", bin, errno);
  AlignedBuffer buffer;
  uint64_t start = 0;  // of this pair in all
  for (const std::string& prefix : prefixes) {
    if (start >= high) break;
    CAIRN_ASSIGN_OR_RETURN(const auto reader, IndexedReader::Open(prefix));
    const std::string path = BinPath(prefix);
    const uint64_t end = std::min(high, start + reader->bin_bytes());
    for (uint64_t at = std::max(low, start); at < end;) {
      if (stop.load()) return MakeError(Reason::kInterrupted, "interrupted");
      CAIRN_ASSIGN_OR_RETURN(const CopiedFile::Copied copied,
                             CopiedFile::Copy({reader->bin_fd(), path, at - start, std::min(kCopyStep, end - at), at},
                                              file.get(), bin, buffer));
      at += copied.bytes;
    }
    start += reader->bin_bytes();
  }
  if (fsync(file.get()) != 0) return OutputError("fsync", bin, errno);
  return high - low;
}

}  // namespace cairn::corpus
