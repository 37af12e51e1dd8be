#include "agent/runtime/link_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cairn {
namespace {

class LinkPaceTest : public ::testing::Test {
 protected:
  LinkPace Pace(uint32_t world) {
    return LinkPace(world, [this] { return chance_; });
  }
  const absl::Time now_ = absl::UnixEpoch() + absl::Hours(3);
  double chance_ = 0.5;
};

TEST_F(LinkPaceTest, Agent_ThatWasNeverRefused_MayCallAtOnce) {
  const LinkPace pace = Pace(16384);
  EXPECT_LE(pace.transfer_from(), now_);
  EXPECT_LE(pace.register_from(), now_);
}

TEST_F(LinkPaceTest, ToldDelay_WithinAFifth_IsKeptByTransfersAndRegistrations) {
  for (const auto& [chance, seconds] : std::vector<std::pair<double, double>>{{0, 8}, {0.5, 10}, {1, 12}}) {
    LinkPace pace = Pace(8);
    chance_ = chance;
    pace.OnOverloaded(absl::Seconds(10), now_);
    EXPECT_EQ(pace.transfer_from() - now_, absl::Seconds(seconds)) << chance;
    EXPECT_EQ(pace.register_from() - now_, absl::Seconds(seconds)) << chance;
  }
}

TEST_F(LinkPaceTest, ToldDelay_BeyondAMinute_IsKeptForAMinute) {
  LinkPace pace = Pace(8);
  pace.OnOverloaded(absl::InfiniteDuration(), now_);
  EXPECT_EQ(pace.transfer_from() - now_, absl::Minutes(1));
  LinkPace negative = Pace(8);
  negative.OnOverloaded(-absl::Hours(1), now_);
  EXPECT_EQ(negative.transfer_from(), now_);
}

TEST_F(LinkPaceTest, ShorterDelay_AfterALongerOne_DoesNotShortenIt) {
  LinkPace pace = Pace(8);
  pace.OnOverloaded(absl::Seconds(30), now_);
  pace.OnOverloaded(absl::Seconds(1), now_ + absl::Seconds(1));
  EXPECT_EQ(pace.transfer_from() - now_, absl::Seconds(30));
}

TEST_F(LinkPaceTest, LostAgents_OfSmallWorlds_RegisterWithin50Milliseconds) {
  chance_ = 1;
  for (const uint32_t world : {1u, 2u, 64u, 255u}) {
    LinkPace pace = Pace(world);
    pace.OnLost(absl::Seconds(10), now_);
    EXPECT_LE(pace.register_from() - now_, absl::Milliseconds(50)) << world;
    EXPECT_LE(pace.transfer_from(), now_) << "only registrations are spread";
  }
}

TEST_F(LinkPaceTest, LostAgents_OfLargeWorlds_SpreadOverAProportionalPartOfTheLease) {
  chance_ = 1;
  for (const auto& [world, seconds] :
       std::vector<std::pair<uint32_t, double>>{{1024, 0.625}, {8192, 5}, {16384, 10}, {100'000, 10}}) {
    LinkPace pace = Pace(world);
    pace.OnLost(absl::Seconds(10), now_);
    EXPECT_EQ(pace.register_from() - now_, absl::Seconds(seconds)) << world;
  }
}

TEST_F(LinkPaceTest, LostAgents_OfAWorldOf16384_ComeEvenlyOverOneLease) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<int> in_slice(100);  // of a hundredth of the lease each: 164 on the average
  for (int agent = 0; agent < 16384; ++agent) {
    LinkPace pace(16384, [&] { return chance(random); });
    pace.OnLost(absl::Seconds(10), now_);
    const absl::Duration after = pace.register_from() - now_;
    ASSERT_GE(after, absl::ZeroDuration());
    ASSERT_LT(after, absl::Seconds(10));
    ++in_slice[static_cast<size_t>(absl::ToDoubleSeconds(after) * 10)];
  }
  // This is eight standard deviations above the mean.
  EXPECT_LT(*std::max_element(in_slice.begin(), in_slice.end()), 164 + 8 * 13);
}

TEST_F(LinkPaceTest, LaterLoss_WithANewDraw_CountsInsteadOfTheFirst) {
  LinkPace pace = Pace(16384);
  chance_ = 0.9;
  pace.OnLost(absl::Seconds(10), now_);
  chance_ = 0.1;
  pace.OnLost(absl::Seconds(10), now_);
  EXPECT_EQ(pace.register_from() - now_, absl::Seconds(1));
}

TEST_F(LinkPaceTest, Overload_DuringTheSpread_HoldsTheRegistrationForTheLonger) {
  LinkPace pace = Pace(16384);
  pace.OnLost(absl::Seconds(10), now_);
  pace.OnOverloaded(absl::Seconds(20), now_);
  EXPECT_EQ(pace.register_from() - now_, absl::Seconds(20));
}

}  // namespace
}  // namespace cairn
