#include "agent/testing/forwarder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace cairn::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Carries over what has come. False if the connection has ended.
bool Carry(int from, int to) {
  std::array<char, 1 << 16> buffer;
  const ssize_t got = read(from, buffer.data(), buffer.size());
  if (got <= 0) return false;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t more = send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return true;
}

}  // namespace

Forwarder::Forwarder(const std::string& target)
    : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), wake_(eventfd(0, EFD_CLOEXEC)) {
  EXPECT_TRUE(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &target_port_)) << target;
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener_.get(), 16), 0);
  EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this] { Loop(); });
}

Forwarder::~Forwarder() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  Wake();
  thread_.join();
}

void Forwarder::Wake() const {
  const uint64_t one = 1;
  EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

void Forwarder::LosePackets() {
  {
    MutexLock lock(mutex_);
    lose_ = true;
  }
  Wake();
}

void Forwarder::Freeze() {
  {
    MutexLock lock(mutex_);
    carries_ = false;
    admits_ = false;
  }
  Wake();
}

void Forwarder::Thaw() {
  {
    MutexLock lock(mutex_);
    carries_ = true;
  }
  Wake();
}

void Forwarder::Admit() {
  {
    MutexLock lock(mutex_);
    admits_ = true;
  }
  Wake();
}

void Forwarder::AwaitCount(const size_t& counted, size_t count, const char* what) {
  const absl::Time deadline = Clock::Real().SteadyNow() + absl::Seconds(10);
  while (counted < count) {
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) {
      ADD_FAILURE() << counted << " connections " << what << ", not " << count;
      return;
    }
    changed_.WaitFor(mutex_, left);
  }
}

void Forwarder::AwaitHeld(size_t count) {
  MutexLock lock(mutex_);
  AwaitCount(held_, count, "are held");
}

void Forwarder::AwaitEnded(size_t count) {
  MutexLock lock(mutex_);
  AwaitCount(ended_, count, "have ended");
}

UniqueFd Forwarder::Connect() const {
  UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(target_port_);
  if (connect(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return UniqueFd();
  return server;
}

void Forwarder::Loop() {
  while (true) {
    bool carries = true;
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      if (std::exchange(lose_, false)) {
        for (Connection& connection : connections_) connection.lost = true;
      }
      carries = carries_;
      if (admits_) {
        for (std::vector<UniqueFd>* held : {&silent_, &spoken_}) {
          for (UniqueFd& client : *held) {
            if (UniqueFd server = Connect(); server.valid()) {
              connections_.push_back({std::move(client), std::move(server)});
            }
          }
          held->clear();
        }
      }
      held_ = spoken_.size();
      changed_.NotifyAll();
    }
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const UniqueFd& client : silent_) polled.push_back({client.get(), POLLIN, 0});
    for (const Connection& connection : connections_) {
      if (connection.lost || !carries) continue;
      polled.push_back({connection.client.get(), POLLIN, 0});
      polled.push_back({connection.server.get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      EXPECT_EQ(read(wake_.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
      continue;
    }
    size_t next = 2;
    for (auto client = silent_.begin(); client != silent_.end();) {
      if (polled[next++].revents != 0) {
        spoken_.push_back(std::move(*client));
        client = silent_.erase(client);
      } else {
        ++client;
      }
    }
    for (auto connection = connections_.begin(); connection != connections_.end();) {
      bool open = true;
      if (!connection->lost && carries) {
        const pollfd& client = polled[next++];
        const pollfd& server = polled[next++];
        if (client.revents != 0) open = Carry(client.fd, server.fd);
        if (open && server.revents != 0) open = Carry(server.fd, client.fd);
      }
      if (open) {
        ++connection;
        continue;
      }
      connection = connections_.erase(connection);
      MutexLock lock(mutex_);
      ++ended_;
    }
    if (polled[1].revents != 0) {
      UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.valid()) silent_.push_back(std::move(client));
    }
  }
}

}  // namespace cairn::testing
