#include "coordinator/job/leftovers.h"

#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class LeftoversTest : public PartTest {
 protected:
  LeftoversTest() { RegisterAll(1); }

  void Advance() { leftovers_.Advance(saves_, loads_, outcomes_, context_); }
  // The agents have had the time to come back to a coordinator that restarted.
  void PassTheStart() { Pass(2 * options_.lease_ttl); }
  // The rank's agent holds attempt 1 of step 4.
  static v1::AgentState InTheAttempt() {
    v1::AgentState state;
    state.add_saves()->set_step(4);
    state.mutable_saves(0)->set_attempt(1);
    return state;
  }

  Saves saves_;
  Loads loads_;
  OutcomeBook outcomes_;
  Leftovers leftovers_;
};

TEST_F(LeftoversTest, Advance_NobodyComesBack_GetsAnAbortRecordAndIsRemoved) {
  leftovers_.Add({.step = 4, .attempt = 1, .unfinished = true});
  Advance();
  EXPECT_FALSE(Take<PutOutcome>().has_value()) << "its agents may come back with it";
  PassTheStart();
  Advance();
  const auto put = Take<PutOutcome>();
  ASSERT_TRUE(put.has_value());
  EXPECT_EQ(put->manifest, nullptr);
  EXPECT_TRUE(HasReason(put->error, Reason::kCoordinatorRestarted));
  Advance();
  EXPECT_FALSE(Take<RemoveFiles>().has_value()) << "the abort record does not stand yet";
  leftovers_.OnOutcome(put->ticket, Outcome(4, 1, false), context_);
  Advance();
  const auto remove = Take<RemoveFiles>();
  ASSERT_TRUE(remove.has_value());
  EXPECT_TRUE(leftovers_.Contains(4, 1));
  leftovers_.OnRemoved(remove->ticket, absl::OkStatus(), context_);
  Advance();
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, Advance_HundredsWereDeleted_FewAreRemovedAtATime) {
  for (int64_t step = 1; step <= 300; ++step) leftovers_.Add({.step = step, .attempt = 1, .deleted = true});
  PassTheStart();
  int64_t removed = 0;
  std::vector<RemoveFiles> under_way;
  while (removed < 300) {
    Advance();
    for (auto remove = Take<RemoveFiles>(); remove.has_value(); remove = Take<RemoveFiles>()) {
      EXPECT_EQ(remove->latest, context_.last_committed);
      under_way.push_back(*remove);
    }
    ASSERT_LE(under_way.size(), 2u) << "saves wait for the same workers";
    ASSERT_FALSE(under_way.empty());
    EXPECT_TRUE(leftovers_.Removing(under_way.back().step, 1));
    leftovers_.OnRemoved(under_way.back().ticket, absl::OkStatus(), context_);
    under_way.pop_back();
    ++removed;
  }
  Advance();
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, Advance_RankComesBackWithIt_IsLeftToItsSave) {
  leftovers_.Add({.step = 4, .attempt = 1, .unfinished = true});
  PassTheStart();
  Report(0, InTheAttempt());
  Advance();
  EXPECT_FALSE(Take<PutOutcome>().has_value());
  Report(0, v1::AgentState());
  Advance();
  EXPECT_FALSE(Take<PutOutcome>().has_value()) << "it may only have lost the message";
  Pass(options_.lease_ttl);
  Advance();
  EXPECT_TRUE(Take<PutOutcome>().has_value());
}

// The agent is lost that brought it back. The save ends its attempt itself.
TEST_F(LeftoversTest, Advance_ASaveHasTakenItUp_IsLeftToTheSave) {
  leftovers_.Add({.step = 4, .attempt = 1, .unfinished = true});
  PassTheStart();
  const Member& member = Report(0, InTheAttempt());
  Save& save = saves_.Begin(4, context_);
  (void)save.Report(member, InTheAttempt().saves(0), context_);
  ASSERT_EQ(save.attempt(), 1u);
  Report(0, v1::AgentState());
  Pass(2 * options_.lease_ttl);
  Advance();
  EXPECT_FALSE(Take<PutOutcome>().has_value());
}

