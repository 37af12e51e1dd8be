#include "cli/views/jobs_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

v1::JobSummary JobWith(uint32_t agents, uint32_t trainers) {
  v1::JobSummary job;
  job.set_job("demo");
  job.set_world_size(4);
  job.set_agents(agents);
  job.set_trainers(trainers);
  return job;
}

TEST(JobsViewTest, StateOf_WhatIsThere_SaysWhatTheJobDoes) {
  EXPECT_EQ(StateOf(JobWith(0, 0)), "stored");
  EXPECT_EQ(StateOf(JobWith(3, 3)), "waiting");
  EXPECT_EQ(StateOf(JobWith(4, 0)), "waiting");
  EXPECT_EQ(StateOf(JobWith(4, 4)), "training");
  v1::JobSummary stopped = JobWith(4, 4);
  stopped.set_trainers_halted(1);
  EXPECT_EQ(StateOf(stopped), "stopped");
  v1::JobSummary loading = JobWith(4, 4);
  loading.set_loads_running(1);
  EXPECT_EQ(StateOf(loading), "loading");
  loading.set_saves_running(1);
  EXPECT_EQ(StateOf(loading), "saving");
}

TEST(JobsViewTest, JobSummaryToJson_AJobThatSavedNothing_HasNullForItsStep) {
  const auto json = JobSummaryToJson(JobWith(4, 4));
  EXPECT_EQ(json["job"], "demo");
  EXPECT_EQ(json["world_size"], 4);
  EXPECT_TRUE(json["last_committed_step"].is_null());
  EXPECT_TRUE(json["last_commit_time"].is_null());
}

TEST(JobsViewTest, JobSummaryToJson_StorageRefusesRemovals_CountsThem) {
  v1::JobSummary job = JobWith(4, 4);
  job.set_removals_refused(3);
  EXPECT_EQ(JobSummaryToJson(job)["removals_refused"], 3);
}

TEST(JobsViewTest, Views_StorageFailsToTellOfAStep_SaySo) {
  v1::JobSummary job = JobWith(4, 4);
  EXPECT_TRUE(JobSummaryToJson(job)["error"].is_null());
  *job.mutable_error() = StatusToProto(MakeError(Reason::kStorageError, "demo@20 cannot be read: Input/output error"));
  EXPECT_EQ(JobSummaryToJson(job)["error"]["reason"], "STORAGE_ERROR");
  EXPECT_THAT(JobsTable({job}, absl::UnixEpoch()).ToString(), HasSubstr("demo@20 cannot be read"));
}

TEST(JobsViewTest, JobsTable_ACommit_HasItsAge) {
  const absl::Time commit = absl::FromUnixSeconds(1'700'000'000);
  v1::JobSummary job = JobWith(4, 4);
  job.set_last_committed_step(1200);
  SetTimestamp(commit, *job.mutable_last_commit_time());
  const auto shown = [&](absl::Duration age) { return JobsTable({job}, commit + age).ToString(); };
  EXPECT_THAT(shown(absl::Seconds(35)), HasSubstr("35s"));
  EXPECT_THAT(shown(absl::Minutes(59)), HasSubstr("59m"));
  EXPECT_THAT(shown(absl::Hours(47)), HasSubstr("1d"));
  EXPECT_THAT(shown(-absl::Hours(1)), HasSubstr("0s"));  // another machine's clock
  EXPECT_THAT(shown(absl::Hours(5)), HasSubstr("1200"));
}

}  // namespace
}  // namespace cairn::cli
