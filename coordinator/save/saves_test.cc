#include "coordinator/save/saves.h"

#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class SavesTest : public PartTest {
 protected:
  SavesTest() { RegisterAll(2); }

  // A save without a number ends as soon as it is given up.
  void End(int64_t step) {
    saves_.Cancel(CheckpointKey{step, ""}, context_);
    EXPECT_TRUE(saves_.Advance(context_).step);
    EXPECT_EQ(saves_.Active(step), nullptr);
  }
  static v1::SaveState Begun(int64_t step, uint64_t call) {
    v1::SaveState state;
    state.set_step(step);
    state.set_call(call);
    state.set_trainer_incarnation(50);
    state.set_phase(v1::Phase::PLANNING);
    return state;
  }

  Saves saves_;
};

TEST_F(SavesTest, Begin_NewSave_IsActiveUntilItEnds) {
  EXPECT_FALSE(saves_.busy());
  saves_.Begin(4, context_);
  EXPECT_TRUE(saves_.busy());
  EXPECT_EQ(saves_.begun(), 1u);
  EXPECT_EQ(saves_.ended(), 0u);
  ASSERT_NE(saves_.Active(4), nullptr);
  EXPECT_EQ(saves_.Active(5), nullptr);
  EXPECT_EQ(saves_.Ended(4), nullptr);
  End(4);
  EXPECT_FALSE(saves_.busy());
  EXPECT_EQ(saves_.ended(), 1u);
  ASSERT_NE(saves_.Ended(4), nullptr);
  EXPECT_TRUE(HasReason(saves_.Ended(4)->error(), Reason::kSaveCancelled));
  EXPECT_EQ(saves_.Last(4), saves_.Ended(4));
}

// A key costs a look at every rank and a hash of all their layouts.
TEST_F(SavesTest, Advance_ThePlanIsNotThereYet_MakesItsKeyOnce) {
  layouts_.Add("layout", 1);
  Save& save = saves_.Begin(4, context_);
  for (int rank = 0; rank < 2; ++rank) {
    v1::SaveState call = Begun(4, 1);
    call.set_layout_digest("layout");
    v1::AgentState state = Trainer(50, "layout");
    *state.add_saves() = call;
    (void)save.Report(Report(rank, state), call, context_);
  }
  for (int i = 0; i < 10; ++i) (void)saves_.Advance(context_);
  EXPECT_EQ(plans_.keys_made(), 1u);
  const auto make = Take<PlanSave>();
  ASSERT_TRUE(make.has_value());
  plans_.OnPlanned(make->key, PlannedSave{"plan", 1});
  (void)saves_.Advance(context_);
  EXPECT_EQ(plans_.keys_made(), 1u);
  EXPECT_TRUE(Take<ReserveAttempt>().has_value()) << "it has the plan";
}

TEST_F(SavesTest, Full_ThirtyTwoUnderWay_UntilOneEnds) {
  for (int64_t step = 0; step < 32; ++step) {
    EXPECT_FALSE(saves_.full());
    saves_.Begin(step, context_);
  }
  EXPECT_TRUE(saves_.full());
  End(7);
  EXPECT_FALSE(saves_.full());
}

TEST_F(SavesTest, EarliestUndecided_SeveralUnderWay_IsTheSmallestStep) {
  EXPECT_EQ(saves_.EarliestUndecided(), std::nullopt);
  saves_.Begin(8, context_);
  saves_.Begin(4, context_);
  EXPECT_EQ(saves_.EarliestUndecided(), 4);
  End(4);
  EXPECT_EQ(saves_.EarliestUndecided(), 8);
  EXPECT_EQ(saves_.StalledStep(), std::nullopt);
}

TEST_F(SavesTest, Find_StepWasSavedTwice_IsTheOneUnderWayElseTheNewest) {
  saves_.Begin(4, context_).AddRequest("first", absl::InfiniteFuture());
  End(4);
  saves_.Begin(4, context_).AddRequest("second", absl::InfiniteFuture());
  EXPECT_EQ(saves_.Find(CheckpointKey{4, ""}), saves_.Active(4));
  EXPECT_EQ(saves_.Find(CheckpointKey{std::nullopt, "first"}), saves_.Ended(4));
  EXPECT_EQ(saves_.Find(CheckpointKey{std::nullopt, "third"}), nullptr);
  EXPECT_EQ(saves_.Find(CheckpointKey{}), nullptr);
  End(4);
  EXPECT_EQ(saves_.Find(CheckpointKey{4, ""}), saves_.Last(4));
  EXPECT_TRUE(saves_.Last(4)->HasRequest("second"));
}

TEST_F(SavesTest, Shown_OneUnderWay_ComesBeforeNewerOnesThatEnded) {
  EXPECT_EQ(saves_.Shown(), nullptr);
  saves_.Begin(4, context_);
  saves_.Begin(5, context_);
  End(5);
  EXPECT_EQ(saves_.Shown(), saves_.Active(4));
  End(4);
  EXPECT_EQ(saves_.Shown(), saves_.Last(5)) << "the newest, if all have ended";
}

TEST_F(SavesTest, EndedOf_CallThatTookPart_IsAnsweredByItsSaveOnly) {
  Save& save = saves_.Begin(4, context_);
  const Member& member = Report(0, Trainer(50));
  (void)save.Report(member, Begun(4, 1), context_);
  EXPECT_EQ(saves_.EndedOf(member, Begun(4, 1)), nullptr) << "it has not ended";
  End(4);
  EXPECT_EQ(saves_.EndedOf(member, Begun(4, 1)), saves_.Ended(4));
  EXPECT_EQ(saves_.EndedOf(member, Begun(4, 2)), nullptr) << "a later call is not in it";
  EXPECT_EQ(saves_.EndedFor(member, Begun(4, 2)), nullptr);
}

TEST_F(SavesTest, Forget_ManyHaveEnded_KeepsTheLastAndThoseThatAgentsSpeakOf) {
  v1::AgentState speaks = Trainer(50);
  *speaks.add_saves() = Begun(2, 1);
  Report(0, speaks);
  for (int64_t step = 0; step < 20; ++step) {
    saves_.Begin(step, context_);
    End(step);
  }
  saves_.Forget(members_);
  EXPECT_EQ(saves_.Last(0), nullptr);
  EXPECT_NE(saves_.Last(2), nullptr) << "rank 0 speaks of it";
  EXPECT_EQ(saves_.Last(4), nullptr);
  EXPECT_NE(saves_.Last(5), nullptr);
  EXPECT_NE(saves_.Last(19), nullptr);
  EXPECT_EQ(saves_.ended(), 20u) << "those that are forgotten count too";
}

}  // namespace
}  // namespace cairn
