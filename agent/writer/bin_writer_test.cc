#include "agent/writer/bin_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "agent/staging/shared_memory.h"
#include "agent/testing/layouts.h"
#include "common/base/crc32c.h"
#include "common/base/fake_clock.h"
#include "common/base/random_id.h"
#include "common/format/item_checksum.h"
#include "common/format/safetensors_header.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeMovingPlan;
using testing::Object;
using testing::Pattern;
using testing::Whole;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class BinWriterTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(std::string(::testing::TempDir()) + "/bins-" + RandomToken(6)); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Open(const std::string& root, PosixCalls calls = {}) {
    root_ = root;
    auto storage = PosixStorage::Open(root, true, std::move(calls));
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
  }

  // Makes `pwrite` the system call by which the storage writes from now on.
  void Call(std::function<ssize_t(int, const void*, size_t, off_t)> pwrite) {
    Open(root_, {.pwrite = std::move(pwrite)});
  }

  // A job whose slab is filled by `staged`'s plan and which writes `target`'s. Item 6 is moved in.
  BinWriteJob Job(const std::vector<std::vector<uint32_t>>& staged, const std::vector<std::vector<uint32_t>>& target) {
    BinWriteJob job;
    job.directory = "demo/000000000007/0001";
    job.nonce = 0xabcdef;
    std::filesystem::remove_all(root_ + "/demo");
    EXPECT_TRUE(MakeAttemptDirectory(*storage_, job.directory, job.nonce, "demo@7 attempt 1").ok());
    const auto image = [&](const std::vector<std::vector<uint32_t>>& files, const std::string& digest) {
      std::set<uint32_t> items;
      for (const auto& file : files) items.insert(file.begin(), file.end());
      std::vector<testing::MovedInShard> in;
      if (items.contains(6)) in.push_back({7, 3, moved_});
      auto made = MakeSaveImage(layout_, MakeMovingPlan(*layout_, 0, files, digest, in, {}));
      EXPECT_TRUE(made.ok()) << made.status();
      return *made;
    };
    job.staged = image(staged, "p1");
    job.target = staged == target ? job.staged : image(target, "p2");
    job.fetch_moved = [this](size_t index, uint64_t offset, uint64_t bytes, char* to) {
      EXPECT_EQ(index, 0u);
      fetched_ += bytes;
      Pattern(moved_.name, moved_.bytes()).copy(to, bytes, offset);
      return absl::OkStatus();
    };
    job.staging = &staged_;
    slab_ = *SharedMemory::Create("test", job.staged->slab_bytes);
    std::memset(slab_->data(), 0x55, slab_->bytes());  // of the save before
    for (size_t i = 0; i < layout_->items.size(); ++i) {
      if (job.staged->slab_offset[i] == SaveImage::kNotStaged) continue;
      std::memcpy(slab_->data() + job.staged->slab_offset[i], Content(i).data(), layout_->items[i].bytes());
    }
    job.slab = slab_->data();
    return job;
  }
  const StoredItem& ItemAt(size_t item) const { return item < layout_->items.size() ? layout_->items[item] : moved_; }
  std::string Content(size_t item) const { return Pattern(ItemAt(item).name, ItemAt(item).bytes()); }

  void ExpectFiles(const BinWriteJob& job, const v1::WriteResult& result) {
    for (size_t f = 0; f < job.target->file.size(); ++f) {
      const ImageFile& file = job.target->file[f];
      std::string data;
      for (uint32_t item : file.item) {
        std::string content = Content(item);
        if (ItemAt(item).object) content.replace(100, content.size() - 100, content.size() - 100, '\0');
        EXPECT_EQ(result.files(static_cast<int>(f)).item_checksums(static_cast<int>(Index(file, item))),
                  testing::SlowCrc32c(content));
        data += content;
      }
      const std::string bytes = ReadAll(root_ + "/" + job.directory + "/" + file.name + ".safetensors");
      ASSERT_EQ(bytes.size(), file.bytes());
      EXPECT_TRUE(bytes.substr(file.header_bytes) == data);
      if (job.staged == job.target) {
        EXPECT_TRUE(bytes == std::string(job.slab + file.slab_offset, file.bytes())) << "the slab is the file's image";
      }
      const auto header = ParseHeader(bytes);
      ASSERT_TRUE(header.ok()) << header.status();
      for (const ParsedItem& item : header->items) {
        for (size_t block = 0; block < item.checksums.blocks.size(); ++block) {
          const uint64_t begin = item.begin + block * kChecksumBlockBytes;
          const uint64_t size = std::min(kChecksumBlockBytes, item.end - begin);
          EXPECT_EQ(item.checksums.blocks[block], Crc32c(data.data() + begin, size));
        }
      }
    }
  }
  static size_t Index(const ImageFile& file, uint32_t item) {
    return static_cast<size_t>(std::find(file.item.begin(), file.item.end(), item) - file.item.begin());
  }

  std::vector<std::string> Files() const {
    const auto entries = storage_->List("demo/000000000007/0001");
    if (!entries.ok()) return {std::string(entries.status().message())};
    std::vector<std::string> names;
    for (const Storage::Entry& entry : *entries) {
      if (entry.name != ".owner") names.push_back(entry.name);
    }
    return names;
  }
  bool Empty() const { return Files().empty(); }

  const RankLayoutPtr layout_ = MakeLayout(
      {Whole("a", DType::kFloat32, {1000}), Whole("b", DType::kFloat32, {700, 1024}), Whole("c", DType::kUint8, {5}),
       Whole("d", DType::kFloat32, {900, 1001}), Whole("e", DType::kFloat32, {0, 4})},
      {Object("o", 8192)});
  // This is a shard of another rank: a flat piece of 3 MB.
  const StoredItem moved_ = [] {
    StoredItem item = Whole("m", DType::kFloat32, {1000, 1000});
    item.flat = FlatRange{10, 800'010};
    return item;
  }();
  std::atomic<uint64_t> fetched_ = 0;
  StagingProgress staged_{std::vector<uint64_t>{100}};
  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  std::shared_ptr<SharedMemory> slab_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> done_ = 0;
};

