// Plants faults in what a job is told, so that what it has concluded is wrong: the comparison with a look at everything
// (JobOracle) must find each. The counts of ranks cannot be wrong by themselves: see counted_ranks_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 4;

// What the job looks at is changed, and no event tells it.
struct PlantedFault {
  std::string name;
  void (*plant)(TestJob& core);
  std::string found;

  friend void PrintTo(const PlantedFault& fault, std::ostream* out) { *out << fault.name; }
};

// The members, as an event that the job has lost would have changed them.
Membership& MembersOf(TestJob& core) { return const_cast<Membership&>(core.job.members()); }

// The rank's agent says this, and the job does not hear of it.
template <typename Change>
void SayUntold(TestJob& core, int rank, Change change) {
  const Member& member = *core.job.members().Find(rank);
  v1::AgentState state = member.state;
  change(state);
  MembersOf(core).Report(member, state, /*sequence=*/0, core.layouts, member.heard);
}

// A job in the midst of a save, of a load and of an agreement on a step, with a checkpoint. One layout is missing.
class OracleTest : public JobFixture, public testing::WithParamInterface<PlantedFault> {
 protected:
  OracleTest() {
    StartJob(Options(), kRanks);
    for (int rank = 0; rank < kRanks; ++rank) Register(rank);
    StoredAttempts recovered;
    StoredAttempt& outcome = recovered.emplace_back();
    outcome.step = 10;
    outcome.attempt = 1;
    outcome.committed = true;
    Recover(recovered);
    for (int rank = 0; rank < kRanks; ++rank) Say(rank, State(rank));
    v1::CreateCheckpointRequest request;
    request.set_job(kJob);
    request.set_request_id("asked");
    EXPECT_TRUE(job().Create(request, /*patient=*/false, At())->ok());
    for (int rank = 0; rank < kRanks; ++rank) {
      v1::AgentState state = State(rank);
      *state.add_saves() = Begun(rank, 60);
      state.mutable_saves(0)->set_trainer_incarnation(Trainer(rank));
      v1::LoadState& load = *state.add_loads();
      load.set_number(1);
      load.set_phase(v1::Phase::PLANNING);
      load.set_trainer_incarnation(Trainer(rank));
      load.set_layout_digest("missing");
      Say(rank, state);
    }
    while (const auto plan = Take<PlanSave>()) job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
  }

  static v1::AgentState State(int rank) {
    v1::AgentState state = StateWith(Trainer(rank));
    state.mutable_trainer()->set_layout_digest(Layout(rank));
    state.mutable_trainer()->set_current_step(50);
    return state;
  }
  void Say(int rank, const v1::AgentState& state) {
    now_ += absl::Milliseconds(1);
    Synchronize(rank, state);
  }
};

TEST_P(OracleTest, Fault_Planted_IsFound) {
  ASSERT_EQ(core_->Missed(), "");
  ASSERT_EQ(core_->Missed(), "") << "a look changes nothing";
  GetParam().plant(*core_);
  EXPECT_THAT(core_->Missed(), HasSubstr(GetParam().found));
}

constexpr char kStep[] = "a step was possible and not taken";
constexpr char kLayouts[] = "is not asked for the layouts that are missing";

INSTANTIATE_TEST_SUITE_P(
    All, OracleTest,
    testing::Values(
        PlantedFault{"LayoutHasComeUntold", [](TestJob& core) { core.layouts.Add("missing", 1); }, kLayouts},
        PlantedFault{"LayoutIsNewUntold",
                     [](TestJob& core) {
                       SayUntold(core, 1, [](v1::AgentState& state) {
                         state.mutable_trainer()->set_layout_digest("nobody has it");
                       });
                     },
                     kLayouts},
        PlantedFault{"OrdersHaveChangedUntold",
                     [](TestJob& core) { core.options.check_replicas = ReplicaCheck::kNever; },
                     "rank 0 is not told what is new to it"},
        PlantedFault{"TimeIsOverUntold", [](TestJob& core) { core.options.phase_timeout = absl::ZeroDuration(); },
                     kStep},
        PlantedFault{"AgentIsGoneUntold", [](TestJob& core) { MembersOf(core).Remove(2); }, kStep},
        PlantedFault{"AgentIsAnotherUntold",
                     [](TestJob& core) {
                       v1::RegisterAgentRequest request;
                       request.mutable_agent()->set_job("demo");
                       request.mutable_agent()->set_rank(2);
                       request.mutable_agent()->set_incarnation(77);
                       request.set_world_size(kRanks);
                       const Member& holder = *core.job.members().Find(2);
                       request.add_predecessors(holder.incarnation);
                       EXPECT_TRUE(MembersOf(core).Register(request, holder.heard).ok());
                     },
                     kStep},
        PlantedFault{"TrainerIsGoneUntold",
                     [](TestJob& core) {
                       SayUntold(core, 2, [](v1::AgentState& state) { state.mutable_trainer()->set_attached(false); });
                     },
                     kStep},
        PlantedFault{"SaveIsCalledUntold",
                     [](TestJob& core) {
                       SayUntold(core, 1, [](v1::AgentState& state) {
                         v1::SaveState& called = *state.add_saves() = state.saves(0);
                         called.set_step(70);
                       });
                     },
                     kStep},
        PlantedFault{"LoadIsCalledUntold",
                     [](TestJob& core) {
                       SayUntold(core, 1, [](v1::AgentState& state) { state.mutable_loads(0)->set_number(2); });
                     },
                     kStep},
        PlantedFault{"StepIsRefusedUntold",
                     [](TestJob& core) {
                       SayUntold(core, 1, [&](v1::AgentState& state) {
                         const auto orders = core.job.OrdersFor(1, Moment{absl::UnixEpoch(), absl::UnixEpoch()});
                         state.mutable_arm()->set_number(orders.arm().number());
                         state.mutable_arm()->set_step(orders.arm().step());
                         state.mutable_arm()->set_status(v1::ArmState::REFUSED);
                       });
                     },
                     kStep}),
    [](const auto& fault) { return fault.param.name; });

}  // namespace
}  // namespace cairn
