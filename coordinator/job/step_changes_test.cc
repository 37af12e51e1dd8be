#include "coordinator/job/step_changes.h"

#include <variant>

#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class StepChangesTest : public PartTest {
 protected:
  StepChangesTest() { RegisterAll(1); }

  uint64_t Delete(int64_t step) {
    const auto number = changes_.Ask({DeleteStep{step, "a test"}}, context_);
    EXPECT_TRUE(number.ok()) << number.status();
    return number.value_or(0);
  }
  void Advance() { changes_.Advance(loads_, context_); }
  // The rank's trainer calls load of this step, which all ranks want.
  void Load(int64_t step) {
    v1::AgentState state = Trainer(100);
    v1::LoadState& load = *state.add_loads();
    load.set_number(1);
    load.set_trainer_incarnation(100);
    load.set_layout_digest("layout");
    load.set_step(step);
    loads_.Apply(Report(0, state), context_);
  }

  Loads loads_;
  StepChanges changes_;
};

TEST_F(StepChangesTest, Advance_TwoWait_OneIsUnderWayAtATime) {
  const uint64_t first = Delete(1), second = Delete(2);
  Advance();
  const auto begun = Take<ChangeSteps>();
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(std::get<DeleteStep>(begun->change).step, 1);
  Advance();
  EXPECT_FALSE(Take<ChangeSteps>().has_value()) << "each would name the other as what remains";
  EXPECT_EQ(changes_.Find(first), nullptr);
  EXPECT_TRUE(changes_.OnChanged(begun->ticket, ChangedSteps{{Verdict(1, 1, true)}}, context_));
  ASSERT_NE(changes_.Find(first), nullptr);
  EXPECT_EQ((*changes_.Find(first))->deleted.size(), 1u);
  Advance();
  EXPECT_EQ(std::get<DeleteStep>(Take<ChangeSteps>()->change).step, 2);
  EXPECT_EQ(changes_.Find(second), nullptr);
}

TEST_F(StepChangesTest, Advance_StepIsBeingLoaded_IsRefusedAndTheNextBegins) {
  Load(1);
  const uint64_t refused = Delete(1);
  Delete(2);
  Advance();
  ASSERT_NE(changes_.Find(refused), nullptr);
  EXPECT_TRUE(HasReason(changes_.Find(refused)->status(), Reason::kCheckpointInUse));
  const auto begun = Take<ChangeSteps>();
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(std::get<DeleteStep>(begun->change).step, 2);
}

TEST_F(StepChangesTest, Advance_Prune_KnowsWhatIsBeingLoaded) {
  Load(1);
  ASSERT_TRUE(changes_.Ask({PruneSteps{}}, context_).ok());
  Advance();
  EXPECT_EQ(std::get<PruneSteps>(Take<ChangeSteps>()->change).in_use, std::vector<int64_t>{1});
}

TEST_F(StepChangesTest, AskToPrune_OneWaitsAlready_IsNotDoubled) {
  Delete(1);
  Advance();
  const uint64_t first = Take<ChangeSteps>()->ticket;
  changes_.AskToPrune(context_);
  changes_.AskToPrune(context_);
  changes_.OnChanged(first, ChangedSteps{}, context_);
  Advance();
  const auto prune = Take<ChangeSteps>();
  ASSERT_TRUE(prune.has_value());
  changes_.AskToPrune(context_);  // that one may have looked before the newest commit
  changes_.OnChanged(prune->ticket, ChangedSteps{}, context_);
  Advance();
  const auto next = Take<ChangeSteps>();
  ASSERT_TRUE(next.has_value());
  changes_.OnChanged(next->ticket, ChangedSteps{}, context_);
  Advance();
  EXPECT_FALSE(Take<ChangeSteps>().has_value());
}

TEST_F(StepChangesTest, AskToDeleteReplaced_StorageFails_IsTriedAgainAndHoldsUpNoOther) {
  changes_.AskToDeleteReplaced(1, context_);
  Advance();
  const auto failed = Take<ChangeSteps>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_TRUE(changes_.OnChanged(failed->ticket, MakeError(Reason::kStorageError, "the storage failed"), context_));
  Delete(2);
  Advance();
  const auto other = Take<ChangeSteps>();
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(std::get_if<DeleteStep>(&other->change), nullptr);
  changes_.OnChanged(other->ticket, ChangedSteps{}, context_);
  Pass(options_.storage_timeout);
  Advance();
  const auto again = Take<ChangeSteps>();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(std::get<DeleteReplaced>(again->change).step, 1);
  changes_.OnChanged(again->ticket, ChangedSteps{}, context_);
  Pass(options_.storage_timeout);
  Advance();
  EXPECT_FALSE(Take<ChangeSteps>().has_value());
}

TEST_F(StepChangesTest, OnChanged_ResultOfAnother_IsIgnored) {
  const uint64_t number = Delete(1);
  Advance();
  EXPECT_FALSE(changes_.OnChanged(Take<ChangeSteps>()->ticket + 1, ChangedSteps{}, context_));
  EXPECT_EQ(changes_.Find(number), nullptr);
}

TEST_F(StepChangesTest, Ask_TooManyWait_IsRefused) {
  for (int step = 0; step < 64; ++step) Delete(step);
  EXPECT_TRUE(HasReason(changes_.Ask({DeleteStep{64, ""}}, context_).status(), Reason::kOverloaded));
}

TEST_F(StepChangesTest, Forget_AMinuteLater_ForgetsTheEndAndKeepsTheOpenOnes) {
  const uint64_t number = Delete(1);
  Advance();
  changes_.Forget(context_.now + absl::Hours(1));
  EXPECT_FALSE(changes_.empty());
  changes_.OnChanged(Take<ChangeSteps>()->ticket, ChangedSteps{}, context_);
  Pass(absl::Minutes(2));
  changes_.Forget(context_.now);
  EXPECT_EQ(changes_.Find(number), nullptr);
  EXPECT_TRUE(changes_.empty());
}

}  // namespace
}  // namespace cairn
