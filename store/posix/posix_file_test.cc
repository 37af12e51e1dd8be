#include "store/posix/posix_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using Way = StoredFile::Way;

constexpr uint64_t kFileBytes = 10 * kReadAlignment + 77;

std::string Pattern() {
  std::mt19937 random(1);
  std::string bytes(kFileBytes, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A file, and a system call that gives its bytes and obeys the rules of O_DIRECT, whatever the file system can do.
class PosixFileTest : public ::testing::Test {
 protected:
  PosixFileTest() {
    root_ = ::testing::TempDir() + "/range-" + RandomToken(6);
    std::filesystem::create_directories(root_);
    std::ofstream(root_ + "/file", std::ios::binary) << bytes_;
    directory_ = *ConfinedDirectory::Open(root_, false);
    calls_.pread = [this](int fd, void* to, size_t size, off_t offset) -> ssize_t {
      return Pread(IsDirect(fd), static_cast<char*>(to), size, static_cast<uint64_t>(offset));
    };
  }
  ~PosixFileTest() override { std::filesystem::remove_all(root_); }

  // Where the file system refuses O_DIRECT, the reader has no descriptor for it.
  static bool IsDirect(int fd) { return fd < 0 || (fcntl(fd, F_GETFL) & O_DIRECT) != 0; }
  ssize_t Pread(bool direct, char* to, size_t size, uint64_t offset) {
    if (++reads_ > 1000) std::abort();  // it would never end
    if (direct) {
      EXPECT_EQ(offset % kReadAlignment, 0);
      EXPECT_EQ(size % kReadAlignment, 0);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(to) % kReadAlignment, 0);
    }
    if (const int error = std::exchange(next_error_, 0); error != 0) {
      errno = error;
      return -1;
    }
    if (direct && direct_is_refused_) {
      errno = EINVAL;
      return -1;
    }
    if (offset >= end_) return 0;
    const size_t got = std::min({size, end_ - offset, most_at_once_});
    std::memcpy(to, bytes_.data() + offset, got);
    return static_cast<ssize_t>(got);
  }
  absl::StatusOr<std::unique_ptr<PosixFile>> Open(const std::string& path, uint64_t bytes,
                                                  std::optional<int64_t> modified_ns = std::nullopt) {
    return PosixFile::Open(*directory_, path, path,
                           {.cache = Cache::kSpare, .bytes = bytes, .modified_ns = modified_ns, .counters = &counters_},
                           calls_);
  }
  std::unique_ptr<PosixFile> Open() {
    auto file = Open("file", kFileBytes);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  absl::Status OpenError(const std::string& path, uint64_t bytes) { return Open(path, bytes).status(); }

  const std::string bytes_ = Pattern();
  std::string root_;
  std::unique_ptr<ConfinedDirectory> directory_;
  PosixCalls calls_;
  ReadCounters counters_;
  int reads_ = 0;
  int next_error_ = 0;
  bool direct_is_refused_ = false;
  uint64_t end_ = kFileBytes;
  uint64_t most_at_once_ = UINT64_MAX;
};

TEST_F(PosixFileTest, Read_AnyRangeByAnyWay_GivesTheBytesAndTouchesNothingAround) {
  std::mt19937 random(7);
  const auto reader = Open();
  for (int i = 0; i < 300; ++i) {
    reads_ = 0;
    const uint64_t offset = random() % kFileBytes;
    const uint64_t size = random() % (kFileBytes - offset + 1);
    const Way way = std::vector{Way::kCached, Way::kBuffered, Way::kDirect}[random() % 3];
    most_at_once_ = random() % 2 ? 2 * kReadAlignment : UINT64_MAX;
    std::string around(size + 200, '#');
    ASSERT_TRUE(reader->Read(way, offset, size, around.data() + 100, /*in_place=*/false).ok());
    EXPECT_EQ(around, std::string(100, '#') + bytes_.substr(offset, size) + std::string(100, '#'));
  }
}

TEST_F(PosixFileTest, Read_DirectIntoPlace_NeedsNoSecondBuffer) {
  const auto reader = Open();
  AlignedBuffer buffer(4 * kReadAlignment);
  const uint64_t offset = 2 * kReadAlignment + 100;
  ASSERT_TRUE(reader->Read(Way::kDirect, offset, 5000, buffer.data() + 100, /*in_place=*/true).ok());
  EXPECT_EQ(std::string(buffer.data() + 100, 5000), bytes_.substr(offset, 5000));
  EXPECT_EQ(std::string(buffer.data(), 100), bytes_.substr(2 * kReadAlignment, 100)) << "the whole block was read";
  EXPECT_EQ(counters_.direct, 2 * kReadAlignment);
}

TEST_F(PosixFileTest, Read_DirectIsRefused_GoesThroughThePageCacheFromThenOn) {
  direct_is_refused_ = true;
  const auto reader = Open();
  std::string read(5000, '#');
  ASSERT_TRUE(reader->Read(Way::kDirect, 100, read.size(), read.data(), /*in_place=*/false).ok());
  EXPECT_EQ(read, bytes_.substr(100, 5000));
  EXPECT_EQ(counters_.buffered, 5000);
  EXPECT_EQ(counters_.direct, 0);
  EXPECT_NE(reader->Begin(0, kFileBytes), Way::kDirect);
}

TEST_F(PosixFileTest, Read_ADirectReadEndsWithinABlockOfALongerFile_GoesOnThroughThePageCache) {
  most_at_once_ = kReadAlignment / 2;
  const auto reader = Open();
  std::string read(5000, '#');
  ASSERT_TRUE(reader->Read(Way::kDirect, 100, read.size(), read.data(), /*in_place=*/false).ok());
  EXPECT_EQ(read, bytes_.substr(100, 5000));
  EXPECT_EQ(counters_.buffered, 5000);
}

TEST_F(PosixFileTest, Read_AnotherErrorOfADirectRead_IsTold) {
  next_error_ = EIO;
  const auto reader = Open();
  std::string read(5000, '#');
  const absl::Status status = reader->Read(Way::kDirect, 100, read.size(), read.data(), /*in_place=*/false);
  EXPECT_TRUE(HasReason(status, Reason::kStorageError)) << status;
}

TEST_F(PosixFileTest, Read_Interrupted_GoesOn) {
  next_error_ = EINTR;
  const auto reader = Open();
  std::string read(10, '#');
  ASSERT_TRUE(reader->Read(Way::kCached, 0, read.size(), read.data(), /*in_place=*/false).ok());
  EXPECT_EQ(read, bytes_.substr(0, 10));
}

// The file was cut off after it was opened.
TEST_F(PosixFileTest, Read_TheFileEndsEarly_IsTruncatedByAnyWay) {
  const auto reader = Open();
  for (const Way way : {Way::kCached, Way::kBuffered, Way::kDirect}) {
    for (const uint64_t end : {uint64_t{0}, kReadAlignment, kReadAlignment + 904}) {
      reads_ = 0;
      end_ = end;
      std::string read(3 * kReadAlignment, '#');
      const absl::Status status = reader->Read(way, 0, read.size(), read.data(), /*in_place=*/false);
      EXPECT_TRUE(HasReason(status, Reason::kFileTruncated)) << end << ": " << status;
    }
  }
}

TEST_F(PosixFileTest, Open_WhatIsNotTheManifestsFile_IsRefused) {
  EXPECT_TRUE(HasReason(OpenError("file", kFileBytes + 1), Reason::kFileTruncated));
  EXPECT_TRUE(HasReason(OpenError("file", kFileBytes - 1), Reason::kFileTruncated));
  EXPECT_TRUE(HasReason(OpenError("missing", kFileBytes), Reason::kFileMissing));
  std::filesystem::create_directories(root_ + "/folder");
  EXPECT_TRUE(HasReason(OpenError("folder", kFileBytes), Reason::kStorageError));
  ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(OpenError("pipe", kFileBytes).ok()) << "and nobody waits for a writer";
}

// Without checksums nothing else would show that a load takes half of one file and half of another.
TEST_F(PosixFileTest, Read_FileWithoutChecksumsIsWrittenAnew_IsRefused) {
  const auto modified = [&] {
    struct stat info;
    EXPECT_EQ(stat((root_ + "/file").c_str(), &info), 0);
    return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
  };
  const int64_t before = modified();
  auto reader = Open("file", kFileBytes, before);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::string read(100, '\0');
  EXPECT_TRUE((*reader)->Read(0, 100, read.data(), false).ok());
  // Whoever writes to the file later sets another time.
  std::filesystem::last_write_time(root_ + "/file",
                                   std::filesystem::last_write_time(root_ + "/file") + std::chrono::milliseconds(5));
  EXPECT_EQ(ReasonOf((*reader)->Read(0, 100, read.data(), false)), Reason::kBadForeignFile);
  EXPECT_TRUE(Open()->Read(0, 100, read.data(), false).ok()) << "a file with checksums";
  EXPECT_TRUE(Open("file", kFileBytes, before).ok()) << "some file systems do not tell such times apart";
  EXPECT_TRUE(Open("file", kFileBytes, 0).ok()) << "nobody knows";
  EXPECT_EQ(ReasonOf(Open("file", kFileBytes, before - 3'000'000'000).status()), Reason::kBadForeignFile);
}

// A file is written in whole blocks, and then cut to its length.
TEST_F(PosixFileTest, Begin_ADirectWriteWasCut_OthersReadTheLastPageWithoutWaiting) {
  const std::string path = root_ + "/cut";
  AlignedBuffer blocks(2 * kReadAlignment);
  const UniqueFd writer(open(path.c_str(), O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  if (!writer.valid()) GTEST_SKIP() << "no direct writes here";
  ASSERT_EQ(write(writer.get(), blocks.data(), 2 * kReadAlignment), 2 * kReadAlignment);
  ASSERT_EQ(ftruncate(writer.get(), kReadAlignment + 12), 0);
  const auto reader = Open("cut", kReadAlignment + 12);
  ASSERT_TRUE(reader.ok()) << reader.status();
  if ((*reader)->Begin(kReadAlignment, 12) != Way::kCached || !(*reader)->shares_page_cache()) {
    GTEST_SKIP() << "the last page is not in the cache here";
  }
  const auto shared = (*reader)->Share();
  ASSERT_TRUE(shared.ok()) << shared.status();
  char bytes[12];
  const iovec part = {bytes, sizeof(bytes)};
  EXPECT_EQ(preadv2(shared->get(), &part, 1, kReadAlignment, RWF_NOWAIT), sizeof(bytes)) << strerror(errno);
}

TEST_F(PosixFileTest, Begin_PagesThatWereJustWritten_AreCached) {
  EXPECT_EQ(Open()->Begin(0, kFileBytes), Way::kCached);
  EXPECT_EQ(Open()->Begin(5, 0), Way::kCached) << "nothing to read";
}

}  // namespace
}  // namespace cairn
