#include "store/read/stored_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "common/file/testing/failing_calls.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StoredJobsTest : public ::testing::Test {
 protected:
  StoredJobsTest()
      : root_(std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    storage_ = *PosixStorage::Open(root_, false);
  }
  void Make(const std::string& path) { std::filesystem::create_directories(root_ / path); }

  const std::filesystem::path root_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(StoredJobsTest, FindJobs_AnEmptyRoot_HasNone) {
  const auto jobs = FindJobs(*storage_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, IsEmpty());
}

TEST_F(StoredJobsTest, FindJobs_JobsWithinEachOther_AreAllFound) {
  Make("team/large/000000000040/0001");
  Make("team/large/small/000000000001");
  Make("demo/000000000010");
  Make("team/000000000001");
  const auto jobs = FindJobs(*storage_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, ElementsAre("demo", "team", "team/large", "team/large/small"));
}

TEST_F(StoredJobsTest, FindJobs_JobsOfAnInnerRoot_AreNotOfThisOne) {
  Make("demo/000000000010");
  Make("inner/demo/000000000010");
  Make("inner/.cairn");
  std::ofstream(root_ / "inner/.cairn/epoch") << "epoch 1";
  EXPECT_THAT(*FindJobs(*storage_), ElementsAre("demo"));
}

TEST_F(StoredJobsTest, FindJobs_WhatIsNoJob_IsPassedOver) {
  Make(".cairn/000000000010");
  Make("empty");
  Make("Upper/000000000010");
  Make("files/12345");
  std::ofstream(root_ / "note.txt") << "x";
  Make("rules");
  std::ofstream(root_ / "rules/.retention") << "x";
  const auto jobs = FindJobs(*storage_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, ElementsAre("rules"));
}

TEST_F(StoredJobsTest, FindJobs_ALinkToADirectory_IsNotFollowed) {
  Make("demo/000000000010");
  std::filesystem::create_directory_symlink(root_, root_ / "loop");
  const auto jobs = FindJobs(*storage_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, ElementsAre("demo"));
}

TEST_F(StoredJobsTest, LookForJobs_ADirectoryCannotBeListed_FindsTheOthersAndNamesIt) {
  Make("demo/000000000010");
  Make("other/000000000010");
  failing_calls.missing_file = "other";
  failing_calls.open_error = EIO;
  failing_calls.opens_that_miss_it = 1;
  const auto found = LookForJobs(*storage_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->names, ElementsAre("demo"));
  ASSERT_EQ(found->unlisted.size(), 1u);
  EXPECT_TRUE(HasReason(found->unlisted.at("other"), Reason::kStorageError)) << found->unlisted.at("other");
  failing_calls.opens_that_miss_it = 1;
  EXPECT_TRUE(HasReason(FindJobs(*storage_).status(), Reason::kStorageError)) << "who needs all of them is told";
}

TEST(DescribeStoredTest, StorageFailsToTellOfAStep_SaysSoAndKeepsWhatTheCoordinatorKnows) {
  StepRecord committed;
  committed.step = 10;
  StoredAttempt& manifest = committed.attempts.emplace_back();
  manifest.attempt = 1;
  manifest.committed = true;
  StepRecord unread;
  unread.step = 20;
  unread.unlisted = MakeError(Reason::kStorageError, "list 20: Input/output error");
  v1::JobSummary stored;
  stored.set_job("demo");
  DescribeStored({committed, unread}, stored);
  EXPECT_EQ(stored.last_committed_step(), 10) << "nobody knows better";
  EXPECT_NE(stored.error().message().find("demo@20 cannot be read"), std::string::npos) << stored.ShortDebugString();
  v1::JobSummary served;
  served.set_job("demo");
  served.set_last_committed_step(20);
  DescribeStored({committed, unread}, served);
  EXPECT_EQ(served.last_committed_step(), 20);
  EXPECT_TRUE(served.has_error());
  DescribeStored({committed}, served);
  EXPECT_EQ(served.last_committed_step(), 10) << "what stands in storage counts where it can be read";
}

TEST_F(StoredJobsTest, FindJobs_TooManyDirectories_IsRefused) {
  for (int i = 0; i < 10'001; ++i) Make("d" + std::to_string(i));
  EXPECT_TRUE(HasReason(FindJobs(*storage_).status(), Reason::kOverloaded));
}

}  // namespace
}  // namespace cairn
