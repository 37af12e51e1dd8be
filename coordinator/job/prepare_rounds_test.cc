#include "coordinator/job/prepare_rounds.h"

#include <vector>

#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class PrepareRoundsTest : public PartTest {
 protected:
  PrepareRoundsTest() { RegisterAll(2); }

  const Member& Call(int rank, uint64_t calls, uint64_t trainer = 50) {
    v1::AgentState state = Trainer(trainer, "layout");
    state.mutable_trainer()->set_prepare_calls(calls);
    return Report(rank, state);
  }

  PrepareRounds rounds_;
};

TEST_F(PrepareRoundsTest, Behind_OneHasCalledMoreOften_IsTheOther) {
  EXPECT_TRUE(rounds_.Behind(members_).empty());
  Call(0, 1);
  EXPECT_EQ(rounds_.Behind(members_), std::vector<int>{1});
  Call(1, 1);
  EXPECT_TRUE(rounds_.Behind(members_).empty());
  EXPECT_EQ(rounds_.Most(members_), 1u);
}

TEST_F(PrepareRoundsTest, Fit_AllHaveCalled_ClosesTheRound) {
  Call(0, 1);
  const Member& last = Call(1, 1);
  rounds_.Fit(members_);
  EXPECT_EQ(rounds_.Most(members_), 0u);
  const uint64_t version = rounds_.version();
  rounds_.Fit(members_);
  EXPECT_EQ(rounds_.version(), version) << "nothing has changed";
  Call(1, 2);
  EXPECT_EQ(rounds_.CallsOf(last), 1u);
  EXPECT_EQ(rounds_.Behind(members_), std::vector<int>{0});
}

TEST_F(PrepareRoundsTest, Fit_OneIsARoundAhead_IsStillAhead) {
  Call(0, 1);
  rounds_.Close(members_);
  Call(0, 2);
  rounds_.Fit(members_);
  Call(0, 3);
  Call(1, 1);
  EXPECT_EQ(rounds_.Behind(members_), std::vector<int>{1});
}

// It prepares what the job has already; the others have no reason to.
TEST_F(PrepareRoundsTest, Fit_TrainerWasRestartedAlone_IsNotAheadOfTheOthers) {
  Call(0, 3);
  Call(1, 3);
  rounds_.Close(members_);
  Call(1, 1, 60);
  EXPECT_EQ(rounds_.Behind(members_), std::vector<int>{0});
  rounds_.Fit(members_);
  EXPECT_TRUE(rounds_.Behind(members_).empty());
  Call(0, 4);
  Call(1, 2, 60);
  EXPECT_TRUE(rounds_.Behind(members_).empty());
}

TEST_F(PrepareRoundsTest, CallsOf_TrainerHasEnded_AreNone) {
  Call(0, 3);
  Call(1, 3);
  rounds_.Close(members_);
  v1::AgentState state = Trainer(0, "layout");
  state.mutable_trainer()->set_attached(false);
  EXPECT_EQ(rounds_.CallsOf(Report(1, state)), 0u);
  EXPECT_TRUE(rounds_.Behind(members_).empty());
}

// The agent counts anew.
TEST_F(PrepareRoundsTest, CallsOf_AgentWasRestarted_AreThoseThatItCounts) {
  Call(1, 3);
  rounds_.Close(members_);
  members_.Remove(1);
  RegisterAll(2);
  EXPECT_EQ(rounds_.CallsOf(Call(1, 0)), 0u);
  EXPECT_EQ(rounds_.CallsOf(Call(1, 1)), 1u);
}

}  // namespace
}  // namespace cairn
