#include "coordinator/job/prepare_answers.h"

#include <string>

#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

using Answer = PrepareAnswers::Answer;

class PrepareAnswersTest : public PartTest {
 protected:
  PrepareAnswersTest() { RegisterAll(2); }

  // `calls`: 0 if the trainer is in no call.
  const Member& Call(int rank, uint64_t calls, const std::string& layout, uint64_t trainer = 50) {
    v1::AgentState state = Trainer(trainer, layout);
    state.mutable_trainer()->set_prepare_calls(calls);
    return Report(rank, state);
  }

  PrepareAnswers answers_;
};

TEST_F(PrepareAnswersTest, Of_ACallThatGotThePlan_StaysSoUntilTheNextCall) {
  const Member& first = Call(0, 1, "a");
  EXPECT_TRUE(answers_.Waits(first) && answers_.AnyWaits(members_));
  EXPECT_FALSE(answers_.AllWait(members_));
  const Member& second = Call(1, 1, "a");
  EXPECT_TRUE(answers_.AllWait(members_));
  answers_.OnPlan(members_);
  EXPECT_EQ(answers_.Of(first), Answer::kPlan);
  answers_.GiveError(members_);
  EXPECT_EQ(answers_.Of(second), Answer::kPlan) << "it has its answer";
  EXPECT_TRUE(answers_.Waits(Call(0, 2, "b")));
  EXPECT_TRUE(answers_.Waits(Call(1, 1, "a", 51))) << "another trainer";
  EXPECT_FALSE(answers_.Waits(Call(1, 0, "a"))) << "it is in no call";
}

TEST_F(PrepareAnswersTest, GivePlanToThoseBehind_ACallBehindWithThePlansLayout_GetsIt) {
  Call(0, 1, "a");
  Call(1, 1, "a");
  answers_.OnPlan(members_);
  const Member& late = Call(1, 2, "a");
  answers_.GivePlanToThoseBehind(members_);
  EXPECT_TRUE(answers_.Waits(late)) << "nobody has been answered more often";
  answers_.GivePlan(Call(0, 2, "a"));
  answers_.GivePlanToThoseBehind(members_);
  EXPECT_EQ(answers_.Of(late), Answer::kPlan);
}

TEST_F(PrepareAnswersTest, GivePlanToThoseBehind_ACallWithAnotherLayout_Waits) {
  Call(0, 1, "a");
  Call(1, 1, "a");
  answers_.OnPlan(members_);
  answers_.GivePlan(Call(0, 2, "a"));
  const Member& changed = Call(1, 2, "b");
  answers_.GivePlanToThoseBehind(members_);
  EXPECT_TRUE(answers_.Waits(changed));
}

}  // namespace
}  // namespace cairn
