#include "agent/transport/window_offers.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

v1::OfferWindowsRequest Part(uint32_t consumer, uint32_t part, bool last) {
  v1::OfferWindowsRequest request;
  request.mutable_transfer()->set_consumer_rank(consumer);
  request.set_part(part);
  request.set_last(last);
  return request;
}

void Add(uint32_t window, uint64_t offset, uint64_t bytes, v1::OfferWindowsRequest& request) {
  v1::OfferedWindow& offered = *request.add_windows();
  offered.set_window(window);
  v1::Copy& copy = *offered.add_copies();
  copy.set_source_offset(offset);
  copy.set_element_bytes(bytes);
}

TEST(WindowOffersTest, Await_AllHaveTold_GivesTheirWindows) {
  WindowOffers offers(100);
  auto first = Part(1, 0, false);
  Add(0, 0, 10, first);
  Add(1, 10, 20, first);
  auto second = Part(1, 1, true);
  Add(1, 50, 5, second);  // goes on
  Add(2, 60, 40, second);
  EXPECT_TRUE(offers.Take(first).ok());
  EXPECT_TRUE(offers.Take(first).ok()) << "its answer may have been lost";
  EXPECT_TRUE(offers.Take(second).ok());
  EXPECT_TRUE(offers.Take(second).ok());
  EXPECT_TRUE(offers.Take(Part(2, 0, true)).ok());
  const auto all = offers.Await({1, 2}, absl::ZeroDuration());
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->at(1).size(), 3);
  EXPECT_EQ(all->at(1)[1].copies.bytes, 25);
  EXPECT_EQ(all->at(1)[1].copies.copies.size(), 2);
  EXPECT_TRUE(all->at(2).empty());
}

TEST(WindowOffersTest, Await_SomeHaveNotTold_NamesThem) {
  WindowOffers offers(100);
  EXPECT_TRUE(offers.Take(Part(1, 0, true)).ok());
  EXPECT_TRUE(offers.Take(Part(3, 0, false)).ok());
  const auto all = offers.Await({1, 2, 3}, absl::ZeroDuration());
  EXPECT_TRUE(HasReason(all.status(), Reason::kTimedOut));
  EXPECT_EQ(MetadataOf(all.status())["ranks"], "2, 3");
}

// What a consumer is told, or nothing.
std::optional<absl::StatusOr<std::vector<uint32_t>>> Told(WindowOffers& offers, uint32_t consumer) {
  std::optional<absl::StatusOr<std::vector<uint32_t>>> told;
  const uint64_t call = offers.AwaitBroadcast(consumer, [&](auto answer) { told = std::move(answer); });
  offers.Forget(call);
  return told;
}

