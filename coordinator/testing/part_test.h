// Holds what tests of the parts of a job share: a context, and members that register and report.
#ifndef CAIRN_COORDINATOR_TESTING_PART_TEST_H_
#define CAIRN_COORDINATOR_TESTING_PART_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/plan_table.h"

namespace cairn {

// The job is "demo". Its phases may take 20 s, a lease 10 s, and storage 5 s.
class PartTest : public testing::Test {
 protected:
  PartTest() {
    options_.phase_timeout = absl::Seconds(20);
    options_.lease_ttl = absl::Seconds(10);
    options_.storage_timeout = absl::Seconds(5);
  }

  v1::AgentIdentity Identity(int rank) const {
    v1::AgentIdentity identity;
    identity.set_job(name_);
    identity.set_rank(static_cast<uint32_t>(rank));
    identity.set_incarnation(static_cast<uint64_t>(rank) + 1);
    return identity;
  }
  // The ranks from 0 to `count` - 1 of a world of `world_size` have agents, and no trainers yet.
  void RegisterAll(int world_size, int count) {
    for (int rank = 0; rank < count; ++rank) {
      v1::RegisterAgentRequest request;
      *request.mutable_agent() = Identity(rank);
      request.set_world_size(static_cast<uint32_t>(world_size));
      EXPECT_TRUE(members_.Register(request, context_.now).ok());
    }
  }
  void RegisterAll(int world_size) { RegisterAll(world_size, world_size); }
  // The rank's agent says this. Returns the member.
  const Member& Report(int rank, const v1::AgentState& state) {
    const Member& member = **members_.Authenticate(Identity(rank), context_.now);
    members_.Report(member, state, ++sequence_, layouts_, context_.now);
    return member;
  }
  // Its trainer is attached, has this layout and is at this step.
  static v1::AgentState Trainer(uint64_t incarnation, const std::string& layout = "",
                                std::optional<int64_t> step = std::nullopt) {
    v1::AgentState state;
    state.mutable_trainer()->set_attached(true);
    state.mutable_trainer()->set_incarnation(incarnation);
    state.mutable_trainer()->set_layout_digest(layout);
    if (step.has_value()) state.mutable_trainer()->set_current_step(*step);
    return state;
  }
  static StoredAttempt Outcome(int64_t step, uint32_t attempt, bool committed) {
    StoredAttempt outcome;
    outcome.step = step;
    outcome.attempt = attempt;
    outcome.committed = committed;
    return outcome;
  }
  void Pass(absl::Duration time) { context_.now += time; }

  // The oldest action of this kind that was given and not taken yet; nothing if there is none.
  template <typename What>
  std::optional<What> Take() {
    for (auto action = effects_.actions.begin(); action != effects_.actions.end(); ++action) {
      if (!std::holds_alternative<What>(*action)) continue;
      What found = std::get<What>(std::move(*action));
      effects_.actions.erase(action);
      return found;
    }
    return std::nullopt;
  }

  const std::string name_ = "demo";
  DecisionOptions options_;
  LayoutTable layouts_;
  Effects effects_;
  Membership members_{name_, absl::Hours(1)};
  PlanTable plans_;
  const absl::Time start_ = absl::UnixEpoch() + absl::Hours(1);
  JobLineage lineage_;
  uint64_t next_ticket_ = 1;
  JobContext context_{name_,  options_, members_, layouts_, plans_, effects_,     next_ticket_,
                      start_, nullptr,  start_,   start_,   1,      std::nullopt, &lineage_};
  uint64_t sequence_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_TESTING_PART_TEST_H_
