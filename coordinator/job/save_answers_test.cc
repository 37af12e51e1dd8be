#include "coordinator/job/save_answers.h"

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class SaveAnswersTest : public PartTest {
 protected:
  SaveAnswersTest() { RegisterAll(1); }

  void Recover() { (void)recovery_.OnRead(absl::OkStatus(), context_); }
  static v1::SaveState Call(v1::Phase::Value phase, uint32_t attempt = 0) {
    v1::SaveState state;
    state.set_step(4);
    state.set_call(1);
    state.set_attempt(attempt);
    state.set_phase(phase);
    return state;
  }
  v1::SaveOrder OrderFor(const v1::SaveState& call) { return answers_.OrderFor(*members_.Find(0), call, context_); }
  v1::SaveOrder OutcomeOf(uint32_t attempt) {
    return answers_.OutcomeFor(*members_.Find(0), Call(v1::Phase::ASKED, attempt), context_);
  }
  static std::optional<Reason> Why(const v1::SaveOrder& order) { return ReasonOf(StatusFromProto(order.error())); }

  Recovery recovery_;
  OutcomeBook outcomes_;
  Saves saves_;
  Leftovers leftovers_;
  const SaveAnswers answers_{recovery_, outcomes_, saves_, leftovers_};
};

TEST_F(SaveAnswersTest, OrderFor_StorageHasNotAnswered_WaitsAndTellsOfTheStall) {
  recovery_.Begin(context_);
  EXPECT_EQ(OrderFor(Call(v1::Phase::PLANNING)).phase(), v1::Phase::WAITING);
  EXPECT_FALSE(OrderFor(Call(v1::Phase::PLANNING)).has_stalled());
  Pass(options_.storage_timeout);
  (void)recovery_.Tick(context_);
  const v1::SaveOrder order = OrderFor(Call(v1::Phase::PLANNING));
  EXPECT_EQ(order.phase(), v1::Phase::WAITING);
  EXPECT_EQ(ReasonOf(StatusFromProto(order.stalled())), Reason::kStorageStalled);
}

TEST_F(SaveAnswersTest, OrderFor_SaveUnderWay_IsTheSaves) {
  Recover();
  outcomes_.Keep(Outcome(4, 1, false));
  saves_.Begin(4, context_).AddRequest("r", absl::InfiniteFuture());
  EXPECT_EQ(OrderFor(Call(v1::Phase::PLANNING)).request_id(), "r");
}

TEST_F(SaveAnswersTest, OrderFor_CallOfAnAttemptThatEndedBeforeTheSave_IsTheOutcome) {
  Recover();
  outcomes_.Keep(Outcome(4, 1, false));
  saves_.Begin(4, context_).AddRequest("r", absl::InfiniteFuture());
  const v1::SaveOrder order = OrderFor(Call(v1::Phase::WRITING, 1));
  EXPECT_EQ(order.phase(), v1::Phase::ABORTING) << "else the new save would take the old attempt for its own";
  EXPECT_EQ(order.attempt(), 1u);
  EXPECT_EQ(order.request_id(), "");
}

TEST_F(SaveAnswersTest, OrderFor_OnlyStorageRemembersTheAttempt_IsItsOutcome) {
  Recover();
  outcomes_.Keep(Outcome(4, 1, false));
  outcomes_.Keep(Outcome(4, 2, true));
  EXPECT_EQ(OrderFor(Call(v1::Phase::WRITING, 1)).phase(), v1::Phase::ABORTING) << "it has to stop first";
  EXPECT_EQ(OrderFor(Call(v1::Phase::STOPPED, 1)).phase(), v1::Phase::ABORTED);
  EXPECT_EQ(OrderFor(Call(v1::Phase::WRITTEN, 2)).phase(), v1::Phase::COMMITTED);
  EXPECT_EQ(OrderFor(Call(v1::Phase::WRITTEN, 3)).phase(), v1::Phase::WAITING);
}

TEST_F(SaveAnswersTest, OrderFor_CallThatWasRefused_StaysRefused) {
  Recover();
  outcomes_.Keep(Outcome(4, 1, true));
  const v1::SaveState call = Call(v1::Phase::PLANNING);
  ASSERT_EQ(outcomes_.StillCommitted(4, CallerOf(*members_.Find(0), call), context_), std::nullopt);
  EXPECT_EQ(OrderFor(call).phase(), v1::Phase::WAITING);
  outcomes_.OnRead(4, Take<ReadStep>()->ticket, StoredAttempts{Outcome(4, 1, true)}, context_);
  EXPECT_EQ(Why(OrderFor(call)), Reason::kStepCommitted);
  saves_.Begin(4, context_);  // people have removed the step, and another rank saves it again
  EXPECT_EQ(Why(OrderFor(call)), Reason::kStepCommitted);
}

TEST_F(SaveAnswersTest, OutcomeFor_AttemptOfWhichNothingIsKnown_IsAbortedOnlyIfNobodyCanCommitIt) {
  EXPECT_EQ(OutcomeOf(1).phase(), v1::Phase::WAITING) << "storage has not answered";
  Recover();
  leftovers_.Add({4, 1});
  EXPECT_EQ(OutcomeOf(1).phase(), v1::Phase::WAITING) << "ranks may come back with it";
  EXPECT_EQ(Why(OutcomeOf(2)), Reason::kNotCommitted);
  outcomes_.Keep(Outcome(4, 3, false));
  EXPECT_EQ(Why(OutcomeOf(2)), Reason::kSuperseded);
  EXPECT_EQ(Why(OutcomeOf(0)), Reason::kBadRequest) << "attempts are counted from 1";
}

TEST_F(SaveAnswersTest, OutcomeFor_OutcomeThatCouldNotBeRead_Waits) {
  Recover();
  StoredAttempt unread = Outcome(4, 1, false);
  unread.damaged = true;
  unread.error = MakeError(Reason::kStorageError, "I/O error");
  outcomes_.Keep(unread);
  EXPECT_EQ(OutcomeOf(1).phase(), v1::Phase::WAITING);
  EXPECT_EQ(ReasonOf(StatusFromProto(OutcomeOf(1).stalled())), Reason::kStorageError);
  outcomes_.Keep(Outcome(4, 1, true));
  EXPECT_EQ(OutcomeOf(1).phase(), v1::Phase::COMMITTED);
  EXPECT_EQ(OutcomeOf(1).directory(), "demo/000000000004/0001");
}

}  // namespace
}  // namespace cairn
