#include "cli/local/next_port.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

TEST(AddressAfterTest, AddressAfter_PortOfItsOwn_Follows) {
  EXPECT_EQ(AddressAfter("10.0.0.1:7421", 0, "--listen").value(), "10.0.0.1:7421");
  EXPECT_EQ(AddressAfter("10.0.0.1:7421", 7, "--listen").value(), "10.0.0.1:7428");
  EXPECT_EQ(AddressAfter("[::1]:65528", 7, "--listen").value(), "[::1]:65535");
}

TEST(AddressAfterTest, AddressAfter_PortOfTheSystem_Stays) {
  EXPECT_EQ(AddressAfter("127.0.0.1:0", 7, "--listen").value(), "127.0.0.1:0");
}

TEST(AddressAfterTest, AddressAfter_NoSuchPort_IsRefusedByName) {
  for (const char* address : {"10.0.0.1:65529", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:-1"}) {
    const auto after = AddressAfter(address, 7, "--listen");
    EXPECT_TRUE(HasReason(after.status(), Reason::kBadRequest)) << address;
    EXPECT_NE(after.status().message().find(address), std::string::npos);
  }
}

}  // namespace
}  // namespace cairn::cli
