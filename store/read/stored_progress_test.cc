#include "store/read/stored_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoredProgressTest : public ::testing::Test {
 protected:
  StoredProgressTest()
      : root_(std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    storage_ = *PosixStorage::Open(root_, true);
  }

  void Put(const std::string& job, int64_t step, const std::string& outcome) {
    ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory(job, step, 1)).ok());
    ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath(job, step, 1), outcome).ok());
  }
  void Commit(const std::string& job, int64_t step) {
    Manifest manifest;
    manifest.job = job;
    manifest.step = step;
    manifest.attempt = 1;
    manifest.world_size = 1;
    manifest.layout_digests = {std::string(32, 'd')};
    manifest.rank_layout = {0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0};
    Put(job, step, EncodeOutcome(manifest));
  }
  void Abort(const std::string& job, int64_t step) {
    Put(job, step,
        EncodeOutcome(AbortRecord{
            .job = job, .step = step, .attempt = 1, .request_id = "r", .reason = "RANK_LATE", .message = "m"}));
  }
  std::string Note(const std::string& job) { return ProgressNote(LookForProgress(*storage_, job), job, "/ckpt"); }

  const std::filesystem::path root_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(StoredProgressTest, Note_AnEmptyRoot_SaysNothing) { EXPECT_EQ(Note("demo"), ""); }

TEST_F(StoredProgressTest, Note_TheJobHasACheckpointBelowAbortedSteps_SaysNothing) {
  Commit("demo", 1);
  for (int64_t step = 2; step < 40; ++step) Abort("demo", step);
  Commit("llm", 7);
  EXPECT_EQ(Note("demo"), "");
}

TEST_F(StoredProgressTest, Note_TheJobsOnlyCheckpointIsDamaged_SaysNothing) {
  Put("demo", 1, "no outcome");
  Commit("llm", 7);
  EXPECT_EQ(Note("demo"), "");
}

TEST_F(StoredProgressTest, Note_OnlyOtherJobsHaveCheckpoints_NamesThem) {
  Abort("demo", 1);
  Commit("llm", 7);
  Commit("team/x", 7);
  Abort("failed", 7);
  std::filesystem::create_directories(root_ / "rules");
  ASSERT_TRUE(storage_->PutIfAbsent("rules/.retention", "x").ok());
  EXPECT_EQ(Note("demo"),
            "no checkpoint of job demo below /ckpt, so it starts from the beginning; jobs there: llm, team/x");
}

TEST_F(StoredProgressTest, LookForProgress_ManyJobs_NamesFour) {
  for (int i = 0; i < 9; ++i) Commit(absl::StrCat("job", i), 1);
  const auto found = LookForProgress(*storage_, "demo");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->other_jobs, ElementsAre("job0", "job1", "job2", "job3"));
  EXPECT_TRUE(found->more_jobs);
  EXPECT_THAT(Note("demo"), HasSubstr("job3 and others (`cairn jobs --root /ckpt`)"));
}

TEST_F(StoredProgressTest, Note_StorageCannotBeRead_SaysThat) {
  const absl::Status broken = MakeError(Reason::kStorageError, "list /ckpt: EIO");
  EXPECT_THAT(ProgressNote(broken, "demo", "/ckpt"), HasSubstr("could not be seen: list /ckpt: EIO"));
}

}  // namespace
}  // namespace cairn
