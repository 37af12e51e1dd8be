// Tests DeviceStaging::Fingerprint with the stand-in for CUDA's driver, whose kernel the host computes.
#include "gpu/copy/device_fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/fingerprint.h"
#include "common/tensor/flat_range.h"
#include "gpu/copy/device_staging.h"
#include "tests/testing/stand_in/cuda/device_memory.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

constexpr double kPatience = 60;  // seconds that no test needs

// A shard in a device's memory, and its place in its tensor.
struct Held {
  Held(const LoadedStandIn& gpu, int device, const Shape& shape, const Box& box, FlatRange range, int element_bytes)
      : memory(gpu, device, std::max<size_t>(static_cast<size_t>(range.size() * element_bytes), 1)),
        part(shape, box, range, element_bytes),
        copy{.copy = {.device = memory.address, .copy = {.element_bytes = range.size() * element_bytes}}} {
    memory.Fill(static_cast<unsigned>(range.size()));
  }
  uint64_t ByHost() const {
    FingerprintPart host = part;
    host.Add(reinterpret_cast<const char*>(memory.bytes.data()), static_cast<size_t>(copy.copy.copy.element_bytes));
    return host.Value();
  }

  DeviceMemory memory;
  FingerprintPart part;
  StagedCopy copy;
};

class DeviceFingerprintTest : public testing::Test {
 protected:
  void SetUp() override { gpu_.reset(); }
  void TearDown() override {
    held_.clear();
    gpu_.reset();
    staging_.reset();
    for (const char* what : {"allocated_host_bytes", "used_device_bytes", "contexts", "streams", "events", "modules"}) {
      EXPECT_EQ(gpu_.count(what), 0) << what << " was not given back";
    }
  }

  void Add(const Shape& shape, const Box& box, FlatRange range, int element_bytes, int device = 0) {
    held_.push_back(std::make_unique<Held>(gpu_, device, shape, box, range, element_bytes));
  }
  void Add(const Shape& shape, const Box& box, int element_bytes, int device = 0) {
    Add(shape, box, {0, box.size()}, element_bytes, device);
  }
  // Computes all that was added, and compares.
  DeviceOutcome Compare() {
    std::vector<StagedCopy> copies;
    std::vector<FingerprintPart> parts;
    for (const auto& held : held_) {
      copies.push_back(held->copy);
      parts.push_back(held->part);
    }
    const DeviceOutcome outcome = staging_->Fingerprint(copies, kPatience, &parts);
    EXPECT_EQ(outcome.kind, DeviceOutcome::kDone) << outcome.text;
    if (outcome.kind != DeviceOutcome::kDone) return outcome;
    for (size_t i = 0; i < held_.size(); ++i) EXPECT_EQ(parts[i].Value(), held_[i]->ByHost()) << i;
    return outcome;
  }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  std::unique_ptr<DeviceStaging> staging_ = std::make_unique<DeviceStaging>(*gpu_.driver, 4096);
  std::vector<std::unique_ptr<Held>> held_;
};

TEST_F(DeviceFingerprintTest, Fingerprint_OfWholeTensorsAndShards_IsThatOfTheHost) {
  Add({300, 500}, {{0, 0}, {300, 500}}, 4);                 // many blocks, the last one shorter
  Add({300, 500}, {{100, 0}, {50, 500}}, 2, 1);             // rows of another device
  Add({300, 500}, {{0, 100}, {300, 130}}, 4);               // columns: each run is a block
  Add({40, 9, 30000}, {{3, 2, 100}, {4, 5, 20000}}, 4);     // runs longer than a block
  Add({4, 9, 16384}, {{0, 0, 0}, {4, 9, 16384}}, 4);        // whole blocks
  Add({300, 500}, {{0, 100}, {300, 130}}, {77, 20000}, 8);  // begins and ends within runs
  Add({7}, {{2}, {3}}, 1);
  Add({}, {{}, {}}, 16);
  Add({7}, {{2}, {0}}, 4);  // nothing
  const DeviceOutcome outcome = Compare();
  EXPECT_EQ(outcome.bytes, 0) << "no byte of an array goes to the host";
  EXPECT_EQ(outcome.unchecked, "");
  EXPECT_EQ(gpu_.count("cuLaunchKernel"), 2) << "one for each device";
}

TEST_F(DeviceFingerprintTest, Fingerprint_OfRandomShards_IsThatOfTheHost) {
  std::mt19937_64 random(11);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 200; ++i) {
    Shape shape;
    Box box;
    for (int64_t axis = between(0, 4); axis > 0; --axis) {
      shape.push_back(between(1, 12));
      box.shape.push_back(between(1, shape.back()));
      box.offset.push_back(between(0, shape.back() - box.shape.back()));
    }
    const int64_t begin = between(0, box.size());
    Add(shape, box, {begin, between(begin, box.size())}, 1 << between(0, 4), static_cast<int>(between(0, 1)));
  }
  Compare();
}

TEST_F(DeviceFingerprintTest, Fingerprint_OfMoreBlocksThanFit_TakesSeveralLaunches) {
  const auto rows = static_cast<int64_t>(DeviceFingerprint::kMostBlocks + 5);
  Add({rows, 2}, {{0, 0}, {rows, 1}}, 1);
  Add({3, 5}, {{0, 0}, {3, 5}}, 4);
  Compare();
  EXPECT_EQ(gpu_.count("cuLaunchKernel"), 2);
}

TEST_F(DeviceFingerprintTest, Fingerprint_TheDeviceHasNoMemoryLeft_IsComputedByTheHost) {
  Add({300, 500}, {{0, 100}, {300, 130}}, 4);
  gpu_.fail("cuMemAlloc_v2", 1, cuda::kOutOfMemory);
  const DeviceOutcome outcome = Compare();
  EXPECT_EQ(outcome.bytes, 300 * 130 * 4);
  EXPECT_EQ(outcome.unchecked, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(gpu_.count("cuLaunchKernel"), 0);
}

TEST_F(DeviceFingerprintTest, Fingerprint_ALaunchFails_IsAnError) {
  Add({3, 5}, {{0, 0}, {3, 5}}, 4);
  gpu_.fail("cuLaunchKernel", 1, cuda::kIllegalAddress);
  std::vector<FingerprintPart> parts = {held_[0]->part};
  const DeviceOutcome outcome = staging_->Fingerprint({held_[0]->copy}, kPatience, &parts);
  EXPECT_EQ(outcome.kind, DeviceOutcome::kDriverFailed);
  EXPECT_TRUE(outcome.text.starts_with("cuLaunchKernel: ")) << outcome.text;
}

}  // namespace
}  // namespace cairn
