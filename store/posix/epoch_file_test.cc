#include "store/posix/epoch_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "common/file/testing/failing_calls.h"
#include "common/file/testing/watched_pread.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

class EpochFileTest : public testing::Test {
 protected:
  EpochFileTest() {
    root_ = testing::TempDir() + "/epoch-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
  }
  ~EpochFileTest() override { std::filesystem::remove_all(root_); }

  absl::StatusOr<std::unique_ptr<RootLock>> Acquire() { return storage_->TakeRoot(); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(EpochFileTest, Acquire_EachLeadership_CountsUp) {
  for (uint64_t epoch = 1; epoch <= 12; ++epoch) {
    const auto file = Acquire();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->epoch(), epoch);
  }
}

TEST_F(EpochFileTest, Acquire_HeldLock_NamesItsHolder) {
  const auto first = Acquire();
  ASSERT_TRUE(first.ok());
  const auto second = Acquire();
  EXPECT_TRUE(HasReason(second.status(), Reason::kRootInUse)) << second.status();
  EXPECT_NE(second.status().message().find("process " + std::to_string(getpid())), std::string::npos);
  EXPECT_NE(MetadataOf(second.status())["holder"].find("(epoch 1)"), std::string::npos);
}

TEST_F(EpochFileTest, HolderOf_ACoordinatorThatHasToldItsAddress_IsToldWithIt) {
  EXPECT_FALSE(storage_->HolderOfRoot()->has_value()) << "there is no lock yet";
  {
    const auto file = Acquire();
    ASSERT_TRUE(file.ok());
    const auto starting = storage_->HolderOfRoot();
    ASSERT_TRUE(starting.ok() && starting->has_value()) << starting.status();
    EXPECT_EQ((*starting)->address, "");
    ASSERT_TRUE((*file)->TellAddress("127.0.0.1:4711").ok());
    const auto serving = storage_->HolderOfRoot();
    EXPECT_EQ((*serving)->address, "127.0.0.1:4711");
    EXPECT_NE((*serving)->text.find("process " + std::to_string(getpid())), std::string::npos);
    EXPECT_NE((*serving)->host, "");
    const absl::Status refused = Acquire().status();
    EXPECT_EQ(MetadataOf(refused)["address"], "127.0.0.1:4711");
    EXPECT_NE(refused.message().find("(epoch 1) at 127.0.0.1:4711"), std::string::npos) << refused;
    EXPECT_TRUE((*file)->Check().ok());
  }
  EXPECT_FALSE(storage_->HolderOfRoot()->has_value()) << "it has ended";
  const auto next = Acquire();
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*storage_->HolderOfRoot())->address, "") << "the address is that of an earlier epoch";
}

TEST_F(EpochFileTest, Acquire_WithinAnotherRoot_WritesNothing) {
  ASSERT_TRUE(Acquire().ok());
  const auto inner = PosixStorage::Open(root_ + "/inner", true);
  ASSERT_TRUE(inner.ok()) << inner.status();
  const auto refused = (*inner)->TakeRoot();
  EXPECT_TRUE(HasReason(refused.status(), Reason::kBadRequest)) << refused.status();
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/inner"));
}

TEST_F(EpochFileTest, Acquire_DamagedFile_IsNotTakenForANewRoot) {
  ASSERT_TRUE(Acquire().ok());
  std::ofstream(root_ + "/.cairn/epoch") << "rubbish";
  EXPECT_TRUE(HasReason(Acquire().status(), Reason::kFileTruncated));
  std::ofstream(root_ + "/.cairn/epoch") << "epoch 41";
  EXPECT_EQ((*Acquire())->epoch(), 42u);
}

TEST_F(EpochFileTest, Acquire_APipeInItsPlace_IsRefusedAtOnce) {
  std::filesystem::create_directory(root_ + "/.cairn");
  ASSERT_EQ(mkfifo((root_ + "/.cairn/epoch").c_str(), 0600), 0);
  const auto taken = Acquire();
  EXPECT_TRUE(HasReason(taken.status(), Reason::kStorageError)) << taken.status();
  EXPECT_NE(taken.status().message().find("/.cairn/epoch is no regular file"), std::string::npos) << taken.status();
  EXPECT_FALSE(storage_->HolderOfRoot().value_or(std::nullopt).has_value());
}

TEST_F(EpochFileTest, Check_RivalThatTheLockDidNotKeepOut_IsFound) {
  const auto first = Acquire();
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*first)->Check().ok());
  // Where locks are local to a machine another one gets it too: here the lock of another file.
  const std::string path = root_ + "/.cairn/epoch";
  std::filesystem::copy(path, path + ".2");
  std::filesystem::rename(path + ".2", path);
  EXPECT_TRUE((*first)->Check().ok()) << "the record counts, not the file";
  const auto rival = Acquire();
  ASSERT_TRUE(rival.ok()) << rival.status();
  EXPECT_TRUE((*rival)->Check().ok());
  const absl::Status lost = (*first)->Check();
  EXPECT_TRUE(HasReason(lost, Reason::kRootInUse)) << lost;
  EXPECT_NE(lost.message().find("(epoch 2)"), std::string::npos) << lost;
}

TEST_F(EpochFileTest, Check_TwoTookOneEpochAtOnce_TellsThemApart) {
  const auto first = Acquire();
  ASSERT_TRUE(first.ok());
  // The rival read the file before the first one wrote: same epoch, and here even the same process.
  std::filesystem::remove(root_ + "/.cairn/epoch");
  EXPECT_TRUE(HasReason((*first)->Check(), Reason::kRootInUse)) << "no record is not ours";
  const auto rival = Acquire();
  ASSERT_TRUE(rival.ok());
  EXPECT_EQ((*rival)->epoch(), (*first)->epoch());
  EXPECT_TRUE(HasReason((*first)->Check(), Reason::kRootInUse));
  EXPECT_TRUE((*rival)->Check().ok());
}