TEST_F(BinWriterTest, WriteBins_DirectOrBufferedInAnyChunks_WritesEveryByte) {
  for (const bool direct : {true, false}) {
    Open(root_, {.direct = direct});
    for (const uint64_t chunk : {uint64_t{4096}, uint64_t{3 * 4096 * 11}, uint64_t{8} << 20}) {
      const BinWriteJob job = Job({{3, 0, 2}, {5, 1}}, {{3, 0, 2}, {5, 1}});
      done_ = 0;
      auto outcome = WriteBins(*storage_, job, {.io_threads = 3, .chunk_bytes = chunk}, stop_, done_);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(done_, job.target->file_bytes);
      if (!direct) {
        EXPECT_EQ(outcome->path, "buffered");
      }
      ExpectFiles(job, outcome->result);
    }
  }
}

TEST_F(BinWriterTest, WriteBins_AnotherPlanThanStaged_TakesItemsFromWhereTheyAre) {
  const BinWriteJob job = Job({{3, 0, 2}, {5, 1}}, {{1, 2}, {0, 5, 3}});
  auto outcome = WriteBins(*storage_, job, {.io_threads = 2, .chunk_bytes = 65536}, stop_, done_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ExpectFiles(job, outcome->result);
}

TEST_F(BinWriterTest, WriteBins_ShardsOfOtherRanks_AreFetchedOnceIntoTheirPlaces) {
  for (const uint64_t chunk : {uint64_t{4096}, uint64_t{65536}, uint64_t{8} << 20}) {
    const BinWriteJob job = Job({{3, 6, 2}, {5, 1}}, {{3, 6, 2}, {5, 1}});
    done_ = fetched_ = 0;
    auto outcome = WriteBins(*storage_, job, {.io_threads = 3, .chunk_bytes = chunk}, stop_, done_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(fetched_, moved_.bytes());
    ExpectFiles(job, outcome->result);
  }
}

TEST_F(BinWriterTest, WriteBins_ShardsOfOtherRanksUnderAnotherPlan_AreFetchedOnce) {
  const BinWriteJob job = Job({{3, 0, 2}, {5, 1}}, {{1, 6}, {0, 5, 3}});
  auto outcome = WriteBins(*storage_, job, {.io_threads = 2, .chunk_bytes = 65536}, stop_, done_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(fetched_, moved_.bytes());
  ExpectFiles(job, outcome->result);
}

TEST_F(BinWriterTest, WriteBins_ShardDoesNotCome_FailsAndLeavesNoFile) {
  BinWriteJob job = Job({{3, 6, 2}, {5, 1}}, {{3, 6, 2}, {5, 1}});
  job.fetch_moved = [](size_t, uint64_t offset, uint64_t, char*) {
    return offset < (1 << 20) ? absl::OkStatus() : MakeError(Reason::kTransportFailed, "rank 7 is gone");
  };
  const auto outcome = WriteBins(*storage_, job, {.io_threads = 2, .chunk_bytes = 65536}, stop_, done_);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kTransportFailed)) << outcome.status();
  EXPECT_TRUE(Empty());
}

TEST_F(BinWriterTest, WriteBins_ShortWrites_AreContinued) {
  std::atomic<uint32_t> calls = 0;
  BinWriterOptions options = {.io_threads = 2, .chunk_bytes = 1 << 20};
  Call([&](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
    const uint32_t call = calls++;
    if (call % 5 == 1) {
      errno = EINTR;
      return -1;
    }
    return ::pwrite(fd, bytes, call % 2 == 0 && size > 8192 ? size / 2 / 4096 * 4096 : size, offset);
  });
  const BinWriteJob job = Job({{3, 0, 2}, {5, 1}}, {{3, 0, 2}, {5, 1}});
  auto outcome = WriteBins(*storage_, job, options, stop_, done_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ExpectFiles(job, outcome->result);
}

TEST_F(BinWriterTest, WriteBins_StorageFails_TellsTheReasonAndLeavesNoFile) {
  const std::pair<int, Reason> cases[] = {{ENOSPC, Reason::kNoSpace},
                                          {EDQUOT, Reason::kNoSpace},
                                          {EROFS, Reason::kStorageReadOnly},
                                          {EIO, Reason::kStorageError}};
  for (const auto& [error, reason] : cases) {
    for (const int when : {0, 2, 6}) {
      std::atomic<int> calls = 0;
      BinWriterOptions options = {.io_threads = 2, .chunk_bytes = 1 << 20};
      Call([&, failure = error](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
        if (calls++ < when) return ::pwrite(fd, bytes, size, offset);
        errno = failure;
        return -1;
      });
      const auto outcome = WriteBins(*storage_, Job({{3}, {1}}, {{3}, {1}}), options, stop_, done_);
      EXPECT_TRUE(HasReason(outcome.status(), reason)) << outcome.status();
      EXPECT_NE(MetadataOf(outcome.status())["file"].find("rank00000-bin0"), std::string::npos);
      EXPECT_EQ(MetadataOf(outcome.status())["errno"], std::to_string(error));
      EXPECT_TRUE(Empty()) << error << " at write " << when;
    }
  }
}

// The fake clock stands still: what is written after the first chunk would have to wait for a minute.
TEST_F(BinWriterTest, WriteBins_AtAPace_WaitsForItAndEndsSoonWhenStopped) {
  FakeClock clock;
  WritePace pace(1000, clock);
  std::atomic<uint64_t> written = 0;
  Call([&](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
    written += size;
    stop_ = true;
    return ::pwrite(fd, bytes, size, offset);
  });
  const auto outcome = WriteBins(*storage_, Job({{3}, {1}}, {{3}, {1}}),
                                 {.io_threads = 2, .chunk_bytes = 65536, .pace = &pace}, stop_, done_);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kSaveCancelled)) << outcome.status();
  EXPECT_LT(written, 2 * 65536u) << "one chunk, and what shows whether direct writes work";
  EXPECT_TRUE(Empty());
}

