#include "gpu/driver/library.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace cairn {
namespace {

std::string StandIn() {
  return std::filesystem::absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so").string();
}

TEST(NcclLibraryTest, Open_TheStandIn_HasAllFunctionsAndSaysWhatItIs) {
  std::string error;
  const auto library = NcclLibrary::Open(StandIn(), &error);
  ASSERT_NE(library, nullptr) << error;
  EXPECT_TRUE(library->is_stand_in());
  EXPECT_EQ(library->version(), 22809);
  EXPECT_EQ(library->Describe(nccl::kInvalidUsage, nullptr).substr(0, 16), "ncclInvalidUsage");
  EXPECT_EQ(library->Describe(99, nullptr).substr(0, 13), "NCCL error 99");
}

TEST(NcclLibraryTest, Open_NoSuchLibrary_SaysWhichOne) {
  std::string error;
  EXPECT_EQ(NcclLibrary::Open("/nowhere/libnccl.so.2", &error), nullptr);
  EXPECT_NE(error.find("/nowhere/libnccl.so.2"), std::string::npos) << error;
}

TEST(NcclLibraryTest, Open_ALibraryThatIsNotNccl_NamesTheFirstFunctionThatItLacks) {
  std::string error;
  EXPECT_EQ(NcclLibrary::Open("libm.so.6", &error), nullptr);
  EXPECT_EQ(error, "libm.so.6 has no ncclGetVersion; it is not NCCL, or too old");
}

}  // namespace
}  // namespace cairn
