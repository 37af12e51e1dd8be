#include "common/rpc/channel_view.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "common/file/unique_fd.h"

namespace cairn {
namespace {

EndAddress Four(const char* ip, uint16_t port = 7420) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, ip, &address.sin_addr);
  return EndAddressOf(reinterpret_cast<sockaddr*>(&address));
}

EndAddress Six(const char* ip, uint16_t port = 7420) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  inet_pton(AF_INET6, ip, &address.sin6_addr);
  return EndAddressOf(reinterpret_cast<sockaddr*>(&address));
}

TEST(ChannelViewTest, EndAddressOf_OneAddressInTwoFamilies_IsTheSame) {
  EXPECT_EQ(Four("10.1.2.3"), Six("::ffff:10.1.2.3"));
  EXPECT_NE(Four("10.1.2.3"), Four("10.1.2.3", 7421));
  EXPECT_NE(Four("10.1.2.3"), Four("10.1.2.4"));
  sockaddr unix_socket = {};
  unix_socket.sa_family = AF_UNIX;
  EXPECT_EQ(EndAddressOf(&unix_socket), EndAddress{});
}

// A listener of both families sees a caller by IPv4 as an address of IPv6.
TEST(ChannelViewTest, OfSocket_BothEndsOfAConnection_SeeEachOther) {
  const UniqueFd listener(socket(AF_INET6, SOCK_STREAM, 0));
  const int no = 0;
  sockaddr_in6 anywhere = {};
  anywhere.sin6_family = AF_INET6;
  if (!listener.valid() || setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) != 0 ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&anywhere), sizeof(anywhere)) != 0) {
    GTEST_SKIP() << "this system has no IPv6";
  }
  ASSERT_EQ(listen(listener.get(), 1), 0);
  sockaddr_in6 bound = {};
  socklen_t length = sizeof(bound);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  const UniqueFd caller(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = bound.sin6_port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(caller.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const UniqueFd taken(accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(taken.valid());
  const ChannelView view = ChannelView::OfSocket(caller.get());
  EXPECT_EQ(view.peer, Four("127.0.0.1", ntohs(bound.sin6_port)));
  EXPECT_EQ(ChannelView::OfSocket(taken.get()), view.TurnedRound());
}

TEST(ChannelViewTest, OfSocket_NoConnection_SeesNothing) {
  const UniqueFd alone(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(ChannelView::OfSocket(alone.get()).peer, EndAddress{});
}

TEST(ChannelViewTest, IsOfThisMachine_LoopbackAndElsewhere_AreToldApart) {
  for (const EndAddress& here : {Four("127.0.0.1"), Four("127.8.9.1"), Six("::1"), Six("::ffff:127.0.0.1")}) {
    EXPECT_TRUE(IsOfThisMachine(here));
  }
  // Addresses that are reserved for documentation; no machine has them.
  for (const EndAddress& elsewhere : {Four("192.0.2.7"), Six("2001:db8::7")}) EXPECT_FALSE(IsOfThisMachine(elsewhere));
}

}  // namespace
}  // namespace cairn