TEST(WindowOffersTest, AwaitBroadcast_AllTakeSomeWindowsAlike_NumbersThemForEach) {
  WindowOffers offers(100);
  std::optional<std::vector<uint32_t>> answered;
  offers.AwaitBroadcast(1, [&](auto answer) { answered = *answer; });
  offers.Expect({1, 2, 3});
  for (const uint32_t consumer : {1, 2, 3}) {
    EXPECT_FALSE(answered.has_value());
    EXPECT_EQ(offers.missing().size(), 4u - consumer);
    auto part = Part(consumer, 0, true);
    Add(0, 0, 10, part);
    if (consumer != 2) Add(1, 10, 10, part);    // one takes nothing there
    Add(2, consumer == 3 ? 21 : 20, 10, part);  // one takes other bytes
    Add(3, 30, 10, part);                       // one takes more
    if (consumer == 1) *part.mutable_windows(3)->add_copies() = part.windows(0).copies(0);
    Add(5, 50, 10, part);
    ASSERT_TRUE(offers.Take(part).ok());
  }
  EXPECT_EQ(answered, (std::vector<uint32_t>{0, 4}));
  EXPECT_EQ(**Told(offers, 2), (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(**Told(offers, 3), (std::vector<uint32_t>{0, 4}));
  const auto all = offers.Await({1, 2, 3}, absl::ZeroDuration());
  ASSERT_TRUE(all.ok());
  for (const auto& [consumer, windows] : *all) {
    for (const OfferedCopies& window : windows) {
      EXPECT_EQ(window.broadcast, window.window == 0 || window.window == 5) << consumer << " " << window.window;
    }
  }
  EXPECT_EQ(**Told(offers, 2), (std::vector<uint32_t>{0, 3})) << "its first answer may have been lost";
}

TEST(WindowOffersTest, AwaitBroadcast_OneConsumer_IsSentTo) {
  WindowOffers offers(100);
  offers.Expect({1});
  auto part = Part(1, 0, true);
  Add(0, 0, 10, part);
  ASSERT_TRUE(offers.Take(part).ok());
  EXPECT_TRUE((**Told(offers, 1)).empty());
}

TEST(WindowOffersTest, AwaitBroadcast_CopiesOfOtherShapes_AreNotAlike) {
  for (const bool stride : {false, true}) {
    WindowOffers offers(100);
    offers.Expect({1, 2});
    for (const uint32_t consumer : {1, 2}) {
      auto part = Part(consumer, 0, true);
      Add(0, 0, 10, part);
      v1::Copy& copy = *part.mutable_windows(0)->mutable_copies(0);
      copy.add_extents(stride || consumer == 1 ? 2 : 3);
      copy.add_source_strides(stride && consumer == 1 ? 20 : 30);
      ASSERT_TRUE(offers.Take(part).ok());
    }
    EXPECT_TRUE((**Told(offers, 1)).empty());
  }
}

TEST(WindowOffersTest, AwaitBroadcast_Stopped_IsAnsweredAsIfTheLoadWereNotKnown) {
  WindowOffers offers(100);
  offers.Expect({1, 2});
  EXPECT_FALSE(Told(offers, 1).has_value());
  offers.Stop();
  EXPECT_TRUE(HasReason(Told(offers, 1)->status(), Reason::kPlanUnknown));
}

TEST(WindowOffersTest, Await_AfterStop_EndsAtOnce) {
  WindowOffers offers(100);
  offers.Stop();
  EXPECT_TRUE(HasReason(offers.Await({1}, absl::InfiniteDuration()).status(), Reason::kInterrupted));
}

TEST(WindowOffersTest, Take_HostileLists_AreRefused) {
  const auto refused = [](const std::vector<v1::OfferWindowsRequest>& parts) {
    WindowOffers offers(100);
    absl::Status last;
    for (const auto& part : parts) last = offers.Take(part);
    return HasReason(last, Reason::kBadRequest);
  };
  EXPECT_TRUE(refused({Part(1, 1, true)})) << "a part that follows nothing";
  EXPECT_TRUE(refused({Part(1, 0, true), Part(1, 1, true)})) << "a part after the last";
  auto outside = Part(1, 0, true);
  Add(0, 90, 11, outside);
  EXPECT_TRUE(refused({outside}));
  auto empty = Part(1, 0, true);
  empty.add_windows();
  EXPECT_TRUE(refused({empty})) << "windows would be without number";
  auto descending = Part(1, 0, true);
  Add(1, 0, 1, descending);
  Add(0, 0, 1, descending);
  EXPECT_TRUE(refused({descending}));
  auto twice = Part(1, 0, true);
  Add(1, 0, 1, twice);
  Add(1, 0, 1, twice);
  EXPECT_TRUE(refused({twice})) << "only the first window of a part goes on with one";
  auto large = Part(1, 0, true);
  Add(0, 0, 100, large);
  for (int i = 0; i < 3; ++i) *large.mutable_windows(0)->add_copies() = large.windows(0).copies(0);
  EXPECT_TRUE(refused({large})) << "a window that is larger than its source";
  auto overflow = Part(1, 0, true);
  Add(0, ~uint64_t{0}, 2, overflow);
  EXPECT_TRUE(refused({overflow}));
  auto later = Part(1, 0, true);
  Add(0, 0, 10, later);
  later.mutable_windows(0)->set_round(1);
  EXPECT_TRUE(refused({later})) << "memory has one round";
}

TEST(WindowOffersTest, Take_RoundsOfAPlan_AreForTheirConsumersAndAsLargeAsTheyAre) {
  v1::ReadPlan plan;
  for (const uint64_t bytes : {100, 50}) plan.add_rounds()->set_buffer_bytes(bytes);
  plan.mutable_rounds(0)->add_consumers(1);
  for (const uint32_t consumer : {1, 2}) plan.mutable_rounds(1)->add_consumers(consumer);
  const auto taken = [&](uint32_t consumer, uint32_t round, uint64_t bytes) {
    WindowOffers offers(plan);
    auto part = Part(consumer, 0, true);
    Add(0, 0, bytes, part);
    part.mutable_windows(0)->set_round(round);
    return offers.Take(part);
  };
  EXPECT_TRUE(taken(1, 0, 100).ok());
  EXPECT_TRUE(taken(2, 1, 50).ok());
  EXPECT_TRUE(HasReason(taken(1, 1, 51), Reason::kBadRequest)) << "as the buffer of another round";
  EXPECT_TRUE(HasReason(taken(2, 0, 10), Reason::kBadRequest)) << "its buffer is not kept for this rank";
  EXPECT_TRUE(HasReason(taken(1, 2, 10), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn
