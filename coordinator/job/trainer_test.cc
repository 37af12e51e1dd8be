// Trainers that end or are replaced while a save is under way: who is missed, and whose successors begin anew.
#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

using TrainerTest = TwoRankFixture;

TEST_F(TrainerTest, Trainer_SuccessorOfOneThatEndedBeforeItBegan_TakesItsPlace) {
  // A client that closes and another that connects look like this when the news of the first is late.
  Report(0, Trainer(0), {Begun(0, 2)});
  Report(1, 0);
  Pass(absl::Seconds(1));
  Report(1, 999, {Begun(1, 2)});
  EXPECT_NE(OrderOf(0, 2).phase(), v1::Phase::ABORTING);
  EXPECT_TRUE(Take<PlanSave>().has_value()) << "both are in it";
}

TEST_F(TrainerTest, WhatAPredecessorStaged_IsNotCommittedWithTheirSuccessors) {
  v1::SaveState staged = Begun(0, 1);
  staged.set_phase(v1::Phase::STAGED);
  staged.set_trainer_incarnation(Trainer(0));
  Report(0, 900, {staged});  // all trainers start again before rank 1 has begun; the agent tells both in one message
  Report(1, 901);
  Pass(absl::Seconds(1));
  const v1::SaveOrder order = OrderOf(0, 1);
  EXPECT_TRUE(HasReason(StatusFromProto(order.error()), Reason::kTrainerLost)) << order.ShortDebugString();
  EXPECT_EQ(MetadataOf(StatusFromProto(order.error()))["ranks"], "0");
}

TEST_F(TrainerTest, TrainerThatLeftAfterItStaged_IsNotMissed) {
  v1::SaveState staged = Begun(0, 1);
  staged.set_phase(v1::Phase::STAGED);
  Report(0, Trainer(0), {staged});
  Report(0, 0, {staged});
  Pass(absl::Seconds(1));
  EXPECT_EQ(job().View(At()).checkpoint().state(), v1::Phase::COLLECTING);
}

TEST_F(TrainerTest, TrainerThatEndsAndHasNoSuccessor_IsNamed) {
  DecisionOptions options = Options();
  options.lease_ttl = absl::Seconds(10);
  Start(options);
  for (int second = 0; second <= 10; ++second) {
    Report(0, Trainer(0), {Begun(0, 2)});
    Report(1, 0);
    Pass(absl::Seconds(1));
  }
  EXPECT_EQ(ErrorOf(OrderOf(0, 2)), Reason::kTrainerLost) << OrderOf(0, 2).error().message();
}

TEST_F(TrainerTest, Outcome_OfAPredecessor_IsNotToldToItsSuccessor) {
  // The first trainer of rank 0 begins; both are killed; rank 1's successor begins before rank 0's death is known.
  Report(0, Trainer(0), {Begun(0, 1)});
  Report(1, 0);
  Report(1, 901, {Begun(1, 1)});
  Report(0, 0, {Begun(0, 1)});
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kTrainerLost);
  Pass(absl::Seconds(1));
  EXPECT_EQ(OrderOf(1, 1).phase(), v1::Phase::WAITING) << OrderOf(1, 1).ShortDebugString();
  // The successor of rank 0 joins it.
  Report(0, 900, {Begun(0, 1, 2)});
  EXPECT_TRUE(Take<PlanSave>().has_value());
}

TEST_F(TrainerTest, Trainer_AttachedAfterTheAbort_BeginsANewSave) {
  Report(0, Trainer(0), {Begun(0, 1)});
  Report(0, 0, {Begun(0, 1)});
  Report(1, 901);
  Report(1, 901, {Begun(1, 1)});
  EXPECT_EQ(OrderOf(1, 1).phase(), v1::Phase::WAITING);
}

}  // namespace
}  // namespace cairn
