#include "coordinator/decision/transfer_peers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/peer_limits.h"

namespace cairn {
namespace {

constexpr uint32_t kWorld = 8;

class TransferPeersTest : public ::testing::Test {
 protected:
  void Register(uint32_t rank, uint64_t incarnation) {
    v1::RegisterAgentRequest request;
    request.mutable_agent()->set_job("demo");
    request.mutable_agent()->set_rank(rank);
    request.mutable_agent()->set_incarnation(incarnation);
    request.set_world_size(kWorld);
    request.set_transfer_address(absl::StrCat("10.0.0.", rank, ":7421"));
    request.set_descriptor_socket(absl::StrCat("/run/", rank));
    request.set_boot_id(rank < 4 ? "first" : "second");
    ASSERT_TRUE(members_.Register(request, absl::UnixEpoch()).ok());
  }
  v1::GetTransferPeersResponse Ask(uint32_t rank, const std::vector<uint32_t>& ranks) {
    v1::GetTransferPeersRequest request;
    request.mutable_agent()->set_rank(rank);
    request.mutable_ranks()->Assign(ranks.begin(), ranks.end());
    return TransferPeersFor(request, members_);
  }

  Membership members_{"demo", absl::Seconds(10)};
};

TEST_F(TransferPeersTest, Ranks_AreAnsweredInTheirOrder_TheSocketOnlyOnTheSameMachine) {
  for (uint32_t rank = 0; rank < kWorld; ++rank) Register(rank, 100 + rank);
  const v1::GetTransferPeersResponse answer = Ask(1, {6, 2});
  EXPECT_EQ(answer.membership_epoch(), kWorld);
  ASSERT_EQ(answer.peers_size(), 2);
  EXPECT_EQ(answer.peers(0).rank(), 6u);
  EXPECT_EQ(answer.peers(0).incarnation(), 106u);
  EXPECT_EQ(answer.peers(0).transfer_address(), "10.0.0.6:7421");
  EXPECT_EQ(answer.peers(0).boot_id(), "second");
  EXPECT_EQ(answer.peers(0).descriptor_socket(), "");
  EXPECT_EQ(answer.peers(1).rank(), 2u);
  EXPECT_EQ(answer.peers(1).descriptor_socket(), "/run/2");
}

TEST_F(TransferPeersTest, RankThatNobodyHolds_IsLeftOut) {
  Register(0, 100);
  Register(5, 105);
  const v1::GetTransferPeersResponse answer = Ask(0, {4, 5, 8, 0xffffffff});
  ASSERT_EQ(answer.peers_size(), 1);
  EXPECT_EQ(answer.peers(0).rank(), 5u);
}

TEST_F(TransferPeersTest, RestartedPeer_HasAnotherIncarnationUnderAnotherEpoch) {
  Register(0, 100);
  Register(5, 105);
  const v1::GetTransferPeersResponse before = Ask(0, {5});
  members_.Remove(5);
  Register(5, 205);
  const v1::GetTransferPeersResponse after = Ask(0, {5});
  EXPECT_GT(after.membership_epoch(), before.membership_epoch());
  EXPECT_EQ(after.peers(0).incarnation(), 205u);
}

TEST(PeerLimitsTest, LargestAnswer_FitsIntoOneMessage) {
  v1::GetTransferPeersResponse answer;
  for (size_t i = 0; i < kMaxTransferPeers; ++i) {
    v1::TransferPeer& peer = *answer.add_peers();
    peer.set_rank(0xffffffff);
    peer.set_incarnation(~uint64_t{0});
    peer.set_transfer_address(std::string(kMaxTransferAddressBytes, 'a'));
    peer.set_descriptor_socket(std::string(kMaxDescriptorSocketBytes, 's'));
    peer.set_boot_id(std::string(kMaxBootIdBytes, 'b'));
  }
  EXPECT_LT(answer.ByteSizeLong(), size_t{4} << 20);
}

}  // namespace
}  // namespace cairn
