#include "gpu/driver/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

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

TEST(GpuDriverTest, OpenWithin_TheStartHangs_NamesItAtTheDeadlineAndEndsLater) {
  void* library = dlopen(StandIn().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto hang = reinterpret_cast<void (*)(const char*)>(dlsym(library, "cairn_stand_in_hang"));
  const auto count = reinterpret_cast<int64_t (*)(const char*)>(dlsym(library, "cairn_stand_in_count"));
  // By another name it is another driver, which has not started.
  const std::string path = "/./" + StandIn();
  hang("cuInit");
  const int64_t starts = count("cuInit");
  std::string error;
  bool stalled = false;
  // A busy machine may not have begun with it at the deadline.
  while (error.find("cuInit has not returned for ") == std::string::npos) {
    ASSERT_EQ(GpuDriver::OpenWithin(path, 0.01, &error, &stalled), nullptr);
    ASSERT_TRUE(stalled) << error;
  }
  EXPECT_EQ(count("cuInit"), starts + 1) << "it is not started a second time meanwhile";
  hang(nullptr);
  EXPECT_NE(GpuDriver::OpenWithin(path, 60, &error, &stalled), nullptr) << error;
  EXPECT_FALSE(stalled);
}

TEST(GpuDriverTest, OpenWithin_NoSuchLibrary_SaysWhichOne) {
  std::string error;
  bool stalled = true;
  EXPECT_EQ(GpuDriver::OpenWithin("/nowhere/libcuda.so.1", 60, &error, &stalled), nullptr);
  EXPECT_NE(error.find("/nowhere/libcuda.so.1"), std::string::npos) << error;
  EXPECT_FALSE(stalled);
}

TEST(GpuDriverTest, Open_NoSuchLibrary_SaysWhichOne) {
  std::string error;
  EXPECT_EQ(GpuDriver::Open("/nowhere/libcuda.so.1", &error), nullptr);
  EXPECT_NE(error.find("/nowhere/libcuda.so.1"), std::string::npos) << error;
}

TEST(GpuDriverTest, Open_ALibraryThatIsNoDriver_NamesTheFirstFunctionThatItLacks) {
  std::string error;
  EXPECT_EQ(GpuDriver::Open("libm.so.6", &error), nullptr);
  EXPECT_EQ(error, "libm.so.6 has no cuGetErrorName; it is not CUDA's driver, or too old");
}

}  // namespace
}  // namespace cairn
