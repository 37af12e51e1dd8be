#include "agent/session/peer_book.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "common/rpc/peer_limits.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using Ranks = std::vector<uint32_t>;

v1::GetTransferPeersResponse AnswerOf(MembershipEpoch epoch, const PeerMap& peers) {
  v1::GetTransferPeersResponse answer;
  answer.set_coordinator_epoch(epoch.coordinator);
  answer.set_membership_epoch(epoch.membership);
  for (const auto& [rank, peer] : peers) *answer.add_peers() = peer;
  return answer;
}

v1::TransferPeer Peer(uint32_t rank, uint64_t incarnation) {
  v1::TransferPeer peer;
  peer.set_rank(rank);
  peer.set_incarnation(incarnation);
  return peer;
}

class PeerBookTest : public ::testing::Test {
 protected:
  PeerBookTest() { book_.Begin({5, 1}); }
  PeerBook book_;
};

TEST_F(PeerBookTest, Ask_UnknownRanks_NamesEachOnce) {
  EXPECT_FALSE(book_.Find({2, 7}).has_value());
  EXPECT_EQ(book_.Ask({2, 7}), std::vector<Ranks>({{2, 7}}));
  EXPECT_EQ(book_.Ask({7, 9}), std::vector<Ranks>({{9}})) << "rank 7 is being asked for";
  book_.Answer({2, 7}, AnswerOf({5, 1}, {{2, Peer(2, 20)}, {7, Peer(7, 70)}}));
  ASSERT_TRUE(book_.Find({7, 2}).has_value());
  EXPECT_EQ(book_.Find({7})->at(7).incarnation(), 70u);
  EXPECT_FALSE(book_.Find({2, 9}).has_value());
  EXPECT_TRUE(book_.Ask({2, 7, 9}).empty());
}

TEST_F(PeerBookTest, Find_NoRanks_NeedsNoAnswer) {
  ASSERT_TRUE(book_.Find({}).has_value());
  EXPECT_TRUE(book_.Ask({}).empty());
}

TEST_F(PeerBookTest, Find_RankThatNobodyHolds_IsKnownToBeAbsent) {
  book_.Ask({2, 7});
  book_.Answer({2, 7}, AnswerOf({5, 1}, {{2, Peer(2, 20)}}));
  ASSERT_TRUE(book_.Find({2, 7}).has_value());
  EXPECT_EQ(book_.Find({2, 7})->size(), 1u);
  EXPECT_TRUE(book_.Ask({7}).empty());
}

TEST_F(PeerBookTest, Heard_LaterMembership_ForgetsWhatWasSaid) {
  book_.Ask({2});
  book_.Answer({2}, AnswerOf({5, 1}, {{2, Peer(2, 20)}}));
  book_.Heard({5, 2});
  EXPECT_FALSE(book_.Find({2}).has_value());
  EXPECT_EQ(book_.Ask({2}), std::vector<Ranks>({{2}}));
}

TEST_F(PeerBookTest, Heard_OvertakenMessage_ChangesNothing) {
  book_.Heard({5, 2});
  book_.Ask({2});
  book_.Answer({2}, AnswerOf({5, 2}, {{2, Peer(2, 21)}}));
  book_.Heard({5, 1});
  ASSERT_TRUE(book_.Find({2}).has_value());
  EXPECT_EQ(book_.Find({2})->at(2).incarnation(), 21u);
}

TEST_F(PeerBookTest, Answer_OfAnEarlierMembership_IsNotBelieved) {
  book_.Ask({2});
  book_.Heard({5, 2});
  book_.Answer({2}, AnswerOf({5, 1}, {{2, Peer(2, 20)}}));
  EXPECT_FALSE(book_.Find({2}).has_value());
  EXPECT_EQ(book_.Ask({2}), std::vector<Ranks>({{2}}));
}

TEST_F(PeerBookTest, Answer_OfALaterMembership_ReplacesTheBook) {
  book_.Ask({2});
  book_.Answer({2}, AnswerOf({5, 1}, {{2, Peer(2, 20)}}));
  book_.Ask({3});
  book_.Answer({3}, AnswerOf({5, 2}, {{3, Peer(3, 30)}}));
  EXPECT_TRUE(book_.Find({3}).has_value());
  EXPECT_FALSE(book_.Find({2}).has_value()) << "another agent may hold it now";
}

TEST_F(PeerBookTest, Heard_CoordinatorRestarted_CountsMembershipsAnew) {
  book_.Heard({5, 9});
  book_.Ask({2});
  book_.Answer({2}, AnswerOf({5, 9}, {{2, Peer(2, 20)}}));
  book_.Heard({6, 1});
  EXPECT_FALSE(book_.Find({2}).has_value());
}

TEST_F(PeerBookTest, Begin_LaterMembershipWasHeardBefore_CountsAllTheSame) {
  book_.Heard({5, 9});
  book_.Begin({5, 3});
  book_.Ask({2});
  book_.Answer({2}, AnswerOf({5, 3}, {{2, Peer(2, 20)}}));
  EXPECT_TRUE(book_.Find({2}).has_value());
}

TEST_F(PeerBookTest, Ask_RequestFailed_NamesItsRanksAgain) {
  book_.Ask({2});
  book_.Answer({2}, MakeError(Reason::kCoordinatorUnreachable, "away"));
  EXPECT_FALSE(book_.Find({2}).has_value());
  EXPECT_EQ(book_.Ask({2}), std::vector<Ranks>({{2}}));
}

TEST_F(PeerBookTest, Answer_PeersThatWereNotAskedFor_AreNotKept) {
  book_.Ask({2});
  book_.Answer({2}, AnswerOf({5, 1}, {{2, Peer(2, 20)}, {3, Peer(3, 30)}}));
  EXPECT_FALSE(book_.Find({3}).has_value());
}

TEST_F(PeerBookTest, Ask_ManyRanks_MakesSeveralRequests) {
  Ranks all(2 * kMaxTransferPeers + 1);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<Ranks> requests = book_.Ask(all);
  ASSERT_EQ(requests.size(), 3u);
  std::set<uint32_t> asked;
  for (const Ranks& request : requests) {
    EXPECT_LE(request.size(), kMaxTransferPeers);
    asked.insert(request.begin(), request.end());
    book_.Answer(request, AnswerOf({5, 1}, {}));
  }
  EXPECT_EQ(asked.size(), all.size());
  EXPECT_TRUE(book_.Find(all).has_value());
}

}  // namespace
}  // namespace cairn
