// Tests DeviceRanges with the stand-in for CUDA's driver.
#include "gpu/copy/device_ranges.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/stand_in/cuda/device_memory.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

class DeviceRangesTest : public testing::Test {
 protected:
  void SetUp() override { gpu_.reset(); }

  DeviceOutcome::Kind Find(DeviceRanges& ranges, uint64_t address, int64_t bytes) {
    return ranges.Find(address, bytes, &ordinal_);
  }
  std::unique_ptr<DeviceRanges> Ranges() {
    return std::make_unique<DeviceRanges>(*gpu_.driver, [this](int ordinal) -> const DeviceContext& {
      std::unique_ptr<DeviceContext>& context = contexts_[ordinal];
      if (context == nullptr) context = std::make_unique<DeviceContext>(*gpu_.driver, ordinal);
      return *context;
    });
  }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  std::map<int, std::unique_ptr<DeviceContext>> contexts_;
  int ordinal_ = -1;
};

// Addresses that follow one another, behind each of which is memory of its own, as of torch's expandable segments.
class Mapped {
 public:
  static constexpr size_t kPiece = size_t{2} << 20;

  explicit Mapped(const LoadedStandIn& gpu, size_t pieces, size_t reserved)
      : call_(gpu.driver->call()), pieces_(pieces), reserved_(reserved) {
    if (call_.address_reserve(&address, reserved_ * kPiece, 0, 0, 0) != cuda::kSuccess) std::abort();
    for (size_t i = 0; i < pieces; ++i) {
      cuda::AllocationProperties properties;
      cuda::AllocationHandle handle = 0;
      if (call_.memory_create(&handle, kPiece, &properties, 0) != cuda::kSuccess) std::abort();
      if (call_.memory_map(address + i * kPiece, kPiece, 0, handle, 0) != cuda::kSuccess) std::abort();
      call_.memory_release(handle);
    }
    const cuda::MemoryAccess access = {.location = {}, .flags = cuda::kAccessReadWrite};
    if (call_.memory_set_access(address, pieces * kPiece, &access, 1) != cuda::kSuccess) std::abort();
  }
  ~Mapped() {
    call_.memory_unmap(address, pieces_ * kPiece);
    call_.address_free(address, reserved_ * kPiece);
  }
  cuda::DevicePointer address = 0;

 private:
  const cuda::Functions& call_;
  const size_t pieces_, reserved_;
};

TEST_F(DeviceRangesTest, Find_PartsOfOneAllocation_AsksTheDriverOnce) {
  DeviceMemory memory(gpu_, 1, 1000);
  const auto ranges = Ranges();
  for (uint64_t at = 0; at < 1000; at += 10) {
    EXPECT_EQ(Find(*ranges, memory.address + at, 10), DeviceOutcome::kDone);
    EXPECT_EQ(ordinal_, 1);
  }
  EXPECT_EQ(gpu_.count("cuPointerGetAttributes"), 1);
  EXPECT_EQ(gpu_.count("cuMemGetAddressRange_v2"), 1);
}

TEST_F(DeviceRangesTest, Find_BeyondAnAllocation_IsTooLong) {
  DeviceMemory memory(gpu_, 0, 1000);
  const auto ranges = Ranges();
  EXPECT_EQ(Find(*ranges, memory.address, 1000), DeviceOutcome::kDone);
  EXPECT_EQ(Find(*ranges, memory.address, 1001), DeviceOutcome::kTooLong);
  EXPECT_EQ(Find(*ranges, memory.address + 999, 2), DeviceOutcome::kTooLong);
  EXPECT_EQ(Find(*ranges, memory.address, std::numeric_limits<int64_t>::max()), DeviceOutcome::kTooLong);
}

TEST_F(DeviceRangesTest, Find_AllocationsThatAdjoin_NoArrayIsInBoth) {
  // Whole pages, so that some of them follow one another at once.
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (int i = 0; i < 20; ++i) memory.push_back(std::make_unique<DeviceMemory>(gpu_, 0, 4096));
  const auto ranges = Ranges();
  for (const auto& each : memory) {
    EXPECT_EQ(Find(*ranges, each->address, 4096), DeviceOutcome::kDone);
    EXPECT_EQ(Find(*ranges, each->address, 4097), DeviceOutcome::kTooLong);
  }
}

TEST_F(DeviceRangesTest, Find_MappingsThatFollowOneAnother_AreOne) {
  const DeviceContext context(*gpu_.driver, 0);
  const CurrentContext current(*gpu_.driver, context);
  const Mapped mapped(gpu_, 3, 4);
  const auto ranges = Ranges();
  const auto piece = static_cast<int64_t>(Mapped::kPiece);
  EXPECT_EQ(Find(*ranges, mapped.address + 100, 3 * piece - 100), DeviceOutcome::kDone);
  EXPECT_EQ(Find(*ranges, mapped.address + 100, 3 * piece - 99), DeviceOutcome::kTooLong) << "nothing is mapped there";
  EXPECT_EQ(gpu_.count("cuMemGetAddressRange_v2"), 3);
}

TEST_F(DeviceRangesTest, Find_WhatIsNoDevices_IsNot) {
  int here = 0;
  const auto ranges = Ranges();
  EXPECT_EQ(Find(*ranges, reinterpret_cast<uint64_t>(&here), 4), DeviceOutcome::kNotOnDevice);
  EXPECT_EQ(Find(*ranges, 0, 1), DeviceOutcome::kNotOnDevice);
  EXPECT_EQ(OrdinalOf(*gpu_.driver, 0), std::nullopt);
  const DeviceContext context(*gpu_.driver, 0);
  const CurrentContext current(*gpu_.driver, context);
  void* pinned = nullptr;
  ASSERT_EQ(gpu_.driver->call().host_allocate(&pinned, 4096, cuda::kMemHostAllocPortable), cuda::kSuccess);
  EXPECT_EQ(Find(*ranges, reinterpret_cast<uint64_t>(pinned), 1), DeviceOutcome::kNotOnDevice);
  gpu_.driver->call().host_free(pinned);
}

TEST_F(DeviceRangesTest, Find_ACallFails_NamesIt) {
  DeviceMemory memory(gpu_, 0, 1000);
  for (const char* call : {"cuPointerGetAttributes", "cuMemGetAddressRange"}) {
    gpu_.fail(std::string(call) == "cuMemGetAddressRange" ? "cuMemGetAddressRange_v2" : call, 1, cuda::kUnknown);
    const auto ranges = Ranges();
    try {
      Find(*ranges, memory.address, 1);
      ADD_FAILURE() << call;
    } catch (const DriverFailure& failure) {
      EXPECT_EQ(failure.text, std::string(call) + ": CUDA_ERROR_UNKNOWN");
    }
  }
}

}  // namespace
}  // namespace cairn
