#include "common/rpc/connection_listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/file/unique_fd.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr int kLongMs = 20'000;

class ConnectionListenerTest : public ::testing::Test {
 protected:
  void Start(const std::string& address) {
    auto listener = ConnectionListener::Listen(address);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    listener_->AddTo(builder);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(listener_->Serve().ok());
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

  v1::CheckpointService::CallbackService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionListener> listener_;
};

// Takes all descriptors of this process, and gives them back.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 256);
    setrlimit(RLIMIT_NOFILE, &few);
    for (int file = 0; file >= 0;) {
      file = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (file >= 0) taken_.emplace_back(file);
    }
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
  std::vector<UniqueFd> taken_;
};

bool Connects(const UniqueFd& client, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Whether the other side closes the connection without a word.
bool IsClosed(const UniqueFd& client) {
  pollfd polled = {client.get(), POLLIN, 0};
  char byte = 0;
  return poll(&polled, 1, kLongMs) == 1 && recv(client.get(), &byte, 1, 0) <= 0;
}

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
  const absl::Status second = ConnectionListener::Listen(taken).status();
  EXPECT_EQ(ReasonOf(second), Reason::kBadRequest);
  EXPECT_EQ(second.message(), absl::StrCat("--listen ", taken, " cannot be bound: Address already in use"));
  EXPECT_EQ(ReasonOf(ConnectionListener::Listen("192.0.2.1:0").status()), Reason::kBadRequest);
}

TEST_F(ConnectionListenerTest, Stop_TheServerLivesOn_ThePortIsFreeAgain) {
  Start("127.0.0.1:0");
  const int port = listener_->port();
  ASSERT_TRUE(Answers("127.0.0.1"));
  listener_->Stop();
  EXPECT_TRUE(ConnectionListener::Listen(absl::StrCat("127.0.0.1:", port)).ok());
}

TEST_F(ConnectionListenerTest, NoDescriptors_ConnectionsAreClosedAtOnce_AndTakenWhenThereAreSome) {
  Start("127.0.0.1:0");
  ASSERT_TRUE(Answers("127.0.0.1"));
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 5; ++i) clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoDescriptors none;
    for (const UniqueFd& client : clients) {
      ASSERT_TRUE(Connects(client, listener_->port()));
      EXPECT_TRUE(IsClosed(client));
    }
  }
  EXPECT_TRUE(Answers("127.0.0.1"));
}

}  // namespace
}  // namespace cairn