TEST_F(BinWriterTest, WriteBins_Stopped_EndsSoonAndLeavesNoFile) {
  BinWriterOptions options = {.io_threads = 2, .chunk_bytes = 65536};
  std::atomic<int> calls = 0;
  Call([&](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
    if (++calls == 5) stop_ = true;
    return ::pwrite(fd, bytes, size, offset);
  });
  const auto outcome = WriteBins(*storage_, Job({{3}, {1}}, {{3}, {1}}), options, stop_, done_);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kSaveCancelled)) << outcome.status();
  EXPECT_LE(calls, 7);
  EXPECT_TRUE(Empty());
}

TEST_F(BinWriterTest, WriteBins_DirectWriteRefused_GoesThroughThePageCacheAndSaysSo) {
  BinWriterOptions options = {.io_threads = 1};
  std::atomic<int> calls = 0;
  Call([&](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
    if (calls++ == 0) {
      errno = EINVAL;
      return -1;
    }
    return ::pwrite(fd, bytes, size, offset);
  });
  const BinWriteJob job = Job({{3, 0, 2}, {5, 1}}, {{3, 0, 2}, {5, 1}});
  auto outcome = WriteBins(*storage_, job, options, stop_, done_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->path, "buffered");
  ExpectFiles(job, outcome->result);
}