TEST_F(LeftoversTest, Advance_WasCommittedMeanwhile_IsNoLeftover) {
  leftovers_.Add({.step = 4, .attempt = 1, .unfinished = true});
  PassTheStart();
  outcomes_.Keep(Outcome(4, 1, true));
  Advance();
  EXPECT_FALSE(Take<PutOutcome>().has_value());
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, OnOutcome_StorageFails_IsTriedAgain) {
  leftovers_.Add({.step = 4, .attempt = 1, .unfinished = true});
  PassTheStart();
  Advance();
  leftovers_.OnOutcome(Take<PutOutcome>()->ticket, MakeError(Reason::kStorageError, "I/O error"), context_);
  Advance();
  EXPECT_FALSE(Take<PutOutcome>().has_value()) << "not at once";
  Pass(options_.lease_ttl);
  Advance();
  EXPECT_TRUE(Take<PutOutcome>().has_value());
}

TEST_F(LeftoversTest, OnOutcome_ADamagedOneStands_ItsFilesStay) {
  leftovers_.Add({.step = 4, .attempt = 1, .unfinished = true});
  PassTheStart();
  Advance();
  StoredAttempt damaged = Outcome(4, 1, false);
  damaged.damaged = true;
  leftovers_.OnOutcome(Take<PutOutcome>()->ticket, damaged, context_);
  Advance();
  EXPECT_FALSE(Take<RemoveFiles>().has_value());
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, Advance_WasDeletedAndALoadReadsIt_ItsFilesStayUntilTheLoadHasEnded) {
  v1::AgentState state = Trainer(100);
  v1::LoadState& load = *state.add_loads();
  load.set_number(1);
  load.set_trainer_incarnation(100);
  load.set_step(4);
  (void)loads_.Apply(Report(0, state), context_);
  leftovers_.Add({.step = 4, .attempt = 1, .deleted = true});
  leftovers_.Add({.step = 5, .attempt = 1, .deleted = true});
  Advance();
  EXPECT_FALSE(Take<RemoveFiles>().has_value()) << "loads of before the restart may come back";
  PassTheStart();
  Advance();
  auto remove = Take<RemoveFiles>();
  ASSERT_TRUE(remove.has_value());
  EXPECT_EQ(remove->step, 5) << "nobody reads that one";
  EXPECT_TRUE(remove->deleted);
  EXPECT_FALSE(Take<RemoveFiles>().has_value());
  state.mutable_loads(0)->set_phase(v1::Phase::FAILED);
  (void)loads_.Apply(Report(0, state), context_);
  while (loads_.busy()) {
    Pass(absl::Seconds(1));
    (void)loads_.Advance(context_);
  }
  Advance();
  remove = Take<RemoveFiles>();
  ASSERT_TRUE(remove.has_value());
  EXPECT_EQ(remove->step, 4);
}

TEST_F(LeftoversTest, DueRemovals_AsTheyGo_CountsDeletedAttemptsAndTheDelay) {
  leftovers_.Add({.step = 3, .attempt = 1, .unfinished = true});  // nobody finished it, and nobody deleted it
  EXPECT_EQ(leftovers_.DueRemovals(context_).attempts, 0U);
  for (const int64_t step : {4, 5}) leftovers_.Add({.step = step, .attempt = 1, .deleted = true});
  Pass(absl::Seconds(5));
  EXPECT_EQ(leftovers_.DueRemovals(context_).attempts, 2U);
  EXPECT_EQ(leftovers_.DueRemovals(context_).delay, 2 * options_.lease_ttl - absl::Seconds(5));
  PassTheStart();
  EXPECT_EQ(leftovers_.DueRemovals(context_).delay, absl::ZeroDuration());
  Advance();
  leftovers_.OnRemoved(Take<RemoveFiles>()->ticket, absl::OkStatus(), context_);
  leftovers_.OnRemoved(Take<RemoveFiles>()->ticket, MakeError(Reason::kStorageError, "I/O error"), context_);
  const Leftovers::Due left = leftovers_.DueRemovals(context_);
  EXPECT_EQ(left.attempts, 1U) << "that of the other step is gone";
  EXPECT_EQ(left.refused, 1U);
}

TEST_F(LeftoversTest, OnRemoved_DeletedFilesCouldNotBeRemoved_IsTriedAgain) {
  leftovers_.Add({.step = 4, .attempt = 1, .deleted = true});
  PassTheStart();
  Advance();
  leftovers_.OnRemoved(Take<RemoveFiles>()->ticket, MakeError(Reason::kStorageError, "I/O error"), context_);
  EXPECT_TRUE(leftovers_.Contains(4, 1));
  EXPECT_FALSE(leftovers_.Removing(4, 1));
  Pass(options_.storage_timeout);
  Advance();
  EXPECT_TRUE(Take<RemoveFiles>().has_value());
}

}  // namespace
}  // namespace cairn
