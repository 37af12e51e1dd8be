#include "agent/reader/round_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "agent/staging/shared_memory.h"
#include "agent/testing/layouts.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "common/format/safetensors_header.h"
#include "common/status/reason.h"
#include "store/posix/posix_file.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

using testing::Pattern;
using testing::Whole;

// A bin with known bytes, made by RenderHeader, and plans that read parts of it.
class RoundReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::string(::testing::TempDir()) + "/reader-" + RandomToken(6);
    std::filesystem::create_directories(root_ + "/demo/000000000007/0001");
    auto storage = PosixStorage::Open(root_, false);
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
    const std::vector<StoredItem> items = {Whole("a", DType::kUint8, {5000}),
                                           Whole("b", DType::kUint8, {(5 << 20) + 77}), Whole("c", DType::kUint8, {3}),
                                           Whole("d", DType::kUint8, {1 << 20})};
    std::vector<ItemChecksums> checksums;
    std::string data;
    for (const StoredItem& item : items) {
      const std::string bytes = Pattern(item.name, item.bytes());
      ItemChecksums one;
      one.crc32c = Crc32c(bytes.data(), bytes.size());
      for (uint64_t at = 0; at < bytes.size(); at += kChecksumBlockBytes) {
        one.blocks.push_back(Crc32c(bytes.data() + at, std::min(kChecksumBlockBytes, bytes.size() - at)));
      }
      checksums.push_back(one);
      data += bytes;
    }
    const std::string header = RenderHeader(items, checksums);
    bytes_ = header + data;
    Write(bytes_);
    auto* file = plan_.add_files();
    file->set_path("000000000007/0001/bin.safetensors");
    file->set_header_bytes(header.size());
    file->set_file_bytes(bytes_.size());
    file->set_header_crc32c(Crc32c(header.data(), header.size()));
    uint64_t at = header.size();
    for (size_t i = 0; i < items.size(); ++i) {
      file->add_item_offsets(at);
      file->add_item_sizes(items[i].bytes());
      file->add_item_checksums(checksums[i].crc32c);
      file->add_item_names(items[i].name);
      at += items[i].bytes();
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // Makes `pread` the system call by which the storage reads from now on; null is the system's own.
  void Call(std::function<ssize_t(int, void*, size_t, off_t)> pread) {
    storage_ = *PosixStorage::Open(root_, false, {.pread = std::move(pread)});
  }
  std::string File() const { return root_ + "/demo/000000000007/0001/bin.safetensors"; }
  // The slab of an agent that wrote the file, which begins at its third page.
  RoundReaderOptions WithSlab(const std::string& bytes) {
    memory_ = *SharedMemory::Create("slab", 2 * 4096 + bytes.size());
    std::memcpy(memory_->data() + 2 * 4096, bytes.data(), bytes.size());
    const v1::ReadFile& file = plan_.files(0);
    auto image = std::make_shared<SaveImage>();
    image->file.push_back({"bin", 2 * 4096, file.header_bytes(), file.file_bytes() - file.header_bytes(), {}});
    KeptSave kept{.step = 7, .attempt = 1, .image = std::move(image)};
    kept.result.add_files()->set_file_bytes(file.file_bytes());
    kept.result.mutable_files(0)->set_header_crc32c(file.header_crc32c());
    RoundReaderOptions options;
    options.slab = std::make_shared<SlabImage>(memory_, std::make_shared<const KeptSave>(std::move(kept)));
    return options;
  }

  void Write(const std::string& bytes) { std::ofstream(File(), std::ios::binary) << bytes; }
  // Adds a round with these ranges, packed as closely as their alignment allows: neighbours share pages.
  uint32_t AddRound(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
    auto* round = plan_.add_rounds();
    uint64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      while (at % 4096 != begin % 4096) ++at;
      auto* read = round->add_reads();
      read->set_file_offset(begin);
      read->set_bytes(end - begin);
      read->set_buffer_offset(at);
      at += end - begin;
    }
    round->set_buffer_bytes(at);
    round->add_consumers(0);
    return static_cast<uint32_t>(plan_.rounds_size() - 1);
  }
  absl::Status Read(uint32_t round, RoundReaderOptions options = {}) {
    RoundReader reader(*storage_, "demo", plan_, options);
    if (const absl::Status bad = reader.CheckPlan(); !bad.ok()) return bad;
    buffer_ =
        *SharedMemory::Create("test", std::max<uint64_t>(plan_.rounds(static_cast<int>(round)).buffer_bytes(), 1));
    const absl::Status status = reader.ReadRound(round, buffer_->data(), stop_);
    done_ = reader.bytes_done();
    storage_bytes_ = reader.counters().storage();
    cached_ += reader.counters().cached;
    direct_ += reader.counters().direct;
    buffered_ += reader.counters().buffered;
    io_path_ = reader.counters().io_path();
    return status;
  }
  // Takes the file out of the page cache. False where the file system has nothing else, as tmpfs.
  bool DropCache() {
    const UniqueFd fd(::open(File().c_str(), O_RDONLY | O_CLOEXEC));
    fsync(fd.get());
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    return !IsCached(fd.get(), 0, bytes_.size());
  }
  void ExpectRound(uint32_t round) {
    for (const v1::Read& read : plan_.rounds(static_cast<int>(round)).reads()) {
      EXPECT_EQ(std::memcmp(buffer_->data() + read.buffer_offset(), bytes_.data() + read.file_offset(), read.bytes()),
                0)
          << read.ShortDebugString();
    }
  }

  std::string root_, bytes_;
  v1::IoPath io_path_ = v1::IO_PATH_UNSPECIFIED;
  std::unique_ptr<PosixStorage> storage_;
  v1::ReadPlan plan_;
  std::shared_ptr<SharedMemory> buffer_;
  std::shared_ptr<SharedMemory> memory_;  // of WithSlab
  std::atomic<bool> stop_ = false;
  uint64_t done_ = 0, storage_bytes_ = 0;
  uint64_t cached_ = 0, direct_ = 0, buffered_ = 0;  // of all reads so far
};

