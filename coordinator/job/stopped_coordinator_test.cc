// A coordinator that is stopped again and again hears its living agents late. Time is simulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/decision/listening_clock.h"
#include "coordinator/testing/test_job.h"

namespace cairn {
namespace {

constexpr int kRanks = 16;
constexpr absl::Duration kLease = absl::Seconds(10);

class StoppedCoordinatorTest : public ::testing::Test {
 protected:
  StoppedCoordinatorTest() : core_("demo", Options(), now_) {}

  static DecisionOptions Options() {
    DecisionOptions options;
    options.lease_ttl = kLease;
    return options;
  }
  Moment Now() {
    listening_.Pass(now_);
    return {listening_.Running(now_), now_};
  }
  Job& job() { return core_.job; }
  static v1::AgentIdentity Agent(int rank) {
    v1::AgentIdentity agent;
    agent.set_job("demo");
    agent.set_rank(static_cast<uint32_t>(rank));
    agent.set_incarnation(static_cast<uint64_t>(rank) + 1);
    return agent;
  }
  void Register(int rank) {
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = Agent(rank);
    request.set_world_size(kRanks);
    ASSERT_TRUE(job().Register(request, Now()).ok());
  }
  void Tick() { job().Tick(Now(), absl::ZeroDuration()); }
  // The process runs for so long.
  void RunFor(absl::Duration duration) {
    for (const absl::Time end = now_ + duration; now_ < end;) {
      now_ = std::min(end, now_ + ListeningClock::kPass);
      Tick();
    }
  }
  void StopFor(absl::Duration duration) {
    now_ += duration;
    Tick();
  }

  absl::Time now_ = absl::UnixEpoch();
  ListeningClock listening_;
  TestJob core_;
};

// A tenth of each second is left to it, so that it hears each agent only every 30 seconds. It is no agent's fault.
TEST_F(StoppedCoordinatorTest, Leases_StoppedInShortPieces_AllAreKept) {
  for (int rank = 0; rank < kRanks; ++rank) Register(rank);
  for (int second = 0; second < 300; ++second) {
    RunFor(absl::Milliseconds(100));
    StopFor(absl::Milliseconds(900));
    for (int rank = second % 30; rank < kRanks; rank += 30) {
      ASSERT_TRUE(job().Touch(Agent(rank), /*uploaded=*/false, Now()).ok()) << "rank " << rank << " at " << second;
    }
  }
  EXPECT_EQ(job().members().size(), size_t{kRanks});
}

TEST_F(StoppedCoordinatorTest, Leases_StoppedForNearlyHalfALease_AllAreKept) {
  for (int rank = 0; rank < kRanks; ++rank) Register(rank);
  for (int i = 0; i < 20; ++i) {
    RunFor(absl::Milliseconds(300));
    StopFor(kLease / 2 - absl::Milliseconds(1));
  }
  EXPECT_EQ(job().members().size(), size_t{kRanks});
}

// Time that counts against no lease must not keep a dead agent.
TEST_F(StoppedCoordinatorTest, Leases_ItRunsAgain_ASilentAgentIsLostAfterALease) {
  for (int rank = 0; rank < kRanks; ++rank) Register(rank);
  StopFor(absl::Hours(1));
  for (int i = 0; i < 10; ++i) {
    StopFor(absl::Milliseconds(900));
    RunFor(absl::Milliseconds(100));
  }
  for (int rank = 1; rank < kRanks; ++rank) ASSERT_TRUE(job().Touch(Agent(rank), /*uploaded=*/false, Now()).ok());
  RunFor(kLease / 2);
  EXPECT_EQ(job().members().size(), size_t{kRanks});
  for (int rank = 1; rank < kRanks; ++rank) ASSERT_TRUE(job().Touch(Agent(rank), /*uploaded=*/false, Now()).ok());
  RunFor(kLease / 2);
  EXPECT_EQ(job().members().Absent(), std::vector<int>{0});
}

}  // namespace
}  // namespace cairn
