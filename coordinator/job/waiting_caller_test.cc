#include "coordinator/job/waiting_caller.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr uint64_t kEpoch = 7;
constexpr absl::Duration kLong = absl::Seconds(1);

v1::Checkpoint Checkpoint(v1::Phase::Value state, uint64_t revision) {
  v1::Checkpoint checkpoint;
  checkpoint.set_state(state);
  checkpoint.set_revision(revision);
  return checkpoint;
}

TEST(WaitingCallerTest, CallerKnowsNothing_IsAnsweredAtOnce) {
  EXPECT_TRUE(IsAnswered({}, Checkpoint(v1::Phase::PREPARING, 1), kEpoch));
  EXPECT_TRUE(IsAnswered({}, 1));
}

TEST(WaitingCallerTest, NothingNew_WaitsOn) {
  EXPECT_FALSE(IsAnswered({5, kEpoch, kLong}, Checkpoint(v1::Phase::WRITING, 5), kEpoch));
  EXPECT_FALSE(IsAnswered({5, kEpoch, kLong}, Checkpoint(v1::Phase::COMMITTED, 5), kEpoch));
  EXPECT_FALSE(IsAnswered({5, kEpoch, kLong}, 5));
}

TEST(WaitingCallerTest, Progress_IsToldAtAPaceThatPeopleCanFollow) {
  const v1::Checkpoint writing = Checkpoint(v1::Phase::WRITING, 6);
  EXPECT_FALSE(IsAnswered({5, kEpoch, absl::Milliseconds(99)}, writing, kEpoch));
  EXPECT_TRUE(IsAnswered({5, kEpoch, absl::Milliseconds(100)}, writing, kEpoch));
  EXPECT_FALSE(IsAnswered({5, kEpoch, absl::Milliseconds(99)}, 6));
  EXPECT_TRUE(IsAnswered({5, kEpoch, absl::Milliseconds(100)}, 6));
}

TEST(WaitingCallerTest, End_IsToldAtOnce) {
  for (const auto state : {v1::Phase::COMMITTED, v1::Phase::ABORTED, v1::Phase::DAMAGED, v1::Phase::DELETED}) {
    EXPECT_TRUE(IsAnswered({5, kEpoch, absl::ZeroDuration()}, Checkpoint(state, 6), kEpoch)) << state;
  }
  EXPECT_FALSE(IsAnswered({5, kEpoch, absl::ZeroDuration()}, Checkpoint(v1::Phase::ABORTING, 6), kEpoch));
}

// Revisions count within an epoch.
TEST(WaitingCallerTest, ToldByAnEarlierCoordinator_AnyRevisionIsNews) {
  EXPECT_TRUE(IsAnswered({500, kEpoch - 1, kLong}, Checkpoint(v1::Phase::COLLECTING, 1), kEpoch));
}

TEST(WaitingCallerTest, RequestThatAnEarlierCoordinatorTook_WaitsUntilItsFateIsCertain) {
  const WaitingCaller caller = {5, kEpoch - 1, kLong};
  v1::Checkpoint checkpoint = Checkpoint(v1::Phase::PREPARING, 6);
  EXPECT_FALSE(IsAnswered(caller, checkpoint, kEpoch));
  checkpoint.set_step(40);
  EXPECT_TRUE(IsAnswered(caller, checkpoint, kEpoch)) << "the ranks have agreed on its step";
  EXPECT_TRUE(IsAnswered(caller, Checkpoint(v1::Phase::ABORTED, 6), kEpoch));
}

}  // namespace
}  // namespace cairn