TEST_F(BinWriterTest, WriteBins_DirectWritesRefusedToSeveralThreads_GoesThroughThePageCache) {
  for (int save = 0; save < 8; ++save) {
    // As a file system that takes the flag and refuses the write; each refusal lets another thread go ahead.
    BinWriterOptions options = {.io_threads = 2, .chunk_bytes = 65536};
    Call([&](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
      if ((fcntl(fd, F_GETFL) & O_DIRECT) == 0) return ::pwrite(fd, bytes, size, offset);
      std::this_thread::yield();
      errno = EINVAL;
      return -1;
    });
    const BinWriteJob job = Job({{3, 0, 2}, {5, 1}}, {{3, 0, 2}, {5, 1}});
    auto outcome = WriteBins(*storage_, job, options, stop_, done_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->path, "buffered");
    ExpectFiles(job, outcome->result);
  }
}

TEST_F(BinWriterTest, WriteBins_DirectWritesRefusedLaterToTwoThreadsAtOnce_DoesBothAgain) {
  BinWriterOptions options = {.io_threads = 2, .chunk_bytes = 65536};
  // The probe succeeds. Then two writes run at the same time, and both are refused.
  std::atomic<int> calls = 0;
  std::atomic<int> refused = 0;
  Call([&](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
    if (calls++ == 0 || refused >= 2) return ::pwrite(fd, bytes, size, offset);
    ++refused;
    while (refused < 2) std::this_thread::yield();
    errno = EINVAL;
    return -1;
  });
  const BinWriteJob job = Job({{3, 0, 1, 2}}, {{3, 0, 1, 2}});
  auto outcome = WriteBins(*storage_, job, options, stop_, done_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ExpectFiles(job, outcome->result);
}

TEST_F(BinWriterTest, WriteBins_DirectoryOfAnotherOrNone_WritesNothing) {
  BinWriteJob job = Job({{3}, {1}}, {{3}, {1}});
  job.nonce = 0x1234;
  auto outcome = WriteBins(*storage_, job, {.io_threads = 2}, stop_, done_);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kRootMismatch)) << outcome.status();
  EXPECT_NE(outcome.status().message().find(root_ + "/" + job.directory), std::string::npos) << outcome.status();
  EXPECT_TRUE(Empty());
  std::filesystem::remove_all(root_ + "/demo");  // as below a root where the right file system is not mounted
  outcome = WriteBins(*storage_, job, {.io_threads = 2}, stop_, done_);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kRootMismatch)) << outcome.status();
  EXPECT_FALSE(std::filesystem::exists(root_ + "/demo")) << "agents make no directories";
}

