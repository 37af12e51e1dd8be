#include "agent/writer/partial_bin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/staging/shared_memory.h"
#include "agent/testing/layouts.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

const std::atomic<bool> kNeverStops = false;
constexpr uint64_t kBytes = 5 * 8192 + 100;

// Writes a bin of one tensor, in chunks of 8192 bytes.
class PartialBinTest : public ::testing::Test {
 protected:
  PartialBinTest() {
    root_ = ::testing::TempDir() + "/bin-" + RandomToken(6);
    Open({.pwrite = [this](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
      if (error_ != 0) {
        errno = error_;
        error_ = error_again_;
        return -1;
      }
      if (next_takes_.has_value()) size = *std::exchange(next_takes_, again_takes_);
      return ::pwrite(fd, bytes, std::min(size, most_at_once_), offset);
    }});
    EXPECT_TRUE(storage_->MakeDirectories("attempt").ok());
    job_.directory = "attempt";
    job_.staged = job_.target =
        *MakeSaveImage(layout_, testing::MakeWritePlan(*layout_, 0, {{0}}, std::string(32, 'p')));
    slab_ = *SharedMemory::Create("test", job_.staged->slab_bytes);
    std::memcpy(slab_->data() + job_.staged->slab_offset[0], data_.data(), data_.size());
    job_.slab = slab_->data();
    options_.chunk_bytes = 8192;
  }
  ~PartialBinTest() override { std::filesystem::remove_all(root_); }

