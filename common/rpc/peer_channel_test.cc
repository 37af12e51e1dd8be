#include "common/rpc/peer_channel.h"

#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/rpc/reactor.h"
#include "common/rpc/testing/fake_peer.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::FakePeer;

const std::string kToken = "a token of the test, long enough";
const std::string kOther = "another token, just as long as it";

class Service final : public v1::CheckpointService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest*, v1::Job*) override {
    return FinishNow(context, absl::OkStatus());
  }
};

// A gRPC server that takes connections only after their proof.
class ProvingServer {
 public:
  explicit ProvingServer(const std::vector<std::string>& tokens, uint16_t port = 0)
      : keys_(PeerKeys::Of(tokens, ServerRole::kCoordinator)) {
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    gate_.emplace(
        [this](FakePeer& peer, int connection) {
          if (!peer.Prove(connection, keys_)) return;
          ++proven_;
          const int given = dup(connection);
          fcntl(given, F_SETFL, O_NONBLOCK);
          grpc::AddInsecureChannelFromFd(server_.get(), given);
          ended_.WaitForNotification();
        },
        AF_INET, port);
  }
  ~ProvingServer() {
    ended_.Notify();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  uint16_t port() const { return gate_->port(); }
  std::string address() const { return gate_->address(); }
  int proven() const { return proven_; }

 private:
  const std::shared_ptr<const PeerKeys> keys_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<int> proven_ = 0;
  absl::Notification ended_;
  std::optional<FakePeer> gate_;  // ends first
};

std::shared_ptr<PeerChannel> PeerAt(const std::string& address, std::shared_ptr<TokenSource> tokens) {
  return std::make_shared<PeerChannel>(PeerOptions{.address = address, .tokens = std::move(tokens)});
}

absl::Status GetJob(PeerChannel& peer) {
  const auto channel = peer.Await(absl::Seconds(30));
  if (!channel.ok()) return channel.status();
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(30));
  v1::Job job;
  return CallError(v1::CheckpointService::NewStub(*channel)->GetJob(&context, {}, &job), ServerRole::kCoordinator,
                   "it");
}

TEST(PeerChannelTest, Get_ServerProvesItself_CallsShareOneConnection) {
  ProvingServer server({kToken});
  const auto peer = PeerAt(server.address(), TokenSource::Of({kToken}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(GetJob(*peer).ok());
  EXPECT_NE(peer->GetIfReady(), nullptr);
  EXPECT_EQ(server.proven(), 1);
  peer->Renew();
  EXPECT_TRUE(GetJob(*peer).ok());
  EXPECT_EQ(server.proven(), 2);
}

TEST(PeerChannelTest, Get_ServerHasEndedAndIsBack_MakesAnotherConnection) {
  std::optional<ProvingServer> server(std::in_place, std::vector<std::string>{kToken});
  const uint16_t port = server->port();
  const auto peer = PeerAt(server->address(), TokenSource::Of({kToken}));
  EXPECT_TRUE(GetJob(*peer).ok());
  server.reset();
  absl::Status gone;
  while ((gone = GetJob(*peer)).ok()) std::this_thread::yield();
  EXPECT_EQ(ReasonOf(gone), Reason::kCoordinatorUnreachable);
  server.emplace(std::vector<std::string>{kToken}, port);
  // The last call over the connection before may have noticed its end first.
  absl::Status back;
  while (!(back = GetJob(*peer)).ok()) ASSERT_EQ(ReasonOf(back), Reason::kCoordinatorUnreachable) << back;
}

TEST(PeerChannelTest, Get_TokenWasChangedInItsFile_ReadsItAgain) {
  const std::string file = ::testing::TempDir() + "/peer-channel-token";
  std::ofstream(file) << kToken << "\n";
  chmod(file.c_str(), 0600);
  const auto tokens = TokenSource::Open({.file = file});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ProvingServer server({kOther});
  const auto peer = PeerAt(server.address(), *tokens);
  EXPECT_EQ(ReasonOf(GetJob(*peer)), Reason::kBadToken);
  std::ofstream(file, std::ios::trunc) << kOther << "\n";
  EXPECT_TRUE(GetJob(*peer).ok());
}

TEST(PeerChannelTest, Get_AgentDoesNotProveItself_IsNotThere) {
  ProvingServer server({kOther});
  const auto peer = std::make_shared<PeerChannel>(PeerOptions{.address = server.address(),
                                                              .role = ServerRole::kAgent,
                                                              .name = "of rank 3",
                                                              .tokens = TokenSource::Of({kToken})});
  const auto channel = peer->Await(absl::Seconds(30));
  EXPECT_EQ(ReasonOf(channel.status()), Reason::kAgentUnreachable) << channel.status();
  EXPECT_TRUE(absl::StartsWith(channel.status().message(), "agent of rank 3 is not there")) << channel.status();
}

TEST(PeerChannelTest, Cancel_WhileThePeerIsSilent_EndsWhoWaits) {
  FakePeer silent([](FakePeer& peer, int connection) { peer.Receive(connection, 1 << 20); });
  auto peer = PeerAt(silent.address(), TokenSource::Of({kToken}));
  std::atomic<int> interrupted = 0;
  for (int i = 0; i < 3; ++i) {
    peer->Get([&](const absl::StatusOr<PeerChannel::Channel>& channel) {
      interrupted += HasReason(channel.status(), Reason::kInterrupted);
    });
  }
  EXPECT_EQ(peer->GetIfReady(), nullptr);
  peer->Cancel();
  EXPECT_EQ(interrupted, 3);
  EXPECT_EQ(ReasonOf(peer->Await().status()), Reason::kInterrupted);
}

TEST(PeerChannelTest, Await_PeerIsSilent_EndsInTime) {
  FakePeer silent([](FakePeer& peer, int connection) { peer.Receive(connection, 1 << 20); });
  const auto peer = PeerAt(silent.address(), TokenSource::Of({kToken}));
  const auto channel = peer->Await(absl::Milliseconds(20));
  EXPECT_EQ(ReasonOf(channel.status()), Reason::kCoordinatorUnreachable);
  EXPECT_TRUE(absl::StrContains(channel.status().message(), "did not answer in time")) << channel.status();
}

}  // namespace
}  // namespace cairn