TEST_F(BinWriterTest, WriteBins_FilesOfOthers_AreNeitherReplacedNorRemoved) {
  for (const std::string ending : {".partial", ".safetensors"}) {
    const BinWriteJob job = Job({{3}, {1}}, {{3}, {1}});
    const std::string name = job.target->file[1].name + ending;
    std::ofstream(root_ + "/" + job.directory + "/" + name) << "another's";
    const auto outcome = WriteBins(*storage_, job, {.io_threads = 2}, stop_, done_);
    EXPECT_FALSE(outcome.ok());
    EXPECT_EQ(MetadataOf(outcome.status())["errno"], std::to_string(EEXIST)) << outcome.status();
    EXPECT_EQ(Files(), std::vector<std::string>{name}) << "its own files are gone, the other's is there";
    EXPECT_EQ(ReadAll(root_ + "/" + job.directory + "/" + name), "another's");
  }
}

TEST_F(BinWriterTest, WriteBins_FullDisk_TellsItAndGivesItsSpaceBack) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can mount";
  const std::string mount_point = std::string(::testing::TempDir()) + "/full-" + RandomToken(6);
  std::filesystem::create_directory(mount_point);
  if (mount("none", mount_point.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "mount: " << std::strerror(errno);
  Open(mount_point);
  struct statvfs before = {}, after = {};
  ASSERT_EQ(statvfs(mount_point.c_str(), &before), 0);
  const auto outcome = WriteBins(*storage_, Job({{3, 1}}, {{3, 1}}), {.io_threads = 2}, stop_, done_);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kNoSpace)) << outcome.status();
  int64_t free = -1;
  ASSERT_TRUE(absl::SimpleAtoi(MetadataOf(outcome.status())["free_bytes"], &free)) << outcome.status();
  EXPECT_LE(free, 4 << 20);
  EXPECT_TRUE(Empty());
  ASSERT_EQ(statvfs(mount_point.c_str(), &after), 0);
  EXPECT_LE(before.f_bfree - after.f_bfree, 8u) << "blocks; the directories may stay";
  storage_.reset();
  umount2(mount_point.c_str(), MNT_DETACH);
  std::filesystem::remove(mount_point);
}

TEST_F(BinWriterTest, WriteBins_PathLeavesTheRoot_IsRefused) {
  BinWriteJob job = Job({{0}}, {{0}});
  job.directory = "../elsewhere";
  EXPECT_TRUE(HasReason(WriteBins(*storage_, job, {}, stop_, done_).status(), Reason::kPathEscape));
  std::filesystem::remove_all(root_ + "/demo");
  std::filesystem::create_directory_symlink("/tmp", root_ + "/demo");
  job.directory = "demo/000000000007/0001";
  EXPECT_TRUE(HasReason(WriteBins(*storage_, job, {}, stop_, done_).status(), Reason::kPathEscape));
}

TEST(ItemChecksummerTest, Checksums_RandomItemsAndChunks_EqualThoseOfTheWhole) {
  std::mt19937 random(17);
  for (int round = 0; round < 40; ++round) {
    std::vector<uint64_t> begins = {0};
    for (auto i = random() % 12; i > 0; --i) {
      begins.push_back(begins.back() + (random() % 3 == 0 ? 0 : random() % (3 << 20)));
    }
    const std::string data = Pattern("x", begins.back());
    const ItemChecksummer checksummer(begins);
    std::vector<std::vector<ItemChecksummer::Fragment>> chunks;
    const uint64_t chunk = 4096 * (1 + random() % 600);
    const std::string padded = data + std::string(4096, 'z');
    for (uint64_t at = 0; at < data.size(); at += chunk) {
      chunks.push_back(checksummer.Touch(at, padded.data() + at, std::min<uint64_t>(chunk, padded.size() - at)));
    }
    const auto items = checksummer.Combine(chunks);
    ASSERT_EQ(items.size(), begins.size() - 1);
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(items[i].crc32c, Crc32c(data.data() + begins[i], begins[i + 1] - begins[i]));
      ASSERT_EQ(items[i].blocks.size(), ChecksumBlockCount(begins[i + 1] - begins[i]));
      for (size_t b = 0; b < items[i].blocks.size(); ++b) {
        const uint64_t begin = begins[i] + b * kChecksumBlockBytes;
        EXPECT_EQ(items[i].blocks[b],
                  Crc32c(data.data() + begin, std::min(kChecksumBlockBytes, begins[i + 1] - begin)));
      }
    }
  }
}

}  // namespace
}  // namespace cairn
