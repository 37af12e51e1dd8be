#include "common/rpc/address.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using Addresses = std::vector<std::string>;

TEST(CanonicalAddressesTest, CanonicalAddresses_AnySpelling_GivesOneOfEachSocket) {
  for (const char* address :
       {"127.0.0.1:7420", "ipv4:127.0.0.1:7420", "dns:///127.0.0.1:7420", "[::ffff:127.0.0.1]:7420"})
    EXPECT_EQ(CanonicalAddresses(address), Addresses{"127.0.0.1:7420"}) << address;
  for (const char* address : {"[::1]:7420", "[0:0::1]:7420", "ipv6:[::1]:7420"})
    EXPECT_EQ(CanonicalAddresses(address), Addresses{"[::1]:7420"}) << address;
  EXPECT_EQ(CanonicalAddresses("LocalHost:1"), (Addresses{"127.0.0.1:1", "[::1]:1"}));
  EXPECT_EQ(CanonicalAddresses("Node-7.cluster:7420"), Addresses{"node-7.cluster:7420"});
  EXPECT_EQ(CanonicalAddresses(""), Addresses{""});
  EXPECT_EQ(CanonicalAddresses("[::1]"), Addresses{"[::1]"});
}

TEST(CanonicalAddressTest, CanonicalAddress_BracketsAroundAnyHost_StayOnlyAroundIpv6) {
  EXPECT_EQ(CanonicalAddress("[10.0.0.1]:7421"), "10.0.0.1:7421");
  EXPECT_EQ(CanonicalAddress("[FD00:0::1]:7421"), "[fd00::1]:7421");
  EXPECT_EQ(CanonicalAddress("[0::0]:0"), "[::]:0");
  EXPECT_EQ(CanonicalAddress("[node-7]:1"), "node-7:1");
  EXPECT_EQ(CanonicalAddress("LocalHost:1"), "localhost:1");
}

TEST(JoinHostPortTest, JoinHostPort_Ipv6_GetsBrackets) {
  EXPECT_EQ(JoinHostPort("fd00::1", 0), "[fd00::1]:0");
  EXPECT_EQ(JoinHostPort("[fd00::1]", 7), "[fd00::1]:7");
  EXPECT_EQ(JoinHostPort("10.0.0.1", 7), "10.0.0.1:7");
  EXPECT_EQ(JoinHostPort("node", 7), "node:7");
}

TEST(IsHostPortTest, IsHostPort_HostOrPortIsMissing_IsFalse) {
  for (const char* address : {"127.0.0.1:7420", "localhost:0", "node-7.cluster:65535", "my_service:1", "[::1]:7420",
                              "dns:///node:1", "ipv4:10.0.0.1:5", "ipv6:[::1]:7", "[10.0.0.1]:7"})
    EXPECT_TRUE(IsHostPort(address)) << address;
  for (const char* address : {"", "foo", ":7420", "foo:", "foo:bar", "foo:65536", "foo:-1", "foo:+1", "foo:7420/x",
                              "http://foo:7420", "unix:/run/agent.sock", "::1:7420", "[::1]", "[x:y]:7420", "foo :1"})
    EXPECT_FALSE(IsHostPort(address)) << address;
}

TEST(HostPortLikeTest, HostPortLike_AddressOfOneLink_SaysThatOthersDoNotReachIt) {
  const auto why_not = HostPortLike("10.0.0.1:7420");
  EXPECT_EQ(why_not("[fd00::1]:7420"), "");
  EXPECT_EQ(why_not("[fd00::1]"), "is not host:port, for example 10.0.0.1:7420");
  for (const char* address : {"[fe80::1]:7420", "[fe80::1%eth0]:7420", "[FE80::1%25eth0]:7420", "ipv6:[febf::1]:7420",
                              "fe80::1%eth0:7420", "[fd00::1%eth0]:7420"}) {
    EXPECT_FALSE(IsHostPort(address)) << address;
    EXPECT_EQ(
        why_not(address),
        "is a link-local IPv6 address, which leads elsewhere on each machine: give a name, or an address that all "
        "machines of the job reach")
        << address;
  }
}

TEST(IsLoopbackTest, IsLoopback_NumbersAndLocalhost_AreTold) {
  for (const char* address : {"127.0.0.1:0", "127.9.9.9:1", "localhost:7420", "[::1]:0", "[::ffff:127.0.0.1]:1"})
    EXPECT_TRUE(IsLoopback(address)) << address;
  // A name may begin as a number does.
  for (const char* address :
       {"0.0.0.0:1", "10.0.0.1:0", "[::]:0", "12.7.0.1:1", "127.example.org:1", "node:1", "", ":1"})
    EXPECT_FALSE(IsLoopback(address)) << address;
}

}  // namespace
}  // namespace cairn
