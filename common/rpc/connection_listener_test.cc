#include "common/rpc/connection_listener.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/file/unique_fd.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_channel.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr int kLongMs = 20'000;
constexpr char kToken[] = "a-token-of-this-test";

class ConnectionListenerTest : public ::testing::Test {
 protected:
  void Start(const std::string& address, ConnectionListener::KeysNow keys = nullptr) {
    Listen(address, std::move(keys));
    Serve();
  }
  void Listen(const std::string& address, ConnectionListener::KeysNow keys = nullptr) {
    auto listener = ConnectionListener::Listen(address, std::move(keys));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  void Serve() {
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    listener_->AddTo(builder);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(listener_->Serve(*server_).ok());
  }
  ~ConnectionListenerTest() override {
    if (listener_ != nullptr) listener_->Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  // Whether the server takes a connection at this host, and speaks gRPC on it.
  bool Answers(const std::string& host) {
    const auto channel = MakeChannel(absl::StrCat(host, ":", listener_->port()));
    return channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::milliseconds(kLongMs));
  }

  static std::shared_ptr<const PeerKeys> Keys() { return PeerKeys::Of({kToken}, ServerRole::kCoordinator); }
  std::shared_ptr<grpc::Channel> Plain() const { return MakeChannel(absl::StrCat("127.0.0.1:", listener_->port())); }
  // Makes a call to the service, which knows none.
  static absl::Status CallOver(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Milliseconds(kLongMs));
    v1::Capabilities response;
    return FromGrpcStatus(v1::CheckpointService::NewStub(channel)->GetCapabilities(&context, {}, &response));
  }
  // Asks for the health of a service by gRPC's client. Returns the bytes of the answer, or the error.
  static absl::StatusOr<std::string> HealthOver(const std::shared_ptr<grpc::Channel>& channel,
                                                const std::string& service) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Milliseconds(kLongMs));
    const std::string question =
        service.empty() ? "" : absl::StrCat("\n", std::string(1, static_cast<char>(service.size())), service);
    const grpc::Slice slice(question);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    grpc::GenericStub(channel).UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                                         [&](grpc::Status status) { ended.set_value(std::move(status)); });
    const grpc::Status status = ended.get_future().get();
    if (!status.ok()) return FromGrpcStatus(status);
    grpc::Slice answer;
    EXPECT_TRUE(response.DumpToSingleSlice(&answer).ok());
    return std::string(reinterpret_cast<const char*>(answer.begin()), answer.size());
  }

  v1::CheckpointService::CallbackService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionListener> listener_;
};

TEST_F(ConnectionListenerTest, Listen_EachWayToWriteAnAddress_IsReached) {
  for (const auto& [address, host] : {std::pair("127.0.0.1:0", "127.0.0.1"), std::pair("localhost:0", "localhost"),
                                      std::pair("0.0.0.0:0", "127.0.0.1"), std::pair("dns:127.0.0.1:0", "127.0.0.1"),
                                      std::pair("[::]:0", "127.0.0.1")}) {
    SCOPED_TRACE(address);
    Start(address);
    EXPECT_TRUE(Answers(host));
    listener_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }
}

TEST_F(ConnectionListenerTest, Listen_APortThatSomebodyHas_IsRefusedWithTheCause) {
  Start("127.0.0.1:0");
  const std::string taken = absl::StrCat("127.0.0.1:", listener_->port());
  const absl::Status second = ConnectionListener::Listen(taken, nullptr).status();
  EXPECT_EQ(ReasonOf(second), Reason::kBadRequest);
  EXPECT_EQ(second.message(), absl::StrCat("--listen ", taken, " cannot be bound: Address already in use"));
  EXPECT_EQ(ReasonOf(ConnectionListener::Listen("192.0.2.1:0", nullptr).status()), Reason::kBadRequest);
}

TEST_F(ConnectionListenerTest, Listen_SomebodyHasThePortByTheOtherVersionOfIp_SaysSo) {
  const UniqueFd other(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof(address);
  if (bind(other.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) GTEST_SKIP() << "no IPv6 here";
  ASSERT_EQ(listen(other.get(), 1), 0);
  getsockname(other.get(), reinterpret_cast<sockaddr*>(&address), &length);
  ::testing::internal::CaptureStderr();
  const auto listener = ConnectionListener::Listen(absl::StrCat("0.0.0.0:", ntohs(address.sin6_port)), nullptr);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_NE(log.find("event=port_shared"), std::string::npos) << log;
}

TEST_F(ConnectionListenerTest, Serve_AConnectionWasResetBefore_IsClosedWithoutAWordAndTheNextOneTaken) {
  Listen("127.0.0.1:0");
  {
    const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(listener_->port()));
    ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    ASSERT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
  }
  ::testing::internal::CaptureStderr();
  Serve();
  EXPECT_TRUE(Answers("127.0.0.1"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ConnectionListenerTest, Serve_WithKeys_APlainCallHearsThatATokenIsNeeded) {
  Start("127.0.0.1:0", [] { return Keys(); });
  const auto channel = Plain();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ReasonOf(CallOver(channel)), Reason::kBadToken);
}

TEST_F(ConnectionListenerTest, SetServing_WithKeys_AStrangerHearsOfTheHealth) {
  grpc::EnableDefaultHealthCheckService(true);
  Start("127.0.0.1:0", [] { return Keys(); });
  listener_->SetServing("mine", false);
  const auto channel = Plain();
  EXPECT_EQ(*HealthOver(channel, ""), "\x08\x01");
  EXPECT_EQ(*HealthOver(channel, "mine"), "\x08\x02");
  EXPECT_TRUE(absl::IsNotFound(HealthOver(channel, "nobody").status()));
  listener_->SetServing("mine", true);
  EXPECT_EQ(*HealthOver(channel, "mine"), "\x08\x01");
  listener_->SetAllServing(false);
  EXPECT_EQ(*HealthOver(channel, ""), "\x08\x02");
}

TEST_F(ConnectionListenerTest, Serve_WithKeys_AProvenPeerReachesTheServer) {
  grpc::EnableDefaultHealthCheckService(true);
  Start("127.0.0.1:0", [] { return Keys(); });
  const auto peer = std::make_shared<PeerChannel>(
      PeerOptions{.address = absl::StrCat("127.0.0.1:", listener_->port()), .tokens = TokenSource::Of({kToken})});
  const auto connected = peer->Await(absl::Milliseconds(kLongMs));
  ASSERT_TRUE(connected.ok()) << connected.status();
  const PeerChannel::Channel& channel = *connected;
  EXPECT_TRUE(absl::IsUnimplemented(CallOver(channel))) << "the service's own answer";
  EXPECT_EQ(*HealthOver(channel, ""), "\x08\x01");
}

TEST_F(ConnectionListenerTest, Stop_TheServerLivesOn_ThePortIsFreeAgain) {
  Start("127.0.0.1:0");
  const int port = listener_->port();
  ASSERT_TRUE(Answers("127.0.0.1"));
  listener_->Stop();
  EXPECT_TRUE(ConnectionListener::Listen(absl::StrCat("127.0.0.1:", port), nullptr).ok());
}

}  // namespace
}  // namespace cairn
