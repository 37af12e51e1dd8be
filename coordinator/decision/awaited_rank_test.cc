#include "coordinator/decision/awaited_rank.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

Member WithTrainer(uint64_t trainer) {
  Member member;
  member.state.mutable_trainer()->set_attached(trainer != 0);
  member.state.mutable_trainer()->set_incarnation(trainer);
  return member;
}

TEST(AwaitedRankTest, SeeTrainer_NoneWasEverThere_IsNotGone) {
  AwaitedRank rank;
  rank.SeeTrainer(WithTrainer(0), kNow);
  EXPECT_EQ(rank.trainer_gone(), absl::InfiniteFuture());
  EXPECT_EQ(rank.trainer(), 0u);
}

TEST(AwaitedRankTest, SeeTrainer_AnotherTakesItsPlace_IsASuccessorAndNotGoneAnyMore) {
  AwaitedRank rank;
  rank.SeeTrainer(WithTrainer(7), kNow);
  rank.SeeTrainer(WithTrainer(7), kNow);
  EXPECT_FALSE(rank.successor());
  rank.SeeTrainer(WithTrainer(0), kNow);
  rank.SeeTrainer(WithTrainer(0), kNow + absl::Seconds(1));
  EXPECT_EQ(rank.trainer_gone(), kNow);
  rank.SeeTrainer(WithTrainer(8), kNow + absl::Seconds(2));
  EXPECT_EQ(rank.trainer_gone(), absl::InfiniteFuture());
  EXPECT_TRUE(rank.successor());
  EXPECT_EQ(rank.trainer(), 8u);
}

struct Rank {
  enum Mark { kBegun, kMarks };
  uint32_t marks() const { return uint32_t{begun} << kBegun; }
  bool begun = false;
  AwaitedRank awaited;
};

TEST(AwaitedRankTest, ReleaseSuccessors_OneIsASuccessor_ItAloneHasNotBegun) {
  CountedRanks<Rank> ranks;
  ranks.Grow(2);
  OperationTimeline timeline(v1::Timeline::SAVE, kNow, kNow);
  for (size_t i = 0; i < 2; ++i) {
    ranks.Change(i, [](Rank& rank) {
      rank.awaited.SeeTrainer(WithTrainer(7), kNow);
      rank.begun = true;
    });
  }
  ranks.Change(1, [](Rank& rank) { rank.awaited.TakeCall(8); });
  ReleaseSuccessors(ranks, timeline);
  EXPECT_TRUE(ranks[0].begun);
  EXPECT_FALSE(ranks[1].begun);
  EXPECT_TRUE(ranks[1].awaited.successor());
  EXPECT_EQ(ranks.count(Rank::kBegun), 1u);
}

}  // namespace
}  // namespace cairn
