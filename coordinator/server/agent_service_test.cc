// Asks a real server over gRPC where other agents are.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/peer_limits.h"
#include "common/rpc/testing/proven_peer.h"
#include "common/status/reason.h"
#include "coordinator/server/server.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/fake_root_lock.h"

namespace cairn {
namespace {

constexpr uint64_t kEpoch = 3;
constexpr char kToken[] = "a secret of the test";

class AgentServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/agent-service-", RandomToken(6));
    auto storage = PosixStorage::Open(root_, true);
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
    ServerOptions options;
    options.decisions.coordinator_epoch = kEpoch;
    options.tokens = TokenSource::Of({kToken});
    auto server = CoordinatorServer::Start(options, *storage_, lock_, Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::AgentCoordinationService::NewStub(
        *testing::AwaitChannel(*testing::CoordinatorAt(server_->address(), kToken)));
  }
  void TearDown() override {
    server_.reset();
    storage_.reset();
    std::filesystem::remove_all(root_);
  }

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::AgentCoordinationService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                               Response*),
                    const Request& request, Response& response) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(20));
    return CallError((stub_.get()->*method)(&context, request, &response), ServerRole::kCoordinator, "under test");
  }
  static v1::AgentIdentity Identity(uint32_t rank) {
    v1::AgentIdentity identity;
    identity.set_job("demo");
    identity.set_rank(rank);
    identity.set_incarnation(100 + rank);
    identity.set_coordinator_epoch(kEpoch);
    return identity;
  }
  absl::Status Register(uint32_t rank, const std::string& address, const std::string& node = "") {
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_world_size(8);
    request.set_transfer_address(address);
    request.set_node(node);
    v1::RegisterAgentResponse response;
    return Call(&v1::AgentCoordinationService::Stub::RegisterAgent, request, response);
  }
  absl::Status Ask(const v1::AgentIdentity& agent, const std::vector<uint32_t>& ranks,
                   v1::GetTransferPeersResponse& response) {
    v1::GetTransferPeersRequest request;
    *request.mutable_agent() = agent;
    request.mutable_ranks()->Assign(ranks.begin(), ranks.end());
    return Call(&v1::AgentCoordinationService::Stub::GetTransferPeers, request, response);
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  FakeRootLock lock_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::AgentCoordinationService::Stub> stub_;
};

TEST_F(AgentServiceTest, GetTransferPeers_OfARegisteredAgent_TellsWhereTheOthersAre) {
  ASSERT_TRUE(Register(0, "10.0.0.1:1").ok());
  ASSERT_TRUE(Register(5, "10.0.0.5:5").ok());
  v1::GetTransferPeersResponse response;
  const absl::Status asked = Ask(Identity(0), {5, 6, 8}, response);
  ASSERT_TRUE(asked.ok()) << asked;
  EXPECT_EQ(response.coordinator_epoch(), kEpoch);
  EXPECT_EQ(response.membership_epoch(), 2u);
  ASSERT_EQ(response.peers_size(), 1) << "nobody holds rank 6, and 8 is none";
  EXPECT_EQ(response.peers(0).incarnation(), 105u);
  EXPECT_EQ(response.peers(0).transfer_address(), "10.0.0.5:5");
}

TEST_F(AgentServiceTest, GetTransferPeers_OfTooManyRanks_IsRefused) {
  ASSERT_TRUE(Register(0, "10.0.0.1:1").ok());
  v1::GetTransferPeersResponse response;
  EXPECT_TRUE(Ask(Identity(0), std::vector<uint32_t>(kMaxTransferPeers, 0), response).ok());
  EXPECT_TRUE(
      HasReason(Ask(Identity(0), std::vector<uint32_t>(kMaxTransferPeers + 1, 0), response), Reason::kBadRequest));
}

TEST_F(AgentServiceTest, GetTransferPeers_OfWhoHasNoRank_TellsNothing) {
  ASSERT_TRUE(Register(0, "10.0.0.1:1").ok());
  v1::GetTransferPeersResponse response;
  EXPECT_TRUE(HasReason(Ask(Identity(1), {0}, response), Reason::kNotRegistered));
  v1::AgentIdentity other = Identity(0);
  other.set_incarnation(7);
  EXPECT_TRUE(HasReason(Ask(other, {0}, response), Reason::kStaleIncarnation));
  v1::AgentIdentity stale = Identity(0);
  stale.set_coordinator_epoch(kEpoch - 1);
  EXPECT_TRUE(HasReason(Ask(stale, {0}, response), Reason::kStaleEpoch));
  v1::AgentIdentity elsewhere = Identity(0);
  elsewhere.set_job("another");
  EXPECT_TRUE(HasReason(Ask(elsewhere, {0}, response), Reason::kNotRegistered));
  EXPECT_EQ(response.peers_size(), 0);
}

TEST_F(AgentServiceTest, RegisterAgent_WithANameThatIsTooLong_IsRefused) {
  EXPECT_TRUE(Register(0, std::string(kMaxTransferAddressBytes, 'a')).ok());
  const absl::Status refused = Register(1, std::string(kMaxTransferAddressBytes + 1, 'a'));
  EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
  EXPECT_EQ(MetadataOf(refused)["rank"], "1");
  EXPECT_TRUE(Register(1, "a:1", std::string(kMaxNodeBytes, 'n')).ok());
  EXPECT_TRUE(HasReason(Register(2, "a:2", std::string(kMaxNodeBytes + 1, 'n')), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn
