// The thin agents against a real coordinator, small: a broken generator would measure nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/control_plane/fleet.h"
#include "benchmarks/control_plane/server_under_test.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// Bazel runs tests where their data lie.
std::unique_ptr<ServerUnderTest> StartCoordinator(absl::Duration lease = absl::Seconds(10)) {
  const char* own = std::getenv("TEST_TMPDIR");
  auto server =
      ServerUnderTest::StartCoordinator("coordinator/cairn-coordinator", own == nullptr ? "/tmp" : own, lease);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

FleetOptions SmallFleet(const ServerUnderTest& server) {
  FleetOptions options;
  options.address = server.address();
  options.root = server.root();
  options.ranks = 16;
  options.model = {12, 16};
  options.connections = 2;
  options.start_spread = options.call_spread = absl::ZeroDuration();
  options.stage_time = options.write_time = options.read_time = absl::Milliseconds(1);
  return options;
}

TEST(FleetTest, Save_TwiceUnchanged_CommitsWithoutUploadingAgain) {
  const auto server = StartCoordinator();
  ASSERT_NE(server, nullptr);
  EventLoop loop;
  const auto fleet = Fleet::Make(loop, SmallFleet(*server));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  (*fleet)->Start();
  (*fleet)->Save(1);
  EXPECT_TRUE((*fleet)->WaitOutcome(kPatience)) << (*fleet)->error();
  EXPECT_EQ((*fleet)->counters().layouts_uploaded, 16u);
  (*fleet)->StartCounting();
  (*fleet)->Save(2);
  EXPECT_TRUE((*fleet)->WaitOutcome(kPatience)) << (*fleet)->error();
  EXPECT_EQ((*fleet)->counters().layouts_uploaded, 0u);
  EXPECT_EQ((*fleet)->counters().second_registrations, 0u);
  EXPECT_TRUE((*fleet)->counters().errors.empty());
}

// Bytes are counts, and not times: only how many heartbeats come within a save depends on the machine.
TEST(FleetTest, Save_Unchanged_TakesLessThanAKilobyteOfEachRank) {
  constexpr uint64_t kCalls = 5;  // of a save in which no heartbeat comes
  constexpr uint64_t kHeartbeatBytes = 150;
  const auto server = StartCoordinator();
  ASSERT_NE(server, nullptr);
  EventLoop loop;
  FleetOptions options = SmallFleet(*server);
  options.model = {100, 16};
  const auto fleet = Fleet::Make(loop, options);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  (*fleet)->Start();
  for (const int64_t step : {1, 2, 3}) {
    (*fleet)->StartCounting();
    (*fleet)->ForgetMilestones();
    (*fleet)->Save(step);
    ASSERT_TRUE((*fleet)->WaitOutcome(kPatience)) << (*fleet)->error();
  }
  loop.RunFor(absl::Milliseconds(500));  // each says that it has heard the outcome
  const Traffic& all = (*fleet)->counters().synchronizations;
  const auto ranks = static_cast<uint64_t>((*fleet)->size());
  const uint64_t heartbeats = all.calls > kCalls * ranks ? all.calls - kCalls * ranks : 0;
  EXPECT_LT(all.up_bytes + all.down_bytes, 1000 * ranks + kHeartbeatBytes * heartbeats)
      << all.calls << " calls, " << all.up_bytes << " bytes up, " << all.down_bytes << " down";
  EXPECT_EQ((*fleet)->counters().parts.calls, 0u);
}

TEST(FleetTest, Load_OtherWorldSize_Ends) {
  const auto server = StartCoordinator();
  ASSERT_NE(server, nullptr);
  EventLoop loop;
  auto fleet = Fleet::Make(loop, SmallFleet(*server));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  (*fleet)->Start();
  (*fleet)->Save(1);
  ASSERT_TRUE((*fleet)->WaitOutcome(kPatience)) << (*fleet)->error();
  ASSERT_TRUE((*fleet)->Leave(kPatience));
  (*fleet).reset();
  FleetOptions options = SmallFleet(*server);
  options.ranks = 11;
  fleet = Fleet::Make(loop, options);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  (*fleet)->Start();
  (*fleet)->Load(1, 1);
  EXPECT_TRUE((*fleet)->WaitFor(Milestone::kLoaded, 11, kPatience)) << (*fleet)->error();
}

TEST(FleetTest, Save_CoordinatorKilledInside_Commits) {
  const auto server = StartCoordinator();
  ASSERT_NE(server, nullptr);
  EventLoop loop;
  const auto fleet = Fleet::Make(loop, SmallFleet(*server));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  (*fleet)->Start();
  (*fleet)->Save(1);
  ASSERT_TRUE((*fleet)->WaitFor(Milestone::kWriteOrder, 1, kPatience));
  ASSERT_TRUE(server->Restart().ok());
  EXPECT_TRUE((*fleet)->WaitOutcome(kPatience)) << (*fleet)->error();
  EXPECT_EQ((*fleet)->counters().second_registrations, 16u);
}

// More jobs than the coordinator keeps plans for.
TEST(FleetTest, ManyJobs_SaveInTurnAndLoadAtOnce_NoneLosesItsPlan) {
  constexpr int kJobs = 20;
  const auto server = StartCoordinator();
  ASSERT_NE(server, nullptr);
  EventLoop loop;
  std::vector<std::unique_ptr<Fleet>> jobs;
  for (int i = 0; i < kJobs; ++i) {
    FleetOptions options = SmallFleet(*server);
    options.job = absl::StrCat("job", i);
    options.ranks = 2 + i;
    options.connections = 1;
    auto fleet = Fleet::Make(loop, options);
    ASSERT_TRUE(fleet.ok()) << fleet.status();
    jobs.push_back(*std::move(fleet));
    jobs.back()->Start();
  }
  for (const int64_t step : {1, 2}) {
    for (const auto& job : jobs) {
      job->ForgetMilestones();
      job->Save(step);
      ASSERT_TRUE(job->WaitOutcome(kPatience)) << job->error();
    }
  }
  for (const auto& job : jobs) job->Load(1, 2);
  for (const auto& job : jobs) {
    loop.RunUntil([&] { return job->times(Milestone::kLoaded).ranks == job->size(); }, kPatience);
    EXPECT_EQ(job->times(Milestone::kLoaded).ranks, job->size()) << job->error();
    EXPECT_TRUE(job->counters().errors.empty());
  }
}

// The control: what does not commit is not counted as a commit.
TEST(FleetTest, Save_ARankDiesBeforeItWrites_IsAborted) {
  const auto server = StartCoordinator(absl::Seconds(2));
  ASSERT_NE(server, nullptr);
  EventLoop loop;
  FleetOptions options = SmallFleet(*server);
  options.dead = 1;
  const auto fleet = Fleet::Make(loop, options);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  (*fleet)->Start();
  (*fleet)->Save(1);
  EXPECT_FALSE((*fleet)->WaitOutcome(kPatience));
  EXPECT_EQ((*fleet)->times(Milestone::kAborted).ranks, 15);
  EXPECT_TRUE(HasReason((*fleet)->error(), Reason::kRankLost)) << (*fleet)->error();
}

}  // namespace
}  // namespace cairn
