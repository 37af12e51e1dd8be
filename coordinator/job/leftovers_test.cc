#include "coordinator/job/leftovers.h"

#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class LeftoversTest : public PartTest {
 protected:
  LeftoversTest() { RegisterAll(1); }

  void Advance() { leftovers_.Advance(saves_, verdicts_, context_); }
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
  VerdictBook verdicts_;
  Leftovers leftovers_;
};

TEST_F(LeftoversTest, Advance_NobodyComesBack_GetsATombstoneAndIsRemoved) {
  leftovers_.Add({4, 1});
  Advance();
  EXPECT_FALSE(Take<PutVerdict>().has_value()) << "its agents may come back with it";
  PassTheStart();
  Advance();
  const auto put = Take<PutVerdict>();
  ASSERT_TRUE(put.has_value());
  EXPECT_EQ(put->manifest, nullptr);
  EXPECT_TRUE(HasReason(put->error, Reason::kCoordinatorRestarted));
  Advance();
  EXPECT_FALSE(Take<RemoveFiles>().has_value()) << "the tombstone does not stand yet";
  leftovers_.OnVerdict(put->ticket, Verdict(4, 1, false), context_);
  Advance();
  const auto remove = Take<RemoveFiles>();
  ASSERT_TRUE(remove.has_value());
  EXPECT_TRUE(leftovers_.Contains(4, 1));
  leftovers_.OnRemoved(remove->ticket);
  Advance();
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, Advance_RankComesBackWithIt_IsLeftToItsSave) {
  leftovers_.Add({4, 1});
  PassTheStart();
  Report(0, InTheAttempt());
  Advance();
  EXPECT_FALSE(Take<PutVerdict>().has_value());
  Report(0, v1::AgentState());
  Advance();
  EXPECT_FALSE(Take<PutVerdict>().has_value()) << "it may only have lost the message";
  Pass(options_.lease_ttl);
  Advance();
  EXPECT_TRUE(Take<PutVerdict>().has_value());
}

TEST_F(LeftoversTest, Advance_WasCommittedMeanwhile_IsNoLeftover) {
  leftovers_.Add({4, 1});
  PassTheStart();
  verdicts_.Keep(Verdict(4, 1, true));
  Advance();
  EXPECT_FALSE(Take<PutVerdict>().has_value());
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, OnVerdict_StorageFails_IsTriedAgain) {
  leftovers_.Add({4, 1});
  PassTheStart();
  Advance();
  leftovers_.OnVerdict(Take<PutVerdict>()->ticket, MakeError(Reason::kStorageError, "I/O error"), context_);
  Advance();
  EXPECT_FALSE(Take<PutVerdict>().has_value()) << "not at once";
  Pass(options_.lease_ttl);
  Advance();
  EXPECT_TRUE(Take<PutVerdict>().has_value());
}

TEST_F(LeftoversTest, OnVerdict_ADamagedOneStands_ItsFilesStay) {
  leftovers_.Add({4, 1});
  PassTheStart();
  Advance();
  VerdictSummary damaged = Verdict(4, 1, false);
  damaged.damaged = true;
  leftovers_.OnVerdict(Take<PutVerdict>()->ticket, damaged, context_);
  Advance();
  EXPECT_FALSE(Take<RemoveFiles>().has_value());
  EXPECT_TRUE(leftovers_.empty());
}

}  // namespace
}  // namespace cairn
