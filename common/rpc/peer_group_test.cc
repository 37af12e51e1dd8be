#include "common/rpc/peer_group.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "common/file/unique_fd.h"

namespace cairn {
namespace {

constexpr uid_t kNobody = 65534;

// A listener on loopback, for IPv4 or, with `any`, for both families.
class PeerGroupTest : public ::testing::Test {
 protected:
  void ListenOn(int family) {
    listener_ = UniqueFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address = {};
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      const int no = 0;
      setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    }
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) GTEST_SKIP() << "no IPv6";
    ASSERT_EQ(listen(listener_.get(), 4), 0);
    socklen_t length = sizeof(address);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    // sin6_port has the same offset.
    port_ = reinterpret_cast<sockaddr_in&>(address).sin_port;
  }
  // Connects by IPv4.
  UniqueFd Connect() const {
    UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = port_;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }
  UniqueFd Accept() const { return UniqueFd(accept(listener_.get(), nullptr, nullptr)); }

  UniqueFd listener_;
  in_port_t port_ = 0;
  PeerGroups groups_;
};

TEST_F(PeerGroupTest, Of_ThisUserOnLoopback_IsTheOwnGroup) {
  ListenOn(AF_INET);
  const UniqueFd client = Connect(), taken = Accept();
  EXPECT_EQ(groups_.Of(taken.get()), "own user");
}

TEST_F(PeerGroupTest, Of_ThisUserByAMappedAddress_IsTheOwnGroup) {
  ListenOn(AF_INET6);
  const UniqueFd client = Connect(), taken = Accept();
  EXPECT_EQ(groups_.Of(taken.get()), "own user");
}

TEST_F(PeerGroupTest, Of_ItHasClosedAlready_CountsAsAnotherUser) {
  ListenOn(AF_INET);
  UniqueFd client = Connect();
  const UniqueFd taken = Accept();
  client = UniqueFd();
  EXPECT_EQ(groups_.Of(taken.get()), "other users");
}

TEST_F(PeerGroupTest, Of_AnotherUserOnLoopback_IsTheGroupOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ListenOn(AF_INET);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd here(ends[0]), there(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    here = UniqueFd();
    if (setuid(kNobody) != 0) _exit(1);
    const UniqueFd client = Connect();
    char byte = 'c';
    (void)!write(there.get(), &byte, 1);
    (void)!read(there.get(), &byte, 1);  // until the other end is closed
    _exit(0);
  }
  there = UniqueFd();
  char byte = 0;
  const bool connected = read(here.get(), &byte, 1) == 1;
  if (connected) {
    const UniqueFd taken = Accept();
    EXPECT_EQ(groups_.Of(taken.get()), "other users");
  }
  here = UniqueFd();
  waitpid(child, nullptr, 0);
  if (!connected) GTEST_SKIP() << "there is no other user here";
}

TEST_F(PeerGroupTest, Of_AUnixSocketOfThisUser_IsTheOwnGroup) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  EXPECT_EQ(groups_.Of(one.get()), "own user");
}

}  // namespace
}  // namespace cairn
