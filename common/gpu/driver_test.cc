#include "common/gpu/driver.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace cairn {
namespace {

std::string StandIn() {
  return std::filesystem::absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so").string();
}

TEST(GpuDriverTest, Open_TheStandIn_HasAllFunctionsAndSaysWhatItIs) {
  std::string error;
  const GpuDriver* driver = GpuDriver::Open(StandIn(), &error);
  ASSERT_NE(driver, nullptr) << error;
  EXPECT_TRUE(driver->is_stand_in());
  EXPECT_EQ(driver->NameOf(cuda::kOutOfMemory), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(driver->NameOf(123456), "CUDA error 123456");
  EXPECT_EQ(GpuDriver::Open(StandIn(), &error), driver);
}

TEST(GpuDriverTest, Open_NoSuchLibrary_SaysWhichOne) {
  std::string error;
  EXPECT_EQ(GpuDriver::Open("/nowhere/libcuda.so.1", &error), nullptr);
  EXPECT_NE(error.find("/nowhere/libcuda.so.1"), std::string::npos) << error;
}

TEST(GpuDriverTest, Open_ALibraryThatIsNoDriver_NamesTheFirstFunctionThatItLacks) {
  std::string error;
  EXPECT_EQ(GpuDriver::Open("libm.so.6", &error), nullptr);
  EXPECT_EQ(error, "libm.so.6 has no cuGetErrorName: the driver is too old");
}

}  // namespace
}  // namespace cairn
