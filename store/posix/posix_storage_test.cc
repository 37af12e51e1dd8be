#include "store/posix/posix_storage.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"

namespace {

// The call of linkat that fails with EIO, counted from 1; 0: none does.
int failing_link = 0;

}  // namespace

// This comes before the C library's.
extern "C" int linkat(int from, const char* name, int to, const char* other, int flags) {
  static const auto real =
      reinterpret_cast<int (*)(int, const char*, int, const char*, int)>(dlsym(RTLD_NEXT, "linkat"));
  if (failing_link > 0 && --failing_link == 0) {
    errno = EIO;
    return -1;
  }
  return real(from, name, to, other, flags);
}

namespace cairn {
namespace {

class PosixStorageTest : public testing::Test {
 protected:
  PosixStorageTest() {
    root_ = testing::TempDir() + "/storage-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
  }
  ~PosixStorageTest() override { std::filesystem::remove_all(root_); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(PosixStorageTest, ProbeAtomicCreate_AFileSystemThatCanDoIt_LeavesNothing) {
  EXPECT_TRUE(storage_->ProbeAtomicCreate().ok());
  EXPECT_TRUE(storage_->List(".cairn")->empty());
}

TEST_F(PosixStorageTest, ProbeAtomicCreate_ACallFails_IsNoWordOnTheFileSystem) {
  failing_link = 2;
  const absl::Status status = storage_->ProbeAtomicCreate();
  EXPECT_TRUE(HasReason(status, Reason::kStorageError)) << status;
  EXPECT_TRUE(storage_->ProbeAtomicCreate().ok());
}

TEST_F(PosixStorageTest, Read_FileChanges_HasAnotherIdentity) {
  ASSERT_TRUE(storage_->PutIfAbsent("a", "first").ok());
  const auto first = storage_->Open("a");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*storage_->Open("a"))->identity(), (*first)->identity());
  ASSERT_TRUE(storage_->PutReplacing("a", "other").ok());
  EXPECT_NE((*storage_->Open("a"))->identity(), (*first)->identity());
  EXPECT_EQ(*ReadAll(**first, 10), "first") << "it stays the file that was opened";
  for (const Cache cache : {Cache::kUse, Cache::kSpare, Cache::kBypass}) {
    EXPECT_EQ(*storage_->Read("a", 10, cache), "other");
    EXPECT_TRUE(HasReason(storage_->Read("a", 4, cache).status(), Reason::kMessageTooLarge));
    EXPECT_TRUE(HasReason(storage_->Read("none", 4, cache).status(), Reason::kFileMissing));
  }
}

TEST_F(PosixStorageTest, RemoveUnfinished_AWriterHasGone_TakesWhatItLeft) {
  ASSERT_TRUE(storage_->MakeDirectories("d").ok());
  const AlignedBuffer block(kIoAlignment);
  ASSERT_TRUE(storage_->Create("d/rank00000-bin00.safetensors", kIoAlignment, 100).ok());
  const auto finished = storage_->Create("d/rank00001-bin00.safetensors", kIoAlignment, 100);
  ASSERT_TRUE(finished.ok()) << finished.status();
  ASSERT_TRUE((*finished)->Write(kIoAlignment, block.data(), kIoAlignment).ok());
  ASSERT_TRUE((*finished)->Finish(std::string(kIoAlignment, 'h')).ok());
  std::ofstream(root_ + "/d/notes.partial") << "a user's";
  const auto entries = storage_->List("d");
  ASSERT_EQ(entries->size(), 3u);
  for (const Storage::Entry& entry : *entries) {
    EXPECT_EQ(entry.unfinished, entry.name.starts_with("rank00000")) << entry.name;
  }
  EXPECT_TRUE(storage_->RemoveUnfinished({"d"}, absl::InfinitePast()).ok());
  EXPECT_EQ(storage_->List("d")->size(), 3u) << "it may be written still";
  EXPECT_TRUE(storage_->RemoveUnfinished({"d"}, absl::InfiniteFuture()).ok());
  EXPECT_EQ(storage_->List("d")->size(), 2u);
  EXPECT_EQ(*storage_->SizesOf("d", {"rank00001-bin00.safetensors"}),
            (std::vector<std::optional<uint64_t>>{kIoAlignment + 100}));
}

TEST_F(PosixStorageTest, Create_TheNameIsBeingWritten_LeavesItAlone) {
  const auto first = storage_->Create("rank00000-bin00.safetensors", kIoAlignment, 100);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(storage_->Create("rank00000-bin00.safetensors", kIoAlignment, 100).ok());
  EXPECT_EQ(storage_->List("")->size(), 1u);
  EXPECT_TRUE((*first)->Remove().ok());
  EXPECT_TRUE(storage_->List("")->empty());
}

}  // namespace
}  // namespace cairn
