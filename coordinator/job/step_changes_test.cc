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
  void Advance() { changes_.Advance(loads_, outcomes_, context_); }
  // The rank's trainer calls load of this step, which all ranks want.
  void Load(int64_t step) {
    v1::AgentState state = Trainer(100);
    v1::LoadState& load = *state.add_loads();
    load.set_number(1);
    load.set_trainer_incarnation(100);
    load.set_layout_digest("layout");
    load.set_step(step);
    (void)loads_.Apply(Report(0, state), context_);
  }

  Loads loads_;
  OutcomeBook outcomes_;
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
  EXPECT_TRUE(changes_.OnChanged(begun->ticket, ChangedSteps{{Outcome(1, 1, true)}}, context_));
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

TEST_F(StepChangesTest, OnChanged_PruneHasStoppedOnTheWay_GoesOnBehindWhatWaits) {
  const PruneSteps rules{PrunePolicy{.keep_last = 1}};
  const uint64_t prune = *changes_.Ask({rules}, context_);
  Advance();
  const auto first = Take<ChangeSteps>();
  ASSERT_TRUE(first.has_value());
  const uint64_t pin = *changes_.Ask({PinStep{3}}, context_);
  ChangedSteps part;
  part.choices = {{1, true, ""}, {2, false, "pinned"}, {3, true, ""}, {4, false, "the newest"}};
  part.deleted = {Outcome(1, 1, true)};
  part.stopped_after = 1;
  EXPECT_EQ(changes_.SoFar(prune), nullptr);
  ASSERT_TRUE(changes_.OnChanged(first->ticket, part, context_));
  EXPECT_EQ(changes_.Find(prune), nullptr);
  ASSERT_NE(changes_.SoFar(prune), nullptr);
  EXPECT_EQ(changes_.SoFar(prune)->stopped_after, 1);
  EXPECT_EQ(*changes_.Ask({rules}, context_), prune) << "who asks again hears of the one that goes on";
  EXPECT_NE(*changes_.Ask({PruneSteps{PrunePolicy{.keep_last = 2}}}, context_), prune) << "other rules";
  Advance();
  const auto pinned = Take<ChangeSteps>();
  ASSERT_TRUE(std::holds_alternative<PinStep>(pinned->change)) << "nobody waits for hundreds of deletions";
  changes_.OnChanged(pinned->ticket, ChangedSteps{}, context_);
  ASSERT_NE(changes_.Find(pin), nullptr);
  Advance();
  const auto second = Take<ChangeSteps>();
  EXPECT_EQ(std::get<PruneSteps>(second->change).policy->keep_last, 1);
  EXPECT_EQ(std::get<PruneSteps>(second->change).after, 1);
  ChangedSteps rest;
  rest.choices = {{2, false, "pinned"}, {3, false, "pinned"}, {4, true, ""}, {5, false, "the newest"}};
  rest.deleted = {Outcome(4, 1, true)};
  changes_.OnChanged(second->ticket, rest, context_);
  ASSERT_NE(changes_.Find(prune), nullptr);
  const ChangedSteps& whole = **changes_.Find(prune);
  EXPECT_EQ(whole.deleted.size(), 2u);
  EXPECT_EQ(whole.choices,
            (std::vector<PruneChoice>{
                {1, true, ""}, {2, false, "pinned"}, {3, false, "pinned"}, {4, true, ""}, {5, false, "the newest"}}));
  EXPECT_FALSE(whole.stopped_after.has_value());
}

