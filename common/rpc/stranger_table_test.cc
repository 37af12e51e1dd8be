#include "common/rpc/stranger_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StrangerTable::Limits kLimits = {.most = 4, .longest = absl::Seconds(5), .least = absl::Seconds(1)};

class StrangerTableTest : public ::testing::Test {
 protected:
  StrangerTable::Number Enter(std::string_view group) {
    const StrangerTable::Admission admission = table_.Admit(group, now_);
    EXPECT_TRUE(admission.admitted.has_value());
    evicted_ = admission.evicted;
    return admission.admitted.value_or(0);
  }
  StrangerTable::Number EnterAndSpeak(std::string_view group) {
    const StrangerTable::Number number = Enter(group);
    table_.Spoke(number);
    return number;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  StrangerTable table_{kLimits};
  std::optional<StrangerTable::Number> evicted_;  // for the newest one
};

TEST_F(StrangerTableTest, Admit_ThereIsRoom_EvictsNobody) {
  for (size_t i = 0; i < kLimits.most; ++i) {
    Enter("a");
    EXPECT_EQ(evicted_, std::nullopt);
  }
  EXPECT_EQ(table_.size(), kLimits.most);
}

TEST_F(StrangerTableTest, Admit_FullOfSilentOnes_TheOldestMakesRoom) {
  const auto first = Enter("a");
  for (int i = 0; i < 3; ++i) Enter("a");
  Enter("a");
  EXPECT_EQ(evicted_, first);
  EXPECT_EQ(table_.size(), kLimits.most);
}

TEST_F(StrangerTableTest, Admit_OneHasSpoken_ASilentOneThatIsYoungerMakesRoom) {
  EnterAndSpeak("a");
  const auto silent = Enter("a");
  for (int i = 0; i < 2; ++i) Enter("a");
  Enter("a");
  EXPECT_EQ(evicted_, silent);
}

TEST_F(StrangerTableTest, Admit_AllOfTheGroupHaveJustSpoken_TheNewcomerIsRefusedUntilTheOldestHadItsTime) {
  const auto first = EnterAndSpeak("a");
  for (int i = 0; i < 3; ++i) EnterAndSpeak("a");
  EXPECT_EQ(table_.Admit("a", now_).admitted, std::nullopt);
  now_ += kLimits.least;
  Enter("a");
  EXPECT_EQ(evicted_, first);
}

TEST_F(StrangerTableTest, Admit_AnotherGroupHasMore_ItMakesRoomAtOnce) {
  const auto flood = EnterAndSpeak("flood");
  for (int i = 0; i < 3; ++i) EnterAndSpeak("flood");
  Enter("peer");
  EXPECT_EQ(evicted_, flood);
  // Now a flood cannot take the place back.
  for (int i = 0; i < 20; ++i) {
    now_ += absl::Milliseconds(100);
    table_.Admit("flood", now_);
  }
  const size_t before = table_.size();
  table_.Remove(5);
  EXPECT_EQ(table_.size(), before - 1) << "the peer was there";
}

TEST_F(StrangerTableTest, Admit_EverybodyHasOneAndSpeaks_NobodyIsDrivenOutBeforeItsTime) {
  for (int i = 0; i < 4; ++i) EnterAndSpeak(absl::StrCat(i));
  EXPECT_EQ(table_.Admit("new", now_).admitted, std::nullopt);
  now_ += kLimits.least;
  Enter("new");
  EXPECT_EQ(evicted_, 1);
}

TEST_F(StrangerTableTest, Admit_EverybodyHasOne_TheOldestSilentOneMakesRoom) {
  EnterAndSpeak("d");
  Enter("c");
  Enter("b");
  Enter("a");
  Enter("new");
  EXPECT_EQ(evicted_, 2);
}

TEST_F(StrangerTableTest, Admit_ATableWithoutPlaces_RefusesEverybody) {
  StrangerTable none({.most = 0, .longest = absl::Seconds(1), .least = absl::Seconds(1)});
  const StrangerTable::Admission admission = none.Admit("a", now_);
  EXPECT_EQ(admission.admitted, std::nullopt);
  EXPECT_EQ(admission.evicted, std::nullopt);
}

TEST_F(StrangerTableTest, TakeExpired_SomeHadTheirTime_ReturnsTheseOnce) {
  EXPECT_EQ(table_.NextExpiry(), absl::InfiniteFuture());
  const auto first = Enter("a");
  const absl::Time began = now_;
  now_ += absl::Seconds(2);
  const auto second = EnterAndSpeak("b");
  EXPECT_EQ(table_.NextExpiry(), began + kLimits.longest);
  EXPECT_THAT(table_.TakeExpired(began + kLimits.longest - absl::Nanoseconds(1)), IsEmpty());
  EXPECT_THAT(table_.TakeExpired(began + kLimits.longest), ElementsAre(first));
  EXPECT_THAT(table_.TakeExpired(began + kLimits.longest), IsEmpty());
  EXPECT_THAT(table_.TakeExpired(absl::InfiniteFuture()), ElementsAre(second));
  EXPECT_EQ(table_.size(), 0);
}

TEST_F(StrangerTableTest, Remove_ItWasForgottenBefore_DoesNothing) {
  const auto first = Enter("a");
  table_.Remove(first);
  table_.Remove(first);
  table_.Spoke(first);
  EXPECT_EQ(table_.size(), 0);
}

// In any sequence of calls the table never exceeds its limit, and a newcomer of an empty group gets a place whenever
// another group has two.
TEST(StrangerTablePropertyTest, Admit_ManyRandomTurns_KeepsTheBoundAndTheShares) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StrangerTable::Limits limits = {
        .most = 1 + random() % 12, .longest = absl::Seconds(5), .least = absl::Seconds(1)};
    StrangerTable table(limits);
    std::map<StrangerTable::Number, std::string> model;
    absl::Time now = absl::UnixEpoch();
    for (int turn = 0; turn < 400; ++turn) {
      now += absl::Milliseconds(random() % 300);
      for (const auto number : table.TakeExpired(now)) ASSERT_EQ(model.erase(number), 1);
      const std::string group = absl::StrCat(random() % 5);
      std::map<std::string, size_t> sizes;
      for (const auto& [number, name] : model) ++sizes[name];
      size_t largest = 0;
      for (const auto& [name, size] : sizes) largest = std::max(largest, size);
      const StrangerTable::Admission admission = table.Admit(group, now);
      if (admission.evicted) {
        ASSERT_EQ(model.size(), limits.most);
        const std::string loser = model.at(*admission.evicted);
        EXPECT_GE(sizes[loser], std::min(largest, sizes[group] + 1)) << "a smaller group has lost";
        model.erase(*admission.evicted);
      }
      if (admission.admitted) {
        ASSERT_TRUE(model.emplace(*admission.admitted, group).second);
        if (random() % 2 == 0) table.Spoke(*admission.admitted);
      } else {
        EXPECT_EQ(model.size(), limits.most);
        EXPECT_GE(sizes[group] + 1, largest) << "it was refused although another group has more";
      }
      ASSERT_EQ(table.size(), model.size());
      ASSERT_LE(model.size(), limits.most);
      if (!model.empty() && random() % 4 == 0) {
        auto gone = model.begin();
        std::advance(gone, random() % model.size());
        table.Remove(gone->first);
        model.erase(gone);
      }
    }
  }
}

}  // namespace
}  // namespace cairn
