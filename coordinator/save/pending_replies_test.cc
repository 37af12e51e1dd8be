#include "coordinator/save/pending_replies.h"

#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

constexpr int64_t kStep = 4;
constexpr uint64_t kTrainer = 50;

class PendingRepliesTest : public PartTest {
 protected:
  PendingRepliesTest() {
    RegisterAll(2);
    replies_.Open(kStep, 2, context_.now + absl::Seconds(20));
  }

  static v1::SaveState Call(uint64_t number) {
    v1::SaveState call;
    call.set_step(kStep);
    call.set_call(number);
    call.set_trainer_incarnation(kTrainer);
    return call;
  }
  // The rank's agent reports these calls.
  const Member& Speaks(int rank, const std::vector<v1::SaveState>& calls) {
    v1::AgentState state = Trainer(kTrainer);
    for (const v1::SaveState& call : calls) *state.add_saves() = call;
    const Member& member = Report(rank, state);
    replies_.OnReport(member, std::nullopt, context_.now);
    return member;
  }
  std::vector<int> GiveAfter(absl::Duration time) {
    Pass(time);
    return replies_.Give(members_, context_.now);
  }

  PendingReplies replies_;
};

TEST_F(PendingRepliesTest, Hold_TrainerThatWaits_GetsItsReplyAfterTheGrace) {
  replies_.Expect(0, kTrainer);
  const Member& member = Speaks(0, {Call(2)});
  replies_.Hold(member, Call(2), context_.now);
  EXPECT_TRUE(replies_.Holds(member, Call(2)));
  EXPECT_FALSE(replies_.Holds(member, Call(3))) << "a later call is another one";
  EXPECT_EQ(GiveAfter(kNextAttemptGrace - absl::Milliseconds(1)), std::vector<int>());
  EXPECT_EQ(GiveAfter(absl::Milliseconds(1)), std::vector<int>{0});
  EXPECT_TRUE(replies_.Gave(member, Call(2)));
  EXPECT_EQ(GiveAfter(absl::Hours(1)), std::vector<int>()) << "once";
}

TEST_F(PendingRepliesTest, Hold_NoReplyIsPending_DoesNothing) {
  replies_.Expect(0, 0);
  const Member& member = Speaks(0, {Call(2)});
  replies_.Hold(member, Call(2), context_.now);
  EXPECT_FALSE(replies_.Holds(member, Call(2)));
  replies_.Expect(1, kTrainer + 1);
  const Member& other = Speaks(1, {Call(2)});
  replies_.Hold(other, Call(2), context_.now);
  EXPECT_FALSE(replies_.Holds(other, Call(2))) << "another trainer has the rank by now";
}

TEST_F(PendingRepliesTest, OnReport_AgentHadNotComeBack_ItsFirstReportTellsWhoWaits) {
  const Member& member = Speaks(0, {});
  replies_.Hold(member, Call(1), context_.now);
  EXPECT_TRUE(replies_.Holds(member, Call(1)));
  Pass(absl::Seconds(21));
  const Member& late = Speaks(1, {});
  replies_.Hold(late, Call(1), context_.now);
  EXPECT_FALSE(replies_.Holds(late, Call(1))) << "one that comes much later has a new trainer";
}

TEST_F(PendingRepliesTest, OnReport_AgentSpeaksOfTheCallNoMore_TheTrainerHasHeard) {
  replies_.Expect(0, kTrainer);
  replies_.Hold(Speaks(0, {Call(2)}), Call(2), context_.now);
  EXPECT_EQ(GiveAfter(kNextAttemptGrace), std::vector<int>{0});
  const Member& member = Speaks(0, {});
  replies_.Hold(member, Call(3), context_.now);
  EXPECT_FALSE(replies_.Holds(member, Call(3)));
}

TEST_F(PendingRepliesTest, Give_AgentIsGone_IsKept) {
  replies_.Expect(0, kTrainer);
  replies_.Hold(Speaks(0, {Call(2)}), Call(2), context_.now);
  members_.Remove(0);
  EXPECT_EQ(GiveAfter(kNextAttemptGrace), std::vector<int>()) << "nobody would hear it";
}

TEST_F(PendingRepliesTest, Drop_LaterAttemptHasBegun_CallsBelongToThatOne) {
  replies_.Expect(0, kTrainer);
  const Member& member = Speaks(0, {Call(2)});
  replies_.Hold(member, Call(2), context_.now);
  replies_.Drop();
  EXPECT_FALSE(replies_.Holds(member, Call(2)));
  EXPECT_EQ(GiveAfter(kNextAttemptGrace), std::vector<int>());
  replies_.Hold(member, Call(3), context_.now);
  EXPECT_FALSE(replies_.Holds(member, Call(3)));
}

TEST_F(PendingRepliesTest, Heard_InAnotherWay_NoReplyIsPending) {
  replies_.Expect(0, kTrainer);
  replies_.Heard(0);
  const Member& member = Speaks(0, {Call(2)});
  replies_.Hold(member, Call(2), context_.now);
  EXPECT_FALSE(replies_.Holds(member, Call(2)));
}

}  // namespace
}  // namespace cairn
