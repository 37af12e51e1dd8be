#include "common/rpc/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/fake_clock.h"
#include "common/base/mutex.h"
#include "common/rpc/channel_view.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kLongMs = 20'000;
constexpr char kToken[] = "a-token-of-this-test";
// What an HTTP/2 client says first: the preface, and empty SETTINGS.
const std::string kHttp2("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

// One client of the gate's port.
class Client {
 public:
  explicit Client(const sockaddr_in& address) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  void Say(std::string_view bytes) const {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Returns received bytes, `most` at most; "" if the gate has closed the connection.
  std::string Hear(size_t most) const {
    pollfd polled = {socket_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, kLongMs), 1) << "there is no answer";
    std::string bytes(most, '\0');
    const ssize_t length = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
    return bytes;
  }
  // Whether the gate closes the connection, whatever it says before that.
  bool IsClosed() const {
    while (!Hear(4096).empty()) {
    }
    return !::testing::Test::HasFailure();
  }
  // Whether the connection is open, and nothing has come.
  bool IsOpen() const {
    char byte = 0;
    return recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
  }
  // Proves itself with the keys of the token. Returns the last step.
  ClientProof::Step Prove(const std::string& token) const {
    ClientProof proof(PeerKeys::Of({token}, ServerRole::kCoordinator), ChannelView::OfSocket(socket_.get()), true);
    ClientProof::Step step = proof.Begin();
    while (step.state == ClientProof::Step::kMore) {
      Say(step.send);
      const std::string heard = Hear(step.wanted);
      if (heard.empty()) break;
      step = proof.Take(heard);
    }
    return step;
  }

 private:
  const UniqueFd socket_;
};

class GateTest : public ::testing::Test {
 protected:
  GateTest() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address_), length), 0);
    EXPECT_EQ(listen(listener_.get(), 128), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length);
    options_.keys = [keys = PeerKeys::Of({kToken}, ServerRole::kCoordinator)] { return keys; };
    options_.answers = {MakeError(Reason::kBadToken, "a token is needed"), &health_};
    options_.passed = [this](int listener, UniqueFd connection) {
      EXPECT_EQ(listener, listener_.get());
      MutexLock lock(mutex_);
      passed_.push_back(std::move(connection));
      changed_.NotifyAll();
    };
  }
  void Start() {
    auto gate = Gate::Make(options_, clock_);
    ASSERT_TRUE(gate.ok()) << gate.status();
    gate_ = *std::move(gate);
    thread_ = std::thread([this] { gate_->Run({listener_.get()}); });
  }
  ~GateTest() override {
    if (gate_ == nullptr) return;
    gate_->Stop();
    thread_.join();
  }

  // Returns the connection that is let through next, or none in time.
  UniqueFd Passed() {
    MutexLock lock(mutex_);
    const absl::Time until = absl::Now() + absl::Milliseconds(kLongMs);
    while (passed_.empty() && absl::Now() < until) changed_.WaitFor(mutex_, until - absl::Now());
    if (passed_.empty()) return UniqueFd();
    UniqueFd first = std::move(passed_.front());
    passed_.erase(passed_.begin());
    return first;
  }
  size_t waiting() {
    MutexLock lock(mutex_);
    return passed_.size();
  }
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    gate_->Nudge();
  }
  // A connection behind whose answer all that was said before has been taken in.
  void Settle() const {
    const Client client(address_);
    client.Say(kHttp2);
    EXPECT_FALSE(client.Hear(1).empty());
  }

  const UniqueFd listener_;
  sockaddr_in address_ = {};
  FakeClock clock_;
  HealthBoard health_;
  GateOptions options_;
  std::unique_ptr<Gate> gate_;
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<UniqueFd> passed_ ABSL_GUARDED_BY(mutex_);
};

