#include "common/rpc/listening_sockets.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

bool Connects(const std::string& host, int port) {
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(static_cast<uint16_t>(port));
  const bool is_four = inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1;
  if (!is_four && inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) != 1) return false;
  const UniqueFd fd(socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return (is_four ? connect(fd.get(), reinterpret_cast<const sockaddr*>(&four), sizeof(four))
                  : connect(fd.get(), reinterpret_cast<const sockaddr*>(&six), sizeof(six))) == 0;
}

TEST(ListenAtTest, ListenAt_EveryWildcard_TakesBothVersionsOfIp) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "[0::0]:0", "[0.0.0.0]:0"}) {
    const auto listening = ListenAt("--listen", address);
    ASSERT_TRUE(listening.ok()) << listening.status();
    EXPECT_TRUE(Connects("127.0.0.1", listening->port)) << address;
    EXPECT_TRUE(Connects("::1", listening->port)) << address;
  }
}

TEST(ListenAtTest, ListenAt_OneAddress_IsTheOnlyOne) {
  const auto listening = ListenAt("--listen", "[0:0::1]:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(listening->address, absl::StrCat("[::1]:", listening->port));
  EXPECT_TRUE(Connects("::1", listening->port));
  EXPECT_FALSE(Connects("127.0.0.1", listening->port));
}

TEST(ListenAtTest, ListenAt_AddressThatCannotBeBound_NamesItsFlag) {
  const auto listening = ListenAt("--listen", "127.0.0.1:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  const absl::Status taken = ListenAt("--metrics-listen", listening->address).status();
  EXPECT_TRUE(HasReason(taken, Reason::kBadRequest)) << taken;
  EXPECT_EQ(taken.message(),
            absl::StrCat("--metrics-listen ", listening->address, " cannot be bound: Address already in use"));
  EXPECT_TRUE(HasReason(ListenAt("--listen", "192.0.2.1:0").status(), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn
