#include "coordinator/job/order_book.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

Member Agent(int rank, uint64_t incarnation) {
  Member member;
  member.rank = rank;
  member.incarnation = incarnation;
  member.changes = 1;
  return member;
}

TEST(OrderBookTest, Keep_OrdersAreTheSame_KeepTheirRevision) {
  OrderBook book;
  uint64_t revision = 10;
  const Member member = Agent(3, 7);
  EXPECT_EQ(book.Keep(member, {"write", "", {5}}, revision), 11u);
  EXPECT_EQ(book.Keep(member, {"write", "", {5}}, revision), 11u);
  EXPECT_EQ(book.Keep(member, {"abort", "", {6}}, revision), 12u);
  EXPECT_EQ(book.Keep(Agent(3, 8), {"abort", "", {6}}, revision), 13u) << "another agent was told nothing yet";
  EXPECT_EQ(revision, 13u);
}

TEST(OrderBookTest, Keep_OrdersWithoutNews_KeepTheirRevision) {
  OrderBook book;
  uint64_t revision = 0;
  const Member member = Agent(3, 7);
  EXPECT_EQ(book.Keep(member, {"write, upload", "", {5, 6}}, revision), 1u);
  EXPECT_EQ(book.Keep(member, {"write", "", {5}}, revision), 1u) << "one thing less to do";
  EXPECT_EQ(*book.Current(member), "write") << "what is told next";
  EXPECT_EQ(book.Keep(member, {"write, upload", "", {5, 6}}, revision), 2u) << "again to be done";
}

TEST(OrderBookTest, Knows_WhatOrdersAreMadeFromChanged_IsFalseUntilTheyAreMadeAgain) {
  OrderBook book;
  uint64_t revision = 0;
  Member member = Agent(1, 7);
  EXPECT_FALSE(book.Knows(member, 100)) << "none were made";
  book.Keep(member, {"wait", "", {1}}, revision);
  EXPECT_TRUE(book.Knows(member, 1));
  EXPECT_FALSE(book.Knows(member, 0)) << "the agent has not heard of them";
  const auto changes = {+[](OrderBook& b, Member&) { b.WakeAll(); }, +[](OrderBook& b, Member&) { b.Wake(1); },
                        +[](OrderBook&, Member& m) { ++m.changes; }, +[](OrderBook&, Member& m) { ++m.incarnation; }};
  for (const auto change : changes) {
    change(book, member);
    EXPECT_FALSE(book.Knows(member, 100));
    EXPECT_EQ(book.Current(member), nullptr);
    book.Keep(member, {"wait", "", {1}}, revision);
    EXPECT_TRUE(book.Knows(member, 100));
    EXPECT_EQ(*book.Current(member), "wait");
  }
}

TEST(OrderBookTest, Wake_OneRank_LeavesTheOthersAlone) {
  OrderBook book;
  uint64_t revision = 0;
  book.Keep(Agent(0, 7), {"wait", "", {1}}, revision);
  const uint64_t others = book.version(0);
  const uint64_t own = book.version(2);
  book.Wake(2);
  EXPECT_EQ(book.version(0), others);
  EXPECT_GT(book.version(2), own);
  EXPECT_TRUE(book.Knows(Agent(0, 7), 100));
  const OrderBook::Woken woken = book.TakeWoken();
  EXPECT_FALSE(woken.all);
  EXPECT_EQ(woken.ranks, std::vector<int>{2});
  EXPECT_TRUE(book.TakeWoken().ranks.empty()) << "each is told once";
  book.WakeAll();
  EXPECT_TRUE(book.TakeWoken().all);
}

TEST(OrderBookTest, ChangeAll_WakesNobody_ButAllAreMadeAgain) {
  OrderBook book;
  uint64_t revision = 0;
  const Member member = Agent(0, 7);
  book.Keep(member, {"wait", "", {1}}, revision);
  book.ChangeAll();
  EXPECT_FALSE(book.TakeWoken().all);
  EXPECT_EQ(book.Current(member), nullptr);
  ASSERT_NE(book.NewsToldTo(member), nullptr);
  EXPECT_EQ(*book.NewsToldTo(member), std::vector<uint64_t>{1}) << "all that it has to know";
  book.Wake(0);
  EXPECT_EQ(book.NewsToldTo(member), nullptr) << "it hears of all that is new";
}

TEST(OrderBookTest, KnowsPlan_OnlyOfTheRevisionThatTheAgentHasApplied) {
  OrderBook book;
  uint64_t revision = 0;
  const Member member = Agent(0, 7);
  EXPECT_FALSE(book.KnowsPlan(member, 0, ""));
  EXPECT_EQ(book.Keep(member, {"wait", "p", {1}}, revision), 1u);
  EXPECT_TRUE(book.KnowsPlan(member, 1, "p"));
  EXPECT_FALSE(book.KnowsPlan(member, 1, "q"));
  EXPECT_FALSE(book.KnowsPlan(member, 0, "p")) << "it has applied nothing";
  EXPECT_FALSE(book.KnowsPlan(Agent(0, 8), 1, "p")) << "another agent";
  EXPECT_EQ(book.Keep(member, {"wait", "q", {2}}, revision), 2u);
  EXPECT_FALSE(book.KnowsPlan(member, 1, "q")) << "the answer with the new plan may be lost";
}

}  // namespace
}  // namespace cairn
