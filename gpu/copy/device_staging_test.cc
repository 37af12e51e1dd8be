// Tests DeviceStaging with the stand-in for CUDA's driver.
#include "gpu/copy/device_staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/crc32c.h"
#include "tests/testing/stand_in/cuda/device_memory.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

constexpr int64_t kSlot = 4096;
constexpr double kPatience = 60;  // seconds that no test needs
constexpr uint64_t kSlab = 7;     // under which memory is pinned

class DeviceStagingTest : public testing::Test {
 protected:
  void SetUp() override { gpu_.reset(); }
  void TearDown() override {
    gpu_.reset();
    staging_.reset();
    for (const char* what :
         {"registered_bytes", "allocated_host_bytes", "used_device_bytes", "contexts", "streams", "events"}) {
      EXPECT_EQ(gpu_.count(what), 0) << what << " was not given back";
    }
  }

  static StagedCopy ToHost(const DeviceMemory& memory, std::byte* host) {
    return {.copy = {.device = memory.address,
                     .copy = {.target = host, .element_bytes = static_cast<int64_t>(memory.bytes.size())}},
            .pinned = kSlab};
  }
  DeviceOutcome Pin(std::vector<std::byte>& memory, int64_t piece = 1024) {
    return staging_->Pin(kSlab, 0, memory.data(), static_cast<int64_t>(memory.size()), piece, kPatience);
  }
  void Release(uint64_t number = kSlab) {
    staging_->Release(number, [] {}, kPatience);
  }
  // Until the thread is in this call, and says so. A busy machine may not have begun at the deadline.
  void AwaitHanging(const std::string& symbol) {
    const std::string name = symbol.substr(0, symbol.find("_v2"));
    while (!staging_->Waiting().starts_with(name + " has not returned for ")) std::this_thread::yield();
    const DeviceOutcome next = staging_->Copy({{.copy = {.copy = {.element_bytes = 1}}}}, 1, kPatience);
    EXPECT_EQ(next.kind, DeviceOutcome::kStalled) << "at once";
    EXPECT_TRUE(next.text.starts_with("the GPU's driver did not answer in time: " + name + " has not")) << next.text;
  }
  bool Same(const std::byte* host, const DeviceMemory& memory) {
    return std::memcmp(host, memory.bytes.data(), memory.bytes.size()) == 0;
  }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  std::unique_ptr<DeviceStaging> staging_ = std::make_unique<DeviceStaging>(*gpu_.driver, kSlot);
};

TEST_F(DeviceStagingTest, Copy_ToPinnedMemory_GoesStraightWithOneCallForEachArray) {
  constexpr size_t kArrays = 3000;
  std::vector<std::byte> slab(kArrays * 64);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  DeviceMemory memory(gpu_, 0, slab.size());
  memory.Fill(1);
  std::vector<StagedCopy> copies;
  for (size_t i = 0; i < kArrays; ++i) {
    copies.push_back(
        {.copy = {.device = memory.address + i * 64, .copy = {.target = slab.data() + i * 64, .element_bytes = 64}},
         .pinned = kSlab});
  }
  const DeviceOutcome outcome = staging_->Copy(copies, 2, kPatience);
  ASSERT_EQ(outcome.kind, DeviceOutcome::kDone) << outcome.text;
  EXPECT_EQ(outcome.path, DevicePath::kPinnedSlab);
  EXPECT_EQ(outcome.fallback, "");
  EXPECT_EQ(outcome.calls, static_cast<int64_t>(kArrays));
  EXPECT_EQ(gpu_.count("cuMemcpyDtoHAsync_v2"), static_cast<int64_t>(kArrays));
  EXPECT_EQ(gpu_.count("cuStreamWaitEvent"), 1) << "one for the stream, not one for each array";
  EXPECT_EQ(gpu_.count("bytes_to_host"), static_cast<int64_t>(slab.size())) << "each byte moves once";
  EXPECT_EQ(gpu_.count("allocated_host_bytes"), 0);
  EXPECT_EQ(gpu_.count("cuPointerGetAttributes"), 1) << "one for the allocation, not one for each array";
  EXPECT_EQ(gpu_.count("cuPointerGetAttribute"), 0);
  EXPECT_TRUE(Same(slab.data(), memory));
}

