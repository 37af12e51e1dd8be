#include "python/native/file_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/random_id.h"
#include "python/native/file_pieces.h"

namespace cairn {
namespace {

using Kind = FileReadOutcome::Kind;

constexpr absl::Duration kLong = absl::Seconds(60);

class FileReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/reader" + std::to_string(RandomId());
    ASSERT_EQ(mkdir(directory_.c_str(), 0700), 0);
  }

  // Writes a file of so many bytes, and has the kernel forget it if it does that.
  FileRead::Source Write(const std::string& name, int64_t bytes) {
    std::string content(static_cast<size_t>(bytes), '\0');
    for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 4093 + content_.size());
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    Forget(path);
    content_.push_back(std::move(content));
    return {path, bytes};
  }

  static void Forget(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY);
    ASSERT_GE(fd, 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }

  // A shard over [begin, end) of file 0, for a target that is `turn` bytes behind a block's begin.
  FileShard Bytes(int64_t begin, int64_t end, int64_t turn) {
    memory_.assign(static_cast<size_t>(end - begin) + size_t{3} * 4096, '\1');
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    FileShard shard;
    shard.position = begin;
    shard.element_bytes = 1;
    shard.global_shape = {end - begin};
    shard.box = WholeBox(shard.global_shape);
    shard.range = {0, end - begin};
    shard.target_strides = {1};
    shard.target = reinterpret_cast<std::byte*>((address / 4096 + 1) * 4096 + static_cast<uintptr_t>(turn));
    return shard;
  }

  std::string directory_;
  std::vector<std::string> content_;
  std::string memory_;
};

