// Compares the bookkeeping of every event with what a look at everything gives (Job::Inconsistency). Each test plants
// one fault in the bookkeeping, and the comparison must name it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "coordinator/job/job.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {

// Plants the faults that the parts let in for these tests.
struct BookkeepingFault {
  std::string name;
  void (*plant)(Job& job);
  std::string found;

  static Save& SaveOf(Job& job) { return job.saves_.saves_.front(); }

  static void Members(Job& job) { ++job.members_.with_layout_; }
  static void Reporting(Job& job) { --job.members_.reporting_.begin()->second; }
  static void Silence(Job& job) { job.members_.by_silence_.reverse(); }
  static void SaveCounts(Job& job) { ++SaveOf(job).counts_.staged; }
  static void TokenLacks(Job& job) { SaveOf(job).moving_[0] = false; }
  static void TokenGiven(Job& job) { SaveOf(job).moving_[2] = true; }
  static void LoadCounts(Job& job) { ++job.loads_.loads_.front().counts_.with_step; }
  static void Agreement(Job& job) { ++job.requests_.agreement_.armed_; }
  static void Lines(Job& job) { job.outcomes_.lines_ = CommittedLines(); }
  static void Wanted(Job& job) { job.wanted_layouts_.wanted_["gone"].insert(0); }
  static void StepChange(Job& job) {
    EXPECT_TRUE(job.step_changes_.Ask({DeleteStep{10, "a test"}}, job.context_).ok());
  }
  static void Orders(Job& job) { job.orders_.orders_.At(1).made.bytes.clear(); }
  // The orders of all were said to have changed without news for anybody, and there is some for this one.
  static void News(Job& job) {
    job.orders_.ChangeAll();
    job.orders_.orders_.At(1).made.news.clear();
  }

  friend void PrintTo(const BookkeepingFault& fault, std::ostream* out) { *out << fault.name; }
};

namespace {

using testing::HasSubstr;

constexpr int kRanks = 4;

// A job in the midst of a save, of a load and of an agreement on a step, with a checkpoint.
class OracleTest : public JobFixture, public testing::WithParamInterface<BookkeepingFault> {
 protected:
  OracleTest() {
    StartJob(Options(), kRanks);
    for (int rank = 0; rank < kRanks; ++rank) Register(rank);
    Recovered recovered;
    OutcomeSummary& outcome = recovered.outcome.emplace_back();
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
      load.set_phase(v1::LoadState::BEGUN);
      load.set_trainer_incarnation(Trainer(rank));
      if (rank > 0) Say(rank, state);
      if (rank == 0) first_ = state;
    }
    Say(0, first_);
    while (const auto plan = Take<PlanSave>()) {
      PlannedSave planned{"plan", 1};
      planned.moves = {{0, 1, 1}};
      planned.transfer_token = "token";
      job().OnSavePlanned(plan->key, planned, At());
    }
    for (int rank = 0; rank < kRanks; ++rank) job().OrdersFor(rank, At());
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

  v1::AgentState first_;
};

TEST_P(OracleTest, Fault_Planted_IsFound) {
  ASSERT_EQ(job().Inconsistency(), "");
  GetParam().plant(job());
  EXPECT_THAT(job().Inconsistency(), HasSubstr(GetParam().found));
}

INSTANTIATE_TEST_SUITE_P(
    All, OracleTest,
    testing::Values(
        BookkeepingFault{"Members", BookkeepingFault::Members, "the members are not counted"},
        BookkeepingFault{"Reporting", BookkeepingFault::Reporting, "the members are not counted"},
        BookkeepingFault{"Silence", BookkeepingFault::Silence, "does not stand where its silence belongs"},
        BookkeepingFault{"SaveCounts", BookkeepingFault::SaveCounts, "the save of step 60 are not counted"},
        BookkeepingFault{"TokenLacks", BookkeepingFault::TokenLacks, "rank 0 of the save of step 60 lacks token"},
        BookkeepingFault{"TokenGiven", BookkeepingFault::TokenGiven, "rank 2 of the save of step 60 needs no token"},
        BookkeepingFault{"LoadCounts", BookkeepingFault::LoadCounts, "the ranks of a load are not counted"},
        BookkeepingFault{"Agreement", BookkeepingFault::Agreement, "the answers of ranks that agree"},
        BookkeepingFault{"Lines", BookkeepingFault::Lines, "the lines of checkpoints"},
        BookkeepingFault{"Wanted", BookkeepingFault::Wanted, "the missing layouts"},
        BookkeepingFault{"StepChange", BookkeepingFault::StepChange, "an action follows"},
        BookkeepingFault{"Orders", BookkeepingFault::Orders, "the orders of rank 1 have changed unseen"},
        BookkeepingFault{"News", BookkeepingFault::News, "rank 1 is not told what is new to it"}),
    [](const auto& fault) { return fault.param.name; });

}  // namespace
}  // namespace cairn