// The addresses of one save say nothing about the next.
TEST_F(DeviceStagingTest, Copy_MemoryThatWasFreedSinceTheLastCopy_IsNoticed) {
  std::vector<std::byte> host(64);
  DeviceMemory kept(gpu_, 0, 64), freed(gpu_, 0, 64);
  const StagedCopy copy = ToHost(freed, host.data());
  EXPECT_EQ(staging_->Copy({copy}, 1, kPatience).kind, DeviceOutcome::kDone);
  freed.Free();
  EXPECT_EQ(staging_->Copy({copy}, 1, kPatience).kind, DeviceOutcome::kNotOnDevice);
}

// A driver refuses a copy that reaches from one pinned piece into the next.
TEST_F(DeviceStagingTest, Copy_OverSeamsOfPinnedPieces_IsCutThere) {
  std::vector<std::byte> slab(8192);
  ASSERT_EQ(Pin(slab, 1024).kind, DeviceOutcome::kDone);
  DeviceMemory whole(gpu_, 0, 3000), rows(gpu_, 0, 700 * 5);
  whole.Fill(20);
  rows.Fill(21);
  // There are five rows of 300 bytes, 700 bytes apart on the device. Packed from byte 3500 on, they have seams between
  // and within rows.
  const StagedCopy strided = {
      .copy = {.device = rows.address,
               .copy = {.target = slab.data() + 3500, .element_bytes = 1, .dimensions = {{5, 700, 300}, {300, 1, 1}}}},
      .pinned = kSlab};
  const DeviceOutcome outcome = staging_->Copy({ToHost(whole, slab.data() + 100), strided}, 2, kPatience);
  ASSERT_EQ(outcome.kind, DeviceOutcome::kDone) << outcome.text;
  EXPECT_EQ(outcome.path, DevicePath::kPinnedSlab);
  EXPECT_TRUE(Same(slab.data() + 100, whole));
  for (size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(std::memcmp(&slab[3500 + 300 * row], &rows.bytes[700 * row], 300), 0) << row;
  }
}

TEST_F(DeviceStagingTest, Copy_ToMemoryThatIsNotPinned_TakesTheRingAndSaysWhy) {
  DeviceMemory memory(gpu_, 0, 5 * kSlot + 17);
  memory.Fill(2);
  std::vector<std::byte> host(memory.bytes.size());
  const DeviceOutcome outcome = staging_->Copy({ToHost(memory, host.data())}, 2, kPatience);
  EXPECT_EQ(outcome.path, DevicePath::kPinnedRing);
  EXPECT_EQ(outcome.fallback, "the memory is not pinned");
  EXPECT_EQ(gpu_.count("allocated_host_bytes"), 2 * kSlot);
  EXPECT_EQ(outcome.bytes, static_cast<int64_t>(host.size()));
  EXPECT_TRUE(Same(host.data(), memory));
}