TEST_F(StepChangesTest, OnChanged_PruneFailsBehindAPart_TellsWhatWasDeleted) {
  for (const bool in_the_part : {false, true}) {
    const uint64_t prune = *changes_.Ask({PruneSteps{PrunePolicy{.keep_last = in_the_part ? 1 : 2}}}, context_);
    Advance();
    const auto first = Take<ChangeSteps>();
    ASSERT_TRUE(first.has_value());
    ChangedSteps part;
    part.choices = {{1, true, ""}, {2, true, ""}, {3, false, "the newest"}};
    part.deleted = {Outcome(1, 1, true)};
    part.stopped_after = 1;
    ASSERT_TRUE(changes_.OnChanged(first->ticket, part, context_));
    Advance();
    const auto second = Take<ChangeSteps>();
    ASSERT_TRUE(second.has_value());
    const absl::Status failed = MakeError(Reason::kStorageError, "it is not known", {{"outcome", "unknown"}});
    if (in_the_part) {
      ChangedSteps rest;
      rest.choices = {{2, false, "unknown"}, {3, false, "the newest"}};
      rest.ended_by = failed;
      changes_.OnChanged(second->ticket, rest, context_);
    } else {
      changes_.OnChanged(second->ticket, failed, context_);
    }
    ASSERT_NE(changes_.Find(prune), nullptr);
    ASSERT_TRUE(changes_.Find(prune)->ok()) << changes_.Find(prune)->status();
    const ChangedSteps& whole = **changes_.Find(prune);
    EXPECT_EQ(whole.ended_by, failed);
    ASSERT_EQ(whole.deleted.size(), 1u);
    EXPECT_EQ(whole.deleted[0].step, 1);
  }
}

TEST_F(StepChangesTest, Ask_DryRunGoesOn_TheSameQuestionHearsOfItAndAPruneDoesNot) {
  const PrunePolicy policy{.keep_last = 1};
  const uint64_t dry = *changes_.Ask({PruneSteps{policy, /*dry_run=*/true}}, context_);
  Advance();
  const auto first = Take<ChangeSteps>();
  ASSERT_TRUE(first.has_value());
  ChangedSteps part;
  part.choices = {{1, false, "damaged"}, {2, true, ""}, {3, false, "the newest"}};
  part.stopped_after = 1;
  ASSERT_TRUE(changes_.OnChanged(first->ticket, part, context_));
  EXPECT_EQ(*changes_.Ask({PruneSteps{policy, /*dry_run=*/true}}, context_), dry);
  const uint64_t prune = *changes_.Ask({PruneSteps{policy}}, context_);
  EXPECT_NE(prune, dry) << "who wants to delete is not told what would be deleted";
  Advance();
  const auto second = Take<ChangeSteps>();
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(std::get<PruneSteps>(second->change).dry_run);
  EXPECT_EQ(std::get<PruneSteps>(second->change).after, 1);
  ChangedSteps rest;
  rest.choices = {{1, true, ""}, {2, true, ""}, {3, false, "the newest"}};
  ASSERT_TRUE(changes_.OnChanged(second->ticket, rest, context_));
  ASSERT_NE(changes_.Find(dry), nullptr);
  EXPECT_EQ((*changes_.Find(dry))->choices, part.choices) << "each step as its own turn has found it";
}

TEST_F(StepChangesTest, AskToPrune_OneGoesOn_TheLaterCommitIsNotForgotten) {
  changes_.AskToPrune(context_);
  Advance();
  const auto first = Take<ChangeSteps>();
  changes_.AskToPrune(context_);  // a commit meanwhile
  ChangedSteps part;
  part.stopped_after = 1;
  changes_.OnChanged(first->ticket, part, context_);
  changes_.AskToPrune(context_);  // one waits already
  Advance();
  EXPECT_FALSE(std::get<PruneSteps>(Take<ChangeSteps>()->change).after.has_value()) << "the one that was asked for";
}

TEST_F(StepChangesTest, AskToPrune_NotBefore_OthersGoFirst) {
  changes_.AskToPrune(context_, context_.now + absl::Seconds(20));
  Delete(7);
  Advance();
  const auto begun = Take<ChangeSteps>();
  EXPECT_TRUE(std::holds_alternative<DeleteStep>(begun->change));
  changes_.OnChanged(begun->ticket, ChangedSteps{}, context_);
  Advance();
  EXPECT_FALSE(Take<ChangeSteps>().has_value());
  Pass(absl::Seconds(20));
  Advance();
  const auto prune = Take<ChangeSteps>();
  ASSERT_TRUE(prune.has_value());
  EXPECT_EQ(std::get<PruneSteps>(prune->change).steps, std::vector<int64_t>()) << "what the job knows of";
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