TEST_F(RoundReaderTest, Read_WholeItems_ReadsEachByteOnce) {
  const uint64_t header = plan_.files(0).header_bytes();
  const uint32_t round = AddRound({{header, bytes_.size()}});
  ASSERT_TRUE(Read(round).ok());
  ExpectRound(round);
  EXPECT_EQ(done_, bytes_.size() - header);
  EXPECT_LE(storage_bytes_, done_ + header + 2 * 4096);
  EXPECT_TRUE(io_path_ == v1::IO_PATH_CACHED || io_path_ == v1::IO_PATH_DIRECT) << io_path_;
}

TEST_F(RoundReaderTest, Read_RandomRangesByAnyChunkAndPath_GivesTheirBytes) {
  std::mt19937 random(23);
  const uint64_t header = plan_.files(0).header_bytes();
  bool dropped = false;
  for (int i = 0; i < 60; ++i) {
    std::vector<uint64_t> cuts;
    for (auto k = 2 + 2 * (random() % 5); k > 0; --k) {
      cuts.push_back(header + (random() % 2 ? random() % 9000 : random() % (bytes_.size() - header)));
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (size_t k = 0; k + 1 < cuts.size(); k += 2) {
      if (cuts[k] < cuts[k + 1]) ranges.push_back({cuts[k], cuts[k + 1]});
    }
    const uint32_t round = AddRound(ranges);
    RoundReaderOptions options = {.io_threads = 1 + static_cast<int>(random() % 3),
                                  .chunk_bytes = 4096 * (1 + random() % 300)};
    options.cache = random() % 2 ? Cache::kSpare : Cache::kUse;
    const bool cold = random() % 2 && DropCache();
    dropped = dropped || cold;
    // Reads that come up short must be continued.
    Call([&](int fd, void* to, size_t size, off_t offset) -> ssize_t {
      return ::pread(fd, to, size > 8192 && offset % 3 == 0 ? 8192 : size, offset);
    });
    const absl::Status status = Read(round, options);
    ASSERT_TRUE(status.ok()) << status;
    ExpectRound(round);
  }
  EXPECT_GT(cached_, 0u);
  if (dropped) {
    EXPECT_GT(buffered_, 0u);
    const UniqueFd direct(::open(File().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (direct.valid()) {
      EXPECT_GT(direct_, 0u);
    }
  }
}

TEST_F(RoundReaderTest, Read_FlippedByte_IsFoundAndNamed) {
  std::mt19937 random(29);
  const uint64_t header = plan_.files(0).header_bytes();
  const uint64_t b = plan_.files(0).item_offsets(1);
  const uint32_t part = AddRound({{b + 100'000, b + 3'000'000}});
  const uint32_t whole = AddRound({{header, bytes_.size()}});
  for (int i = 0; i < 30; ++i) {
    std::string damaged = bytes_;
    const bool in_part = i % 2 == 0;
    const uint64_t at = in_part ? b + random() % (3 << 20) : header + random() % (bytes_.size() - header);
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    Write(damaged);
    const absl::Status status = Read(in_part ? part : whole);
    ASSERT_TRUE(HasReason(status, Reason::kChecksumMismatch)) << at << ": " << status;
    const uint64_t offset = std::stoull(MetadataOf(status)["offset"]);
    EXPECT_LE(offset, at);
    EXPECT_GT(offset + kChecksumBlockBytes, at) << "the block is named";
    if (in_part) {
      EXPECT_EQ(MetadataOf(status)["tensor"], "b");
    }
  }
  std::string damaged = bytes_;
  damaged[50] = '~';
  Write(damaged);
  EXPECT_TRUE(HasReason(Read(part), Reason::kChecksumMismatch)) << "the header that has the blocks' checksums";
  EXPECT_TRUE(HasReason(Read(whole), Reason::kChecksumMismatch)) << "also where they are not needed";
}

TEST_F(RoundReaderTest, Read_StorageFails_TellsTheReason) {
  const uint32_t round = AddRound({{plan_.files(0).header_bytes(), bytes_.size()}});
  Call([](int, void*, size_t, off_t) -> ssize_t {
    errno = EIO;
    return -1;
  });
  EXPECT_TRUE(HasReason(Read(round), Reason::kStorageError));
  Call([](int, void*, size_t, off_t) -> ssize_t { return 0; });
  EXPECT_TRUE(HasReason(Read(round), Reason::kFileTruncated));
  Call(nullptr);
  stop_ = true;
  EXPECT_TRUE(HasReason(Read(round), Reason::kInterrupted));
  stop_ = false;
  std::filesystem::resize_file(File(), 9000);
  EXPECT_TRUE(HasReason(Read(round), Reason::kFileTruncated));
  std::filesystem::remove(File());
  EXPECT_TRUE(HasReason(Read(round), Reason::kFileMissing));
}

TEST_F(RoundReaderTest, Read_PlanThatReachesOutside_IsRefused) {
  const uint32_t round = AddRound({{5000, 6000}});
  auto* read = plan_.mutable_rounds(static_cast<int>(round))->mutable_reads(0);
  const v1::Read good = *read;
  read->set_bytes(UINT64_MAX);
  EXPECT_TRUE(HasReason(Read(round), Reason::kBadRequest));
  *read = good;
  read->set_buffer_offset(good.buffer_offset() + 4096);
  EXPECT_TRUE(HasReason(Read(round), Reason::kBadRequest));
  *read = good;
  read->set_file(9);
  EXPECT_TRUE(HasReason(Read(round), Reason::kBadRequest));
  *read = good;
  plan_.mutable_files(0)->set_item_offsets(1, 1);
  EXPECT_TRUE(HasReason(Read(round), Reason::kBadRequest));
}

TEST_F(RoundReaderTest, Read_FileStandsInTheSlab_TouchesNoStorage) {
  std::filesystem::remove(File());
  const RoundReaderOptions options = WithSlab(bytes_);
  const uint64_t header = plan_.files(0).header_bytes();
  const uint64_t b = plan_.files(0).item_offsets(1);
  const uint32_t whole = AddRound({{header, bytes_.size()}});
  const uint32_t parts =
      AddRound({{header + 10, header + 20}, {b + 100'000, b + 3'000'000}, {b + 5'000'001, b + 5'000'003}});
  for (const uint32_t round : {whole, parts}) {
    const absl::Status status = Read(round, options);
    ASSERT_TRUE(status.ok()) << status;
    ExpectRound(round);
    EXPECT_EQ(storage_bytes_, 0u);
    EXPECT_EQ(io_path_, v1::IO_PATH_SLAB);
  }
}

TEST_F(RoundReaderTest, Read_SlabIsGivenUpAtAnyMoment_GoesOnWithTheFile) {
  const uint32_t round = AddRound({{plan_.files(0).header_bytes() + 1, bytes_.size() - 5}});
  std::mt19937 random(31);
  for (int i = 0; i < 60; ++i) {
    RoundReaderOptions options = WithSlab(bytes_);
    options.chunk_bytes = 4096 * (1 + random() % 300);
    const uint64_t turns = random() % 2000;
    std::thread save([&] {
      for (uint64_t turn = 0; turn < turns; ++turn) std::this_thread::yield();
      options.slab->GiveUp();
      std::memset(memory_->data(), 'x', memory_->bytes());
    });
    const absl::Status status = Read(round, options);
    save.join();
    ASSERT_TRUE(status.ok()) << status;
    ExpectRound(round);
  }
  RoundReaderOptions options = WithSlab(bytes_);
  options.slab->GiveUp();
  ASSERT_TRUE(Read(round, options).ok());
  ExpectRound(round);
  EXPECT_GT(storage_bytes_, 0u);
}

TEST_F(RoundReaderTest, Read_SlabHoldsAnotherByte_TakesTheFile) {
  std::mt19937 random(37);
  const uint64_t header = plan_.files(0).header_bytes();
  const uint64_t b = plan_.files(0).item_offsets(1);
  const uint32_t part = AddRound({{b + 100'000, b + 3'000'000}});
  const uint32_t whole = AddRound({{header, bytes_.size()}});
  for (int i = 0; i < 30; ++i) {
    std::string changed = bytes_;
    const bool in_part = i % 2 == 0;
    const bool in_header = i % 7 == 3;
    const uint64_t at = in_header ? random() % header
                        : in_part ? b + random() % (3 << 20)
                                  : header + random() % (bytes_.size() - header);
    changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
    const uint32_t round = in_part ? part : whole;
    const absl::Status status = Read(round, WithSlab(changed));
    ASSERT_TRUE(status.ok()) << at << ": " << status;
    ExpectRound(round);
    EXPECT_GT(storage_bytes_, 0u) << at;
  }
  std::string changed = bytes_;
  changed[b + 200'000] = static_cast<char>(changed[b + 200'000] ^ 1);
  Write(changed);
  EXPECT_TRUE(HasReason(Read(part, WithSlab(changed)), Reason::kChecksumMismatch)) << "neither is right";
  EXPECT_TRUE(Read(part, WithSlab(bytes_)).ok()) << "the slab is";
  ExpectRound(part);
  std::filesystem::remove(File());
  EXPECT_TRUE(HasReason(Read(part, WithSlab(changed)), Reason::kFileMissing));
}

}  // namespace
}  // namespace cairn
