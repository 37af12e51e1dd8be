#include "common/rpc/acceptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/fake_clock.h"
#include "common/base/mutex.h"
#include "common/resources/testing/no_descriptors.h"

namespace cairn {
namespace {

constexpr int kLongMs = 20'000;

// Listens at a free port, whose address it returns.
UniqueFd MakeListener(sockaddr_in& address) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) {
    ADD_FAILURE() << "no socket";
    return listener;
  }
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(listener.get(), 16), 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return listener;
}

UniqueFd MakeClient() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool ConnectsTo(const sockaddr_in& address, const UniqueFd& client) {
  return client.valid() && connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() : listener_(MakeListener(address_)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::thread([this] {
      pollfd polled[] = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      while (poll(polled, 2, -1) >= 0 && polled[0].revents == 0) {
        acceptor_.TakeWaiting(listener_.get(), [this](UniqueFd connection) {
          MutexLock lock(mutex_);
          taken_.push_back(std::move(connection));
          changed_.NotifyAll();
        });
      }
    });
  }
  ~AcceptorTest() override {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }

  bool Connects(const UniqueFd& client) const { return ConnectsTo(address_, client); }
  // Returns whether the acceptor takes as many connections in time.
  bool Takes(size_t connections) {
    MutexLock lock(mutex_);
    const absl::Time until = absl::Now() + absl::Milliseconds(kLongMs);
    while (taken_.size() < connections && absl::Now() < until) changed_.WaitFor(mutex_, until - absl::Now());
    return taken_.size() == connections;
  }

  sockaddr_in address_ = {};
  const UniqueFd listener_, wake_;
  FakeClock clock_;
  Acceptor acceptor_{clock_};
  Mutex mutex_;
  CondVar changed_;
  std::vector<UniqueFd> taken_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Returns whether the other side closes the connection without a word.
bool IsClosed(const UniqueFd& client) {
  pollfd polled = {client.get(), POLLIN, 0};
  char byte = 0;
  return poll(&polled, 1, kLongMs) == 1 && recv(client.get(), &byte, 1, 0) <= 0;
}

TEST_F(AcceptorTest, NoDescriptors_ConnectionsAreClosedAtOnce_AndTakenWhenThereAreSome) {
  const UniqueFd before = MakeClient();
  ASSERT_TRUE(Connects(before) && Takes(1));
  std::vector<UniqueFd> clients;
  clients.reserve(5);
  for (int i = 0; i < 5; ++i) clients.push_back(MakeClient());
  {
    const NoDescriptors none;
    for (const UniqueFd& client : clients) {
      ASSERT_TRUE(Connects(client));
      EXPECT_TRUE(IsClosed(client));
    }
  }
  EXPECT_TRUE(Takes(1));
  const UniqueFd after = MakeClient();
  EXPECT_TRUE(Connects(after) && Takes(2));
}

TEST_F(AcceptorTest, NoDescriptors_TheyComeAndGo_StandsInTheLogOnceAMinute) {
  ::testing::internal::CaptureStderr();
  size_t taken = 0;
  std::vector<UniqueFd> clients;
  const auto is_short = [&] {
    clients.push_back(MakeClient());
    {
      const NoDescriptors none;
      EXPECT_TRUE(Connects(clients.back()) && IsClosed(clients.back()));
    }
    clients.push_back(MakeClient());
    EXPECT_TRUE(Connects(clients.back()) && Takes(++taken));
  };
  is_short();
  is_short();
  clock_.Advance(absl::Seconds(59));
  is_short();
  clock_.Advance(absl::Seconds(1));
  is_short();
  std::vector<std::string> events;
  const std::vector<std::string> lines = absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n');
  for (const std::string& line : lines) {
    const size_t event = line.find("event=");
    const size_t refused = line.find("refused=");
    if (event == std::string::npos) continue;
    events.push_back(line.substr(event, line.find(' ', event) - event) + " " +
                     line.substr(refused, line.find(' ', refused) - refused));
  }
  EXPECT_THAT(events, ::testing::ElementsAre("event=no_descriptors refused=0", "event=descriptors_free refused=1",
                                             "event=no_descriptors refused=2", "event=descriptors_free refused=3"));
}

TEST(LaterAcceptorTest, NoDescriptors_TheFreeOnesWereBelowItsOwn_ConnectionsAreClosedAtOnce) {
  FakeClock clock;
  sockaddr_in address = {};
  const UniqueFd listener = MakeListener(address);
  const UniqueFd client = MakeClient();
  const Acceptor first(clock);
  UniqueFd gap(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Acceptor later(clock);
  const UniqueFd above(open("/dev/null", O_RDONLY | O_CLOEXEC));
  gap = UniqueFd();
  const NoDescriptors none;
  ASSERT_TRUE(ConnectsTo(address, client));
  EXPECT_TRUE(later.TakeWaiting(listener.get(), [](UniqueFd) { ADD_FAILURE(); }));
  EXPECT_TRUE(IsClosed(client));
}

TEST(AcceptorTurnTest, TakeWaiting_MoreWaitThanItMayTake_TheyWaitOn) {
  FakeClock clock;
  sockaddr_in address = {};
  const UniqueFd listener = MakeListener(address);
  std::vector<UniqueFd> clients, taken;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(MakeClient());
    ASSERT_TRUE(ConnectsTo(address, clients.back()));
  }
  Acceptor acceptor(clock);
  const auto take = [&](UniqueFd connection) { taken.push_back(std::move(connection)); };
  EXPECT_TRUE(acceptor.TakeWaiting(listener.get(), take, 2));
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_TRUE(acceptor.TakeWaiting(listener.get(), take, 2));
  EXPECT_EQ(taken.size(), 3u);
}

}  // namespace
}  // namespace cairn