TEST_F(FileReaderTest, Read_AnyPlaceAndAlignment_GivesTheBytesOfTheFile) {
  const auto source = Write("a", 9'000'123);
  for (const bool shared : {true, false}) {
    for (const int64_t begin : {0, 1, 4096, 8193, 4'194'304}) {
      for (const int64_t turn : {0L, begin % 4096, 77L}) {
        for (const int64_t end : {begin + 1, begin + 4096, begin + 70'000, int64_t{9'000'123}}) {
          SCOPED_TRACE(testing::Message() << shared << " " << begin << " " << end << " " << turn);
          Forget(source.path);
          const FileShard shard = Bytes(begin, end, turn);
          const auto outcome = FileRead::Begin({source}, CutShards({shard}, 0), 3, shared)->Wait(kLong);
          ASSERT_EQ(outcome.kind, Kind::kDone);
          const auto* const found = reinterpret_cast<const char*>(shard.target);
          ASSERT_EQ(std::memcmp(found, content_[0].data() + begin, static_cast<size_t>(end - begin)), 0);
          // Nothing beside the target was touched.
          ASSERT_EQ(found[-1], '\1');
          ASSERT_EQ(found[end - begin], '\1');
          ASSERT_EQ(outcome.cached_bytes + outcome.buffered_bytes + outcome.direct_bytes, end - begin);
          ASSERT_LE(outcome.direct_bytes, shared ? 0 : end - begin);
        }
      }
    }
  }
}

TEST_F(FileReaderTest, Read_OwnBytesThatAreCached_AreTakenFromTheCache) {
  const auto source = Write("a", 3'000'000);
  std::ifstream(source.path).read(std::string(3'000'000, '\0').data(), 3'000'000);
  const auto outcome = FileRead::Begin({source}, CutShards({Bytes(0, 3'000'000, 0)}, 0), 2, false)->Wait(kLong);
  EXPECT_EQ(outcome.kind, Kind::kDone);
  EXPECT_EQ(outcome.cached_bytes, 3'000'000);
}

TEST_F(FileReaderTest, Read_StridedAndGathered_GivesTheSameCachedOrNot) {
  const auto source = Write("a", 6'000'000);
  for (const int64_t gap : {int64_t{64}, int64_t{1} << 20}) {
    for (const bool cached : {false, true}) {
      for (const bool shared : {false, true}) {
        SCOPED_TRACE(testing::Message() << gap << cached << shared);
        if (!cached) Forget(source.path);
        std::string columns(1'000'000, '\0'), small(6400, '\0');
        std::vector<FileShard> shards;
        FileShard matrix = Bytes(0, 1, 0);
        matrix.position = 123;
        matrix.global_shape = {500, 10'000};
        matrix.box = {{0, 3000}, {500, 2000}};
        matrix.range = {0, 1'000'000};
        matrix.target = reinterpret_cast<std::byte*>(columns.data());
        matrix.target_strides = {2000, 1};
        shards.push_back(matrix);
        for (int64_t i = 0; i < 100; ++i) {
          FileShard one = Bytes(0, 64, 0);
          one.position = 5'500'000 + i * 64;
          one.target = reinterpret_cast<std::byte*>(small.data()) + (99 - i) * 64;
          shards.push_back(one);
        }
        const auto outcome = FileRead::Begin({source}, CutShards(shards, gap), 4, shared)->Wait(kLong);
        ASSERT_EQ(outcome.kind, Kind::kDone);
        for (size_t i = 0; i < 500; ++i) {
          ASSERT_EQ(columns.substr(i * 2000, 2000), content_[0].substr(123 + i * 10'000 + 3000, 2000)) << i;
        }
        for (size_t i = 0; i < 100; ++i) {
          ASSERT_EQ(small.substr((99 - i) * 64, 64), content_[0].substr(5'500'000 + i * 64, 64)) << i;
        }
      }
    }
  }
}

TEST_F(FileReaderTest, Read_FilesThatAreNotAsSaid_NamesTheFirstThatFailed) {
  const auto good = Write("a", 5000);
  const FileShard shard = Bytes(0, 5000, 0);
  const auto outcome_of = [&](const FileRead::Source& source) {
    FileShard bad = shard;
    bad.file = 1;
    return FileRead::Begin({good, source}, CutShards({shard, bad}, 0), 1, false)->Wait(kLong);
  };
  EXPECT_EQ(outcome_of({directory_ + "/none", 5000}).kind, Kind::kErrno);
  EXPECT_EQ(outcome_of({directory_ + "/none", 5000}).error, ENOENT);
  EXPECT_EQ(outcome_of({directory_ + "/none", 5000}).file, 1u);
  EXPECT_EQ(outcome_of({directory_, 5000}).kind, Kind::kNotRegular);
  ASSERT_EQ(mkfifo((directory_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(outcome_of({directory_ + "/pipe", 5000}).kind, Kind::kNotRegular);
  Write("short", 4999);
  EXPECT_EQ(outcome_of({directory_ + "/short", 5000}).kind, Kind::kTruncated);
  EXPECT_EQ(outcome_of(good).kind, Kind::kDone);
}

TEST_F(FileReaderTest, Wait_NothingToRead_IsDone) {
  EXPECT_EQ(FileRead::Begin({}, {}, 4, true)->Wait(absl::ZeroDuration()).kind, Kind::kDone);
}

TEST_F(FileReaderTest, Cancel_AfterTheEnd_ChangesNothing) {
  const auto source = Write("a", 5000);
  const auto read = FileRead::Begin({source}, CutShards({Bytes(0, 5000, 0)}, 0), 1, true);
  EXPECT_EQ(read->Wait(kLong).kind, Kind::kDone);
  read->Cancel();
  EXPECT_EQ(read->Wait(kLong).kind, Kind::kDone);
}

TEST_F(FileReaderTest, Read_ManyFiles_KeepsOnlyAFewOpen) {
  std::vector<FileRead::Source> sources;
  std::vector<FileShard> shards;
  for (size_t i = 0; i < 50; ++i) {
    sources.push_back(Write(std::to_string(i), 100));
    shards.push_back(Bytes(0, 100, 0));
    shards.back().file = i;
  }
  std::string memory(5000, '\0');
  for (size_t i = 0; i < 50; ++i) shards[i].target = reinterpret_cast<std::byte*>(memory.data()) + i * 100;
  const auto read = FileRead::Begin(sources, CutShards(shards, 0), 2, true);
  ASSERT_EQ(read->Wait(kLong).kind, Kind::kDone);
  for (size_t i = 0; i < 50; ++i) ASSERT_EQ(memory.substr(i * 100, 100), content_[i]);
  int open_ones = 0;
  for (int fd = 0; fd < 256; ++fd) {
    char target[4096];
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof(target));
    open_ones += length > 0 && std::string(target, static_cast<size_t>(length)).starts_with(directory_);
  }
  EXPECT_EQ(open_ones, 0);
}

}  // namespace
}  // namespace cairn