  void Open(PosixCalls calls) {
    calls_ = calls;
    storage_ = *PosixStorage::Open(root_, true, std::move(calls));
  }
  void MakeBin() { bin_ = std::make_unique<PartialBin>(*storage_, job_, options_, job_.target->file[0], 0); }
  // Opens the bin and writes all of it, without Finish. Returns how many calls returned true.
  int WriteAll() {
    MakeBin();
    EXPECT_TRUE(bin_->Open(kNeverStops).ok());
    AlignedBuffer scratch;
    int last = 0;
    for (uint64_t chunk = 0; chunk < bin_->chunks(); ++chunk) {
      if (bin_->checked_apart(chunk)) last += bin_->CheckChunk(chunk) ? 1 : 0;
    }
    for (uint64_t chunk = 0; chunk < bin_->chunks(); ++chunk) {
      const auto written = bin_->WriteChunk(chunk, scratch);
      EXPECT_TRUE(written.ok()) << written.status();
      last += written.ok() && *written ? 1 : 0;
    }
    return last;
  }
  std::string Partial() const { return Path(".partial"); }
  std::string Final() const { return Path(".safetensors"); }
  std::string Path(const std::string& ending) const { return root_ + "/attempt/" + job_.target->file[0].name + ending; }
  static std::string ReadAll(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void ExpectWhole() {
    const std::string bytes = ReadAll(Final());
    ASSERT_EQ(bytes.size(), job_.target->file[0].bytes());
    EXPECT_TRUE(bytes.substr(bytes.size() - kBytes) == data_);
  }

  const RankLayoutPtr layout_ = testing::MakeLayout({testing::Whole("a", DType::kUint8, {kBytes})}, {});
  const std::string data_ = testing::Pattern("a", kBytes);
  std::string root_;
  PosixCalls calls_;
  std::unique_ptr<PosixStorage> storage_;
  std::shared_ptr<SharedMemory> slab_;
  BinWriteJob job_;
  BinWriterOptions options_;
  int error_ = 0;        // of the next write
  int error_again_ = 0;  // of those behind it
  size_t most_at_once_ = SIZE_MAX;
  std::optional<size_t> next_takes_;   // bytes of the next write
  std::optional<size_t> again_takes_;  // bytes of those behind it
  std::unique_ptr<PartialBin> bin_;
};

TEST_F(PartialBinTest, Finish_AllIsWritten_GivesTheFileItsName) {
  EXPECT_EQ(WriteAll(), 1) << "one caller is told to finish";
  EXPECT_TRUE(std::filesystem::exists(Partial()));
  EXPECT_FALSE(std::filesystem::exists(Final()));
  const auto result = bin_->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(std::filesystem::exists(Partial()));
  EXPECT_EQ(result->item_checksums(0), testing::SlowCrc32c(data_));
  EXPECT_EQ(result->file_bytes(), job_.target->file[0].bytes());
  ExpectWhole();
}

TEST_F(PartialBinTest, WriteChunk_WritesComeUpShort_AreContinued) {
  most_at_once_ = 4096 + 512;
  WriteAll();
  ASSERT_TRUE(bin_->Finish().ok());
  ExpectWhole();
}

TEST_F(PartialBinTest, WriteChunk_OneWriteTakesLessThanABlock_IsContinued) {
  for (const size_t bytes : {0, 1, 512, 4095}) {
    SCOPED_TRACE(bytes);
    MakeBin();
    ASSERT_TRUE(bin_->Open(kNeverStops).ok());
    AlignedBuffer scratch;
    for (uint64_t chunk = 0; chunk < bin_->chunks(); ++chunk) {
      bin_->CheckChunk(chunk);
      next_takes_ = bytes;
      const auto written = bin_->WriteChunk(chunk, scratch);
      ASSERT_TRUE(written.ok()) << written.status();
    }
    ASSERT_TRUE(bin_->Finish().ok());
    ExpectWhole();
    ASSERT_TRUE(bin_->Remove().ok());
  }
}

TEST_F(PartialBinTest, WriteChunk_WritesBringNoProgress_IsAFullDisk) {
  MakeBin();
  ASSERT_TRUE(bin_->Open(kNeverStops).ok());
  next_takes_ = again_takes_ = 0;
  AlignedBuffer scratch;
  EXPECT_TRUE(HasReason(bin_->WriteChunk(0, scratch).status(), Reason::kNoSpace));
}

// As near a limit of the process, or on a file system in user space.
TEST_F(PartialBinTest, WriteChunk_EachWriteTakesLessThanABlock_EndsThroughThePageCache) {
  calls_.direct = false;
  Open(calls_);
  most_at_once_ = 1000;
  WriteAll();
  ASSERT_TRUE(bin_->Finish().ok());
  ExpectWhole();
}

TEST_F(PartialBinTest, WriteChunk_DirectWritesAreRefused_GoesThroughThePageCache) {
  error_ = EINVAL;
  WriteAll();
  EXPECT_TRUE(bin_->buffered());
  ASSERT_TRUE(bin_->Finish().ok());
  ExpectWhole();
}

TEST_F(PartialBinTest, WriteChunk_TheDiskIsFull_IsAnError) {
  MakeBin();
  ASSERT_TRUE(bin_->Open(kNeverStops).ok());
  error_ = error_again_ = ENOSPC;
  AlignedBuffer scratch;
  EXPECT_TRUE(HasReason(bin_->WriteChunk(0, scratch).status(), Reason::kNoSpace));
}

TEST_F(PartialBinTest, Open_AnotherFileStandsThere_LeavesItAlone) {
  std::ofstream(Partial()) << "another's";
  MakeBin();
  EXPECT_FALSE(bin_->Open(kNeverStops).ok());
  EXPECT_TRUE(bin_->Remove().ok());
  EXPECT_EQ(ReadAll(Partial()), "another's");
}

TEST_F(PartialBinTest, Finish_TheNameIsTaken_LeavesItAlone) {
  WriteAll();
  std::ofstream(Final()) << "another's";
  EXPECT_FALSE(bin_->Finish().ok());
  EXPECT_TRUE(bin_->Remove().ok());
  EXPECT_EQ(ReadAll(Final()), "another's");
  EXPECT_FALSE(std::filesystem::exists(Partial()));
}

TEST_F(PartialBinTest, Remove_AFinishedBin_TakesItAway) {
  WriteAll();
  ASSERT_TRUE(bin_->Finish().ok());
  EXPECT_TRUE(bin_->Remove().ok());
  EXPECT_FALSE(std::filesystem::exists(Final()));
}

TEST(PaddedToBlockTest, PaddedToBlock_AnyLength_IsTheNextMultipleOf4096) {
  EXPECT_EQ(PaddedToBlock(0), 0);
  EXPECT_EQ(PaddedToBlock(1), 4096);
  EXPECT_EQ(PaddedToBlock(4096), 4096);
  EXPECT_EQ(PaddedToBlock(4097), 8192);
}

}  // namespace
}  // namespace cairn