std::string Read(const UniqueFd& connection, size_t bytes) {
  std::string text(bytes, '\0');
  pollfd polled = {connection.get(), POLLIN, 0};
  poll(&polled, 1, kLongMs);
  const ssize_t length = recv(connection.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

TEST_F(GateTest, Run_APeerProvesItself_PassesWithWhatItSaysNext) {
  Start();
  const Client peer(address_);
  EXPECT_EQ(peer.Prove(kToken).state, ClientProof::Step::kProven);
  peer.Say("PRI");
  const UniqueFd passed = Passed();
  ASSERT_TRUE(passed.valid());
  EXPECT_EQ(Read(passed, 10), "PRI");
}

TEST_F(GateTest, Run_AnotherToken_IsRefused) {
  Start();
  const Client stranger(address_);
  EXPECT_EQ(stranger.Prove("another-token-of-this-test").state, ClientProof::Step::kRefused);
  EXPECT_EQ(waiting(), 0);
}

TEST_F(GateTest, Run_AProofInPieces_PassesAsWell) {
  Start();
  const Client peer(address_);
  const std::string hello = "CAIRN-P1" + std::string(ServerProof::kHelloBytes - 8, 'x');
  for (const char byte : hello) peer.Say({&byte, 1});
  EXPECT_EQ(peer.Hear(ServerProof::kAnswerBytes).size(), ServerProof::kAnswerBytes);
}

TEST_F(GateTest, Run_WordsBehindTheHelloBeforeTheAnswer_EndTheConnection) {
  Start();
  const Client stranger(address_);
  stranger.Say("CAIRN-P1" + std::string(ServerProof::kHelloBytes - 8, 'x') + "more");
  EXPECT_TRUE(stranger.IsClosed());
}

TEST_F(GateTest, Run_NoKeysYet_NobodyPasses) {
  options_.keys = [] { return std::shared_ptr<const PeerKeys>(); };
  Start();
  const Client peer(address_);
  EXPECT_NE(peer.Prove(kToken).state, ClientProof::Step::kProven);
  const Client plain(address_);
  plain.Say(kHttp2);
  EXPECT_EQ(plain.Hear(4)[3], 4) << "SETTINGS of the server for strangers";
  EXPECT_EQ(waiting(), 0);
}

TEST_F(GateTest, Run_Http2WithoutAProof_IsAnsweredHereAndDoesNotPass) {
  Start();
  const Client stranger(address_);
  stranger.Say(kHttp2);
  EXPECT_EQ(stranger.Hear(4)[3], 4) << "SETTINGS";
  EXPECT_EQ(waiting(), 0);
}

TEST_F(GateTest, Run_AnotherProtocol_IsClosed) {
  Start();
  for (const char* words : {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01", "POST"}) {
    const Client stranger(address_);
    stranger.Say(words);
    EXPECT_TRUE(stranger.IsClosed()) << words;
  }
}

TEST_F(GateTest, Run_Insecure_WhoSpeaksPassesWithEveryByte) {
  options_.keys = nullptr;
  options_.insecure = true;
  Start();
  const Client plain(address_);
  plain.Say(kHttp2);
  const UniqueFd passed = Passed();
  ASSERT_TRUE(passed.valid());
  EXPECT_EQ(Read(passed, 100), kHttp2);
  const Client proving(address_);
  EXPECT_EQ(proving.Prove(kToken).state, ClientProof::Step::kRefused) << "it hears that there is no token";
}

TEST_F(GateTest, Run_KnownByItsSocket_PassesBeforeItSpeaks) {
  options_.knows = [](int) { return true; };
  Start();
  const Client peer(address_);
  EXPECT_TRUE(Passed().valid());
}

TEST_F(GateTest, Run_SilentOrHalfProven_AreClosedAfterTheirTime) {
  Start();
  const Client silent(address_), half(address_), hello(address_), plain(address_);
  half.Say("CAI");
  hello.Say("CAIRN-P1" + std::string(ServerProof::kHelloBytes - 8, 'x'));
  EXPECT_EQ(hello.Hear(ServerProof::kAnswerBytes).size(), ServerProof::kAnswerBytes);
  plain.Say(kHttp2);
  EXPECT_FALSE(plain.Hear(4096).empty());
  Settle();
  Pass(Gate::kProofTime - absl::Milliseconds(1));
  Settle();
  EXPECT_TRUE(silent.IsOpen() && half.IsOpen() && hello.IsOpen());
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(silent.IsClosed() && half.IsClosed() && hello.IsClosed());
  Pass(Gate::kSessionTime);
  EXPECT_TRUE(plain.IsClosed());
}

TEST_F(GateTest, Run_MoreStrangersThanThereIsRoomFor_TheFirstOnesGoAndPeersStillPass) {
  Start();
  std::vector<std::unique_ptr<Client>> sessions;
  for (size_t i = 0; i < Gate::kMostSessions + 8; ++i) {
    Pass(absl::Seconds(1));  // so none is too young to make room
    sessions.push_back(std::make_unique<Client>(address_));
    sessions.back()->Say(kHttp2);
    EXPECT_FALSE(sessions.back()->Hear(1).empty());
  }
  EXPECT_TRUE(sessions.front()->IsClosed());
  const Client peer(address_);
  EXPECT_EQ(peer.Prove(kToken).state, ClientProof::Step::kProven);
}

TEST_F(GateTest, Stop_StrangersAreThere_ClosesThem) {
  Start();
  const Client silent(address_), plain(address_);
  plain.Say(kHttp2);
  Settle();
  gate_->Stop();
  thread_.join();
  EXPECT_TRUE(silent.IsClosed() && plain.IsClosed());
  gate_ = nullptr;
}

}  // namespace
}  // namespace cairn
