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

News Changed(int rank) { return {false, News::Orders::kSame, {rank}}; }

TEST(OrderBookTest, Keep_OrdersAreTheSame_KeepTheirRevision) {
  OrderBook book;
  const Member member = Agent(3, 7);
  EXPECT_EQ(book.Keep(member, "", {5}), 1u);
  EXPECT_EQ(book.Keep(member, "", {5}), 1u);
  EXPECT_EQ(book.Keep(member, "", {6}), 2u);
  EXPECT_EQ(book.Keep(Agent(3, 8), "", {6}), 3u) << "another agent was told nothing yet";
}

TEST(OrderBookTest, Keep_OrdersWithoutNews_KeepTheirRevision) {
  OrderBook book;
  const Member member = Agent(3, 7);
  EXPECT_EQ(book.Keep(member, "", {5, 6}), 1u);
  EXPECT_EQ(book.Keep(member, "", {5}), 1u) << "one thing less to do";
  EXPECT_EQ(book.Keep(member, "", {5, 6}), 2u) << "again to be done";
}

TEST(OrderBookTest, Knows_WhatOrdersAreMadeFromChanged_IsFalseUntilTheyAreMadeAgain) {
  OrderBook book;
  Member member = Agent(1, 7);
  EXPECT_FALSE(book.Knows(member, 100)) << "none were made";
  book.Keep(member, "", {1});
  EXPECT_TRUE(book.Knows(member, 1));
  EXPECT_FALSE(book.Knows(member, 0)) << "the agent has not heard of them";
  const auto changes = {+[](OrderBook& b, Member&) { b.Take(News::Urgent()); },
                        +[](OrderBook& b, Member&) { b.Take({false, News::Orders::kChanged, {}}); },
                        +[](OrderBook& b, Member&) { b.Take(Changed(1)); }, +[](OrderBook&, Member& m) { ++m.changes; },
                        +[](OrderBook&, Member& m) { ++m.incarnation; }};
  for (const auto change : changes) {
    change(book, member);
    EXPECT_FALSE(book.Knows(member, 100));
    book.Keep(member, "", {1});
    EXPECT_TRUE(book.Knows(member, 100));
  }
}

TEST(OrderBookTest, Take_NewsForOneRank_LeavesTheOthersAlone) {
  OrderBook book;
  book.Keep(Agent(0, 7), "", {1});
  book.Take(Changed(2));
  EXPECT_TRUE(book.Knows(Agent(0, 7), 100));
  book.Take(News::Step());
  EXPECT_TRUE(book.Knows(Agent(0, 7), 100)) << "a step that may be possible changes no orders by itself";
}

TEST(OrderBookTest, KnowsPlan_OnlyOfTheRevisionThatTheAgentHasApplied) {
  OrderBook book;
  const Member member = Agent(0, 7);
  EXPECT_FALSE(book.KnowsPlan(member, 0, ""));
  EXPECT_EQ(book.Keep(member, "p", {1}), 1u);
  EXPECT_TRUE(book.KnowsPlan(member, 1, "p"));
  EXPECT_FALSE(book.KnowsPlan(member, 1, "q"));
  EXPECT_FALSE(book.KnowsPlan(member, 0, "p")) << "it has applied nothing";
  EXPECT_FALSE(book.KnowsPlan(Agent(0, 8), 1, "p")) << "another agent";
  EXPECT_EQ(book.Keep(member, "q", {2}), 2u);
  EXPECT_FALSE(book.KnowsPlan(member, 1, "q")) << "the answer with the new plan may be lost";
}

}  // namespace
}  // namespace cairn