TEST_F(DeviceStagingTest, Copy_NothingCanBePinned_IsPageableAndNamesBothCauses) {
  gpu_.set("pinnable_bytes", 0);
  DeviceMemory memory(gpu_, 0, 3 * kSlot);
  memory.Fill(3);
  std::vector<std::byte> host(memory.bytes.size());
  EXPECT_EQ(Pin(host).kind, DeviceOutcome::kDriverFailed);
  const DeviceOutcome outcome = staging_->Copy({ToHost(memory, host.data())}, 2, kPatience);
  EXPECT_EQ(outcome.path, DevicePath::kPageable);
  EXPECT_EQ(outcome.fallback, "cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY; cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_TRUE(Same(host.data(), memory));
}

TEST_F(DeviceStagingTest, Pin_ALaterPieceIsRefused_LeavesNothingPinned) {
  gpu_.set("pinnable_bytes", 2500);
  std::vector<std::byte> slab(4096);
  const DeviceOutcome outcome = Pin(slab);
  EXPECT_EQ(outcome.kind, DeviceOutcome::kDriverFailed);
  EXPECT_EQ(outcome.text, "cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(gpu_.count("cuMemHostRegister_v2"), 3);
  EXPECT_EQ(gpu_.count("registered_bytes"), 0);
  EXPECT_EQ(staging_->pinned_bytes(), 0);
}

TEST_F(DeviceStagingTest, Release_PinnedMemory_GivesAllPiecesBackBeforeItIsUnmapped) {
  std::vector<std::byte> slab(4096);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  EXPECT_EQ(gpu_.count("registered_bytes"), 4096);
  EXPECT_EQ(staging_->pinned_bytes(), 4096);
  int64_t registered = -1;
  staging_->Release(kSlab, [&] { registered = gpu_.count("registered_bytes"); }, kPatience);
  EXPECT_EQ(registered, 0);
  EXPECT_FALSE(staging_->releasing());
}

// As when an agent restarts while a load copies: its slab's mapping goes, and must not go before it is unpinned.
TEST_F(DeviceStagingTest, Release_WhileACopyRuns_UnpinsAndUnmapsWhenThatEnds) {
  std::vector<std::byte> slab(4096), host(64);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  DeviceMemory memory(gpu_, 0, 64);
  memory.Fill(15);
  gpu_.hang("cuMemcpyDtoHAsync_v2");
  EXPECT_EQ(staging_->Copy({ToHost(memory, host.data())}, 1, 0.01).kind, DeviceOutcome::kStalled);
  std::promise<int64_t> unmapped;
  staging_->Release(kSlab, [&] { unmapped.set_value(gpu_.count("registered_bytes")); }, kPatience);
  EXPECT_TRUE(staging_->releasing()) << "it does not wait for a copy";
  EXPECT_EQ(gpu_.count("cuMemHostUnregister"), 0);
  gpu_.hang(nullptr);
  EXPECT_EQ(unmapped.get_future().get(), 0) << "unpinned before it was unmapped";
  while (staging_->busy()) std::this_thread::yield();
  EXPECT_FALSE(staging_->releasing());
}

TEST_F(DeviceStagingTest, Release_AfterAPinThatHangs_UnpinsWhatIsPinnedLater) {
  std::vector<std::byte> slab(4096);
  gpu_.hang("cuMemHostRegister_v2");
  const DeviceOutcome stalled = staging_->Pin(kSlab, 0, slab.data(), 4096, 1024, 0.01);
  EXPECT_EQ(stalled.kind, DeviceOutcome::kStalled);
  AwaitHanging("cuMemHostRegister_v2");
  std::promise<int64_t> unmapped;
  staging_->Release(kSlab, [&] { unmapped.set_value(gpu_.count("registered_bytes")); }, kPatience);
  gpu_.hang(nullptr);
  EXPECT_EQ(unmapped.get_future().get(), 0);
  EXPECT_EQ(gpu_.count("cuMemHostUnregister"), 4);
  while (staging_->busy()) std::this_thread::yield();
}

TEST_F(DeviceStagingTest, Release_AfterTheDestructorsWorkIsLeftToAThreadThatHangs_StillUnmaps) {
  std::vector<std::byte> slab(4096), host(64);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  DeviceMemory memory(gpu_, 0, 64);
  gpu_.hang("cuMemcpyDtoHAsync_v2");
  EXPECT_EQ(staging_->Copy({ToHost(memory, host.data())}, 1, 0.01).kind, DeviceOutcome::kStalled);
  EXPECT_FALSE(staging_->Close());
  std::promise<int64_t> unmapped;
  staging_->Release(kSlab, [&] { unmapped.set_value(gpu_.count("registered_bytes")); }, kPatience);
  gpu_.hang(nullptr);
  EXPECT_EQ(unmapped.get_future().get(), 0);
  EXPECT_TRUE([&] {
    while (!staging_->Close()) std::this_thread::yield();
    return true;
  }());
}

// Other memory may be mapped where pinned memory was. An address alone does not say that it is pinned.
TEST_F(DeviceStagingTest, Copy_ToMemoryOfAnotherNumber_TakesTheRing) {
  std::vector<std::byte> slab(4096);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  DeviceMemory memory(gpu_, 0, 64);
  memory.Fill(16);
  StagedCopy copy = ToHost(memory, slab.data());
  copy.pinned = kSlab + 1;
  // The driver takes the range for pinned in one piece all the same.
  const DeviceOutcome outcome = staging_->Copy({copy}, 1, kPatience);
  EXPECT_EQ(outcome.path, DevicePath::kPinnedRing);
  EXPECT_EQ(outcome.fallback, "the memory is not pinned");
  EXPECT_EQ(outcome.detour_bytes, 64);
  EXPECT_EQ(staging_->Pin(kSlab + 1, 0, slab.data(), 4096, 4096, kPatience).text,
            "cuMemHostRegister: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
  EXPECT_EQ(staging_->Copy({copy}, 1, kPatience).fallback,
            "cuMemHostRegister: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
  EXPECT_TRUE(Same(slab.data(), memory));
}

TEST_F(DeviceStagingTest, Copy_AnArrayThatMustBeReordered_SaysSoAndHowManyBytes) {
  std::vector<std::byte> slab(8192);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  DeviceMemory packed(gpu_, 0, 100), transposed(gpu_, 0, 4000);
  packed.Fill(17);
  transposed.Fill(18);
  StagedCopy copy = ToHost(transposed, slab.data() + 4096);
  copy.copy.copy.element_bytes = 4;
  copy.copy.copy.dimensions = {{10, 4, 400}, {100, 40, 4}};
  const DeviceOutcome outcome = staging_->Copy({ToHost(packed, slab.data()), copy}, 2, kPatience);
  ASSERT_EQ(outcome.kind, DeviceOutcome::kDone) << outcome.text;
  EXPECT_EQ(outcome.path, DevicePath::kPinnedRing);
  EXPECT_EQ(outcome.reordered, 1);
  EXPECT_EQ(outcome.bytes, 4100);
  EXPECT_EQ(outcome.detour_bytes, 4000);
  EXPECT_EQ(std::memcmp(&slab[4096 + 400 + 4], &transposed.bytes[4 + 40], 4), 0);
  gpu_.set("pinnable_bytes", 1);
  staging_ = std::make_unique<DeviceStaging>(*gpu_.driver, kSlot);
  const DeviceOutcome whole = staging_->Copy({ToHost(packed, slab.data()), copy}, 2, kPatience);
  EXPECT_EQ(whole.path, DevicePath::kPageable);
  EXPECT_EQ(whole.reordered, -1) << "all took that path, for another reason";
  EXPECT_EQ(whole.detour_bytes, whole.bytes);
}

// The trainer's stream has not written the bytes yet when the copy is asked for.
TEST_F(DeviceStagingTest, Copy_TheTrainersStreamStillWrites_ComesAfterIt) {
  DeviceMemory memory(gpu_, 0, 256);
  std::vector<std::byte> fresh(256, std::byte{7}), slab(256);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  ASSERT_EQ(staging_->Pin(8, 0, fresh.data(), 256, 256, kPatience).kind, DeviceOutcome::kDone);
  const auto& call = gpu_.driver->call();
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  ASSERT_EQ(call.primary_context_retain(&context, 0), cuda::kSuccess);
  ASSERT_EQ(call.context_push(context), cuda::kSuccess);
  ASSERT_EQ(call.stream_create(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
  gpu_.set("engine_stopped", 1);
  ASSERT_EQ(call.copy_to_device(memory.address, fresh.data(), 256, stream), cuda::kSuccess);
  StagedCopy copy = ToHost(memory, slab.data());
  copy.stream = reinterpret_cast<uint64_t>(stream);
  auto done = std::async(std::launch::async, [&] { return staging_->Copy({copy}, 1, kPatience); });
  while (gpu_.count("cuMemcpyDtoHAsync_v2") == 0) std::this_thread::yield();
  EXPECT_EQ(slab[0], std::byte{0});
  gpu_.set("engine_stopped", 0);
  EXPECT_EQ(done.get().kind, DeviceOutcome::kDone);
  EXPECT_EQ(slab, fresh);
  EXPECT_EQ(gpu_.count("cuStreamWaitEvent"), 1);
  call.stream_destroy(stream);
  call.context_pop(&context);
  call.primary_context_release(0);
}

TEST_F(DeviceStagingTest, Copy_ArraysOfTwoDevices_UsesAStreamOfEach) {
  DeviceMemory first(gpu_, 0, 700), second(gpu_, 1, 900);
  first.Fill(4);
  second.Fill(5);
  for (const bool pinned : {true, false}) {
    std::vector<std::byte> slab(1600);
    if (pinned) {
      ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
    }
    const DeviceOutcome outcome =
        staging_->Copy({ToHost(first, slab.data()), ToHost(second, slab.data() + 700)}, 2, kPatience);
    EXPECT_EQ(outcome.kind, DeviceOutcome::kDone) << outcome.text;
    EXPECT_EQ(gpu_.count("streams"), 2);
    EXPECT_TRUE(Same(slab.data(), first) && Same(slab.data() + 700, second));
    Release();
  }
}

TEST_F(DeviceStagingTest, Copy_StridedArrays_BothWays_KeepElements) {
  // 40 x 50 elements of 4 bytes, which the device has transposed, with a gap after each column.
  constexpr int64_t kRows = 40, kColumns = 50, kPitch = kRows * 4 + 12;
  DeviceMemory memory(gpu_, 0, kColumns * kPitch);
  memory.Fill(6);
  const std::vector<TiledCopy::Dimension> dimensions = {{kRows, 4, kColumns * 4}, {kColumns, kPitch, 4}};
  std::vector<std::byte> host(kRows * kColumns * 4);
  StagedCopy copy = {.copy = {.device = memory.address,
                              .copy = {.target = host.data(), .element_bytes = 4, .dimensions = dimensions}}};
  ASSERT_EQ(staging_->Copy({copy}, 2, kPatience).kind, DeviceOutcome::kDone);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      ASSERT_EQ(std::memcmp(&host[static_cast<size_t>((row * kColumns + column) * 4)],
                            &memory.bytes[static_cast<size_t>(column * kPitch + row * 4)], 4),
                0);
    }
  }
  const std::vector<std::byte> before(memory.bytes.begin(), memory.bytes.end());
  for (int64_t column = 0; column < kColumns; ++column)
    std::memset(&memory.bytes[static_cast<size_t>(column * kPitch)], 0, kRows * 4);
  StagedCopy back = {
      .copy = {.to_host = false, .device = memory.address, .copy = {.source = host.data(), .element_bytes = 4}}};
  for (const auto& d : dimensions) back.copy.copy.dimensions.push_back({d.extent, d.target_stride, d.source_stride});
  ASSERT_EQ(staging_->Copy({back}, 2, kPatience).kind, DeviceOutcome::kDone);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.bytes.begin())) << "gaps are left alone";
}

TEST_F(DeviceStagingTest, Copy_ToTheDeviceFromPinnedMemory_GoesStraight) {
  DeviceMemory memory(gpu_, 0, 3000), columns(gpu_, 0, 700 * 5);
  std::vector<std::byte> slab(4500);
  std::mt19937 random(8);
  for (std::byte& byte : slab) byte = static_cast<std::byte>(random());
  columns.Fill(9);
  const std::vector<std::byte> before(columns.bytes.begin(), columns.bytes.end());
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  const StagedCopy whole = {
      .copy = {.to_host = false, .device = memory.address, .copy = {.source = slab.data(), .element_bytes = 3000}},
      .pinned = kSlab};
  // Five rows of 300 bytes, which are 700 bytes apart on the device.
  const StagedCopy rows = {
      .copy = {.to_host = false,
               .device = columns.address,
               .copy = {.source = slab.data() + 3000,
                        .element_bytes = 300,
                        .dimensions = {{.extent = 5, .source_stride = 300, .target_stride = 700}}}},
      .pinned = kSlab};
  const DeviceOutcome outcome = staging_->Copy({whole, rows}, 2, kPatience);
  ASSERT_EQ(outcome.kind, DeviceOutcome::kDone) << outcome.text;
  EXPECT_EQ(outcome.path, DevicePath::kPinnedSlab);
  EXPECT_EQ(outcome.detour_bytes, 0);
  EXPECT_TRUE(Same(slab.data(), memory));
  for (size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(std::memcmp(&columns.bytes[row * 700], &slab[3000 + row * 300], 300), 0);
    EXPECT_EQ(std::memcmp(&columns.bytes[row * 700 + 300], &before[row * 700 + 300], 400), 0) << "gaps are left alone";
  }
  EXPECT_EQ(gpu_.count("allocated_host_bytes"), 0) << "there is no ring";
  Release();
}

TEST_F(DeviceStagingTest, Copy_ToTheDeviceFromOtherMemory_TakesTheRing) {
  DeviceMemory memory(gpu_, 0, 10 * kSlot + 5);
  std::vector<std::byte> host(memory.bytes.size());
  std::mt19937 random(7);
  for (std::byte& byte : host) byte = static_cast<std::byte>(random());
  const StagedCopy copy = {
      .copy = {.to_host = false,
               .device = memory.address,
               .copy = {.source = host.data(), .element_bytes = static_cast<int64_t>(host.size())}}};
  const DeviceOutcome outcome = staging_->Copy({copy}, 2, kPatience);
  EXPECT_EQ(outcome.path, DevicePath::kPinnedRing);
  EXPECT_EQ(outcome.fallback, "");
  EXPECT_TRUE(Same(host.data(), memory));
  EXPECT_EQ(gpu_.count("bytes_to_device"), static_cast<int64_t>(host.size()));
  EXPECT_EQ(staging_->pinned_bytes(), 2 * kSlot);
}

TEST_F(DeviceStagingTest, Copy_AnyCallFails_SaysWhichOneAndTheNextWorks) {
  DeviceMemory memory(gpu_, 0, 3 * kSlot);
  memory.Fill(8);
  std::vector<std::byte> host(memory.bytes.size());
  for (const char* call :
       {"cuThreadExchangeStreamCaptureMode", "cuPointerGetAttributes", "cuMemGetAddressRange_v2", "cuStreamIsCapturing",
        "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuCtxPushCurrent_v2", "cuEventCreate", "cuEventRecord",
        "cuStreamWaitEvent", "cuMemcpyDtoHAsync_v2", "cuEventSynchronize"}) {
    SCOPED_TRACE(call);
    staging_ = std::make_unique<DeviceStaging>(*gpu_.driver, kSlot);
    gpu_.fail(call, 1, cuda::kUnknown);
    const DeviceOutcome failed = staging_->Copy({ToHost(memory, host.data())}, 1, kPatience);
    EXPECT_EQ(failed.kind, DeviceOutcome::kDriverFailed);
    EXPECT_NE(failed.text.find(": CUDA_ERROR_UNKNOWN"), std::string::npos) << failed.text;
    EXPECT_TRUE(std::string(call).starts_with(failed.text.substr(0, failed.text.find(':')))) << failed.text;
    std::fill(host.begin(), host.end(), std::byte{0});
    EXPECT_EQ(staging_->Copy({ToHost(memory, host.data())}, 1, kPatience).kind, DeviceOutcome::kDone);
    EXPECT_TRUE(Same(host.data(), memory));
  }
}

TEST_F(DeviceStagingTest, Copy_ABrokenContext_FailsEachTimeAndEndsWithItsName) {
  DeviceMemory memory(gpu_, 0, 64);
  std::vector<std::byte> host(64);
  gpu_.set("broken", cuda::kIllegalAddress);
  for (int i = 0; i < 2; ++i) {
    const DeviceOutcome outcome = staging_->Copy({ToHost(memory, host.data())}, 1, kPatience);
    EXPECT_EQ(outcome.kind, DeviceOutcome::kDriverFailed);
    EXPECT_NE(outcome.text.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  }
  gpu_.reset();
}

TEST_F(DeviceStagingTest, Copy_TheDriverHangs_EndsAtItsDeadlineAndGoesOnLater) {
  DeviceMemory memory(gpu_, 0, 64);
  memory.Fill(9);
  std::vector<std::byte> host(64);
  for (const char* call : {"cuMemcpyDtoHAsync_v2", "cuEventSynchronize", "cuCtxPushCurrent_v2"}) {
    SCOPED_TRACE(call);
    gpu_.hang(call);
    EXPECT_EQ(staging_->Copy({ToHost(memory, host.data())}, 1, 0.01).kind, DeviceOutcome::kStalled);
    AwaitHanging(call);
    EXPECT_TRUE(staging_->busy());
    EXPECT_EQ(staging_->Copy({ToHost(memory, host.data())}, 1, kPatience).kind, DeviceOutcome::kStalled)
        << "at once, while the first one hangs";
    gpu_.hang(nullptr);
    while (staging_->busy()) std::this_thread::yield();
    EXPECT_EQ(staging_->Copy({ToHost(memory, host.data())}, 1, kPatience).kind, DeviceOutcome::kDone);
    EXPECT_TRUE(Same(host.data(), memory));
  }
}

TEST_F(DeviceStagingTest, Copy_MemoryThatIsNoDevices_IsNamedAndNothingIsCopied) {
  DeviceMemory memory(gpu_, 0, 64), freed(gpu_, 0, 64);
  std::vector<std::byte> host(128);
  StagedCopy second = ToHost(freed, host.data() + 64);
  freed.Free();
  const DeviceOutcome outcome = staging_->Copy({ToHost(memory, host.data()), second}, 1, kPatience);
  EXPECT_EQ(outcome.kind, DeviceOutcome::kNotOnDevice);
  EXPECT_EQ(outcome.index, 1);
  EXPECT_EQ(gpu_.count("bytes_to_host"), 0);
  StagedCopy too_long = ToHost(memory, host.data());
  too_long.copy.copy.element_bytes = 128;
  EXPECT_EQ(staging_->Copy({too_long}, 1, kPatience).kind, DeviceOutcome::kTooLong);
}

TEST_F(DeviceStagingTest, Copy_StridesWhoseReachOverflows_IsRefused) {
  DeviceMemory memory(gpu_, 0, 64);
  std::vector<std::byte> host(64);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() - 1;
  const std::vector<std::vector<TiledCopy::Dimension>> cases = {
      {{2, kHuge, 4}, {2, kHuge, 4}},             // the sum is less than zero
      {{5, int64_t{1} << 62, 4}},                 // the product is zero
      {{2, kHuge, 4}, {2, kHuge, 4}, {2, 8, 4}},  // the sum is some bytes
      {{2, kHuge - static_cast<int64_t>(memory.address), 4}},
  };
  for (const auto& dimensions : cases) {
    StagedCopy copy = ToHost(memory, host.data());
    copy.copy.copy.element_bytes = 4;
    copy.copy.copy.dimensions = dimensions;
    EXPECT_EQ(staging_->Copy({copy}, 1, kPatience).kind, DeviceOutcome::kTooLong);
  }
  EXPECT_EQ(gpu_.count("bytes_to_host"), 0);
}

TEST_F(DeviceStagingTest, Locate_AddressesOfTwoKinds_IsTheFirstDevice) {
  DeviceMemory memory(gpu_, 1, 64);
  int here = 0, device = 9;
  EXPECT_EQ(staging_->Locate({}, kPatience, &device).kind, DeviceOutcome::kDone);
  EXPECT_EQ(device, -1);
  EXPECT_EQ(staging_->Locate({0, reinterpret_cast<uint64_t>(&here), memory.address}, kPatience, &device).kind,
            DeviceOutcome::kDone);
  EXPECT_EQ(device, 1);
  gpu_.hang("cuPointerGetAttributes");
  const DeviceOutcome stalled = staging_->Locate({memory.address}, 0.01, &device);
  EXPECT_EQ(stalled.kind, DeviceOutcome::kStalled);
  AwaitHanging("cuPointerGetAttributes");
  EXPECT_EQ(device, -1);
  gpu_.hang(nullptr);
  while (staging_->busy()) std::this_thread::yield();
}

TEST_F(DeviceStagingTest, Checksum_ArraysLargerThanTheRing_AreThoseOfTheirBytes) {
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<StagedCopy> copies;
  for (const size_t bytes : {size_t{1}, size_t{kSlot}, size_t{5 * kSlot + 3}, size_t{100}}) {
    memory.push_back(std::make_unique<DeviceMemory>(gpu_, 0, bytes));
    memory.back()->Fill(static_cast<unsigned>(bytes));
    copies.push_back(ToHost(*memory.back(), nullptr));
  }
  copies.push_back({.copy = {.copy = {.element_bytes = 4, .dimensions = {{0, 4, 4}}}}});
  std::vector<uint32_t> sums;
  ASSERT_EQ(staging_->Checksum(copies, kPatience, &sums).kind, DeviceOutcome::kDone);
  ASSERT_EQ(sums.size(), 5u);
  for (size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(sums[i],
              ExtendCrc32c(0, reinterpret_cast<const char*>(memory[i]->bytes.data()), memory[i]->bytes.size()));
  }
  EXPECT_EQ(sums[4], 0u);
}

TEST_F(DeviceStagingTest, Destructor_WhileTheDriverHangs_GivesAllBackWhenItGoesOn) {
  std::vector<std::byte> slab(4096);
  ASSERT_EQ(Pin(slab).kind, DeviceOutcome::kDone);
  DeviceMemory memory(gpu_, 0, 64);
  gpu_.hang("cuMemcpyDtoHAsync_v2");
  EXPECT_EQ(staging_->Copy({ToHost(memory, slab.data())}, 1, 0.01).kind, DeviceOutcome::kStalled);
  staging_.reset();
  EXPECT_EQ(gpu_.count("registered_bytes"), 4096) << "the copy may still write there";
  gpu_.hang(nullptr);
  // It releases contexts last. The array has one.
  while (gpu_.count("contexts") > 1) std::this_thread::yield();
}

}  // namespace
}  // namespace cairn