TEST_F(EpochFileTest, Acquire_BitOfTheNumberFlipsWhileRead_BeginsNoEarlierEpoch) {
  for (int epoch = 1; epoch <= 9; ++epoch) ASSERT_TRUE(Acquire().ok());
  watched_pread.spoiled_offset = sizeof("epoch ") - 1;  // "epoch 9" may then read as "epoch 8", or as "epoch 1"
  for (const int first : {1, 2, 3, 4}) {
    // The bit that flips is the one of the number that counts down.
    watched_pread.to_spoil = first;
    while (watched_pread.to_spoil > 0) {
      const auto file = Acquire();
      if (file.ok()) {
        EXPECT_GT((*file)->epoch(), 9u);
      } else {
        EXPECT_TRUE(HasReason(file.status(), Reason::kStorageError)) << file.status();
      }
    }
  }
  watched_pread.spoiled_offset = -1;
  EXPECT_GE((*Acquire())->epoch(), 10u);
}

TEST_F(EpochFileTest, Check_BitsFlipWhileRead_EndsNoCoordinator) {
  const auto file = Acquire();
  ASSERT_TRUE(file.ok());
  watched_pread.to_spoil = 1;
  EXPECT_TRUE((*file)->Check().ok()) << "the second reading is its own record";
  EXPECT_EQ(watched_pread.to_spoil, 0);
  watched_pread.to_spoil = 2;
  EXPECT_TRUE(HasReason((*file)->Check(), Reason::kStorageError)) << "two different readings prove nothing";
  EXPECT_EQ(watched_pread.to_spoil, 0);
  EXPECT_TRUE((*file)->Check().ok());
}

// As on a network file system whose list of names is older than its files: one look finds no record.
TEST_F(EpochFileTest, Check_TheRecordIsMissedOnce_IsLookedForAgain) {
  const auto file = Acquire();
  ASSERT_TRUE(file.ok());
  failing_calls.missing_file = "epoch";
  failing_calls.opens_that_miss_it = 1;
  const absl::Status missed_once = (*file)->Check();
  EXPECT_EQ(failing_calls.opens_that_miss_it, 0);
  EXPECT_FALSE(HasReason(missed_once, Reason::kRootInUse)) << "one look proves nothing: " << missed_once;
  EXPECT_TRUE(missed_once.ok()) << missed_once;
  // Each look opens the file with direct I/O, and then without, until one works.
  failing_calls.opens_that_miss_it = 1000;
  EXPECT_TRUE(HasReason((*file)->Check(), Reason::kRootInUse)) << "it is gone";
  failing_calls.opens_that_miss_it = 0;
  EXPECT_TRUE((*file)->Check().ok());
}

TEST_F(EpochFileTest, RaiseFormat_TheRootHasDeletions_IsRefusedByThoseThatKnowNone) {
  const std::string path = root_ + "/.cairn/epoch";
  const auto first_word = [&] {
    std::string word;
    std::ifstream(path) >> word;
    return word;
  };
  {
    auto file = Acquire();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(first_word(), "epoch") << "an earlier version may still serve the root";
    ASSERT_TRUE((*file)->RaiseFormat().ok());
    EXPECT_NE(first_word(), "epoch") << "earlier versions take no other word";
    EXPECT_EQ(std::filesystem::file_size(path), 256u);
    EXPECT_TRUE((*file)->Check().ok());
    EXPECT_TRUE((*file)->RaiseFormat().ok()) << "it may be asked for again";
    EXPECT_TRUE((*file)->Check().ok());
  }
  const auto next = Acquire();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ((*next)->epoch(), 2u);
  EXPECT_NE(first_word(), "epoch") << "the root keeps its deletions";
}

TEST_F(EpochFileTest, RaiseFormat_StorageFailsBehindAnyPartOfTheRecord_StaysTheRootsOwner) {
  for (const int written : {0, 1, 5, 6, 7, 8, 40, 255, 256}) {
    auto file = Acquire();
    ASSERT_TRUE(file.ok()) << file.status();
    failing_calls.bytes_of_next_pwrite = written;
    EXPECT_TRUE(HasReason((*file)->RaiseFormat(), Reason::kStorageError)) << written;
    EXPECT_TRUE((*file)->Check().ok()) << written << ": " << (*file)->Check();
    EXPECT_TRUE((*file)->RaiseFormat().ok()) << written;
    EXPECT_TRUE((*file)->Check().ok()) << written;
    std::filesystem::remove(root_ + "/.cairn/epoch");
  }
}

TEST_F(EpochFileTest, RaiseFormat_RootIsAnothers_IsRefused) {
  auto file = Acquire();
  ASSERT_TRUE(file.ok());
  std::filesystem::remove(root_ + "/.cairn/epoch");
  ASSERT_TRUE(Acquire().ok());
  EXPECT_TRUE(HasReason((*file)->RaiseFormat(), Reason::kRootInUse));
}

TEST_F(EpochFileTest, Acquire_FormatOfALaterVersion_IsRefused) {
  ASSERT_TRUE(Acquire().ok());
  std::ofstream(root_ + "/.cairn/epoch") << "epoch/3 41 1 host word";
  EXPECT_TRUE(HasReason(Acquire().status(), Reason::kFormatTooNew));
}

}  // namespace
}  // namespace cairn
