#include "common/storage/posix.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "common/rpc/reason.h"

namespace cairn {
namespace {

class PosixStorageTest : public testing::Test {
 protected:
  PosixStorageTest() {
    std::string pattern = testing::TempDir() + "/posix_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(directory_ + "/root", true);
  }
  ~PosixStorageTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(PosixStorageTest, PutIfAbsent_ManyWriters_OneWins) {
  ASSERT_TRUE(storage_->MakeDirectories("a/b").ok());
  std::vector<int> created(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto put = storage_->PutIfAbsent("a/b/verdict", std::string(1000, static_cast<char>('0' + i)));
      ASSERT_TRUE(put.ok()) << put.status();
      created[static_cast<size_t>(i)] = *put == PosixStorage::Put::kCreated;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::count(created.begin(), created.end(), 1), 1);
  const std::string content = *storage_->ReadFile("a/b/verdict", 5000);
  const auto winner = std::find(created.begin(), created.end(), 1) - created.begin();
  EXPECT_EQ(content, std::string(1000, static_cast<char>('0' + winner)));
  EXPECT_EQ(storage_->List("a/b")->size(), 1u) << "temporary files are left";
}

TEST_F(PosixStorageTest, PathsThatLeaveTheRoot_AreRefused) {
  ASSERT_TRUE(storage_->MakeDirectories("in").ok());
  std::filesystem::create_directory(directory_ + "/outside");
  std::filesystem::create_symlink(directory_ + "/outside", directory_ + "/root/link");
  std::filesystem::create_symlink(directory_ + "/outside", directory_ + "/root/in/leaf");
  for (const char* path : {"../outside/x", "/etc/passwd", "in/../../outside/x", "in//x", "./x", "link/x", ""}) {
    EXPECT_TRUE(HasReason(storage_->PutIfAbsent(path, "x").status(), Reason::kPathEscape)) << path;
  }
  EXPECT_FALSE(storage_->OpenFile("in/leaf", O_RDONLY).ok());
  EXPECT_TRUE(HasReason(storage_->MakeDirectories("link/sub"), Reason::kPathEscape));
  ASSERT_TRUE(storage_->RemoveAll("in").ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/outside")) << "a link was followed";
}

TEST_F(PosixStorageTest, Rename_DoesNotReplace) {
  ASSERT_TRUE(storage_->PutIfAbsent("a", "1").ok());
  ASSERT_TRUE(storage_->PutIfAbsent("b", "2").ok());
  EXPECT_FALSE(storage_->Rename("a", "b").ok());
  EXPECT_EQ(*storage_->ReadFile("b", 10), "2");
  EXPECT_TRUE(storage_->Rename("a", "c").ok());
  EXPECT_FALSE(storage_->Exists("a"));
  EXPECT_EQ(*storage_->ReadFile("c", 10), "1");
}

TEST_F(PosixStorageTest, RemoveAll_TakesTreesAndAbsentOnes) {
  ASSERT_TRUE(storage_->MakeDirectories("t/u/v").ok());
  ASSERT_TRUE(storage_->PutIfAbsent("t/u/f", "1").ok());
  EXPECT_TRUE(storage_->RemoveAll("t").ok());
  EXPECT_TRUE(storage_->List("")->empty());
  EXPECT_TRUE(storage_->RemoveAll("t").ok());
  EXPECT_TRUE(storage_->RemoveAll("t/u/v").ok());
}

TEST_F(PosixStorageTest, Errors_HaveReasons) {
  EXPECT_TRUE(HasReason(storage_->ReadFile("none", 10).status(), Reason::kFileMissing));
  ASSERT_TRUE(storage_->PutIfAbsent("big", std::string(100, 'x')).ok());
  EXPECT_TRUE(HasReason(storage_->ReadFile("big", 99).status(), Reason::kMessageTooLarge));
  EXPECT_TRUE(HasReason(PosixStorage::Open(directory_ + "/no/where", true).status(), Reason::kRootMissing));
  EXPECT_TRUE(HasReason(PosixStorage::Open("/dev/null", false).status(), Reason::kRootMissing));
  EXPECT_FALSE(storage_->ReadFile("", 10).ok());
}

TEST_F(PosixStorageTest, ProbeAtomicCreate_LeavesNothing) {
  EXPECT_TRUE(storage_->ProbeAtomicCreate().ok());
  EXPECT_TRUE(storage_->List(".cairn")->empty());
}

}  // namespace
}  // namespace cairn
