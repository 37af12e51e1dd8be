// Finds allocations of the stand-in for CUDA's driver.
#include "gpu/copy/shared_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "common/file/unique_fd.h"
#include "gpu/copy/fabric_file.h"
#include "tests/testing/stand_in/cuda/device_memory.h"
#include "tests/testing/stand_in/cuda/exported_memory.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

constexpr uint64_t kBlock = ExportedMemory::kBytes;

constexpr cuda::MemoryAccess kReadWrite = {.location = {}, .flags = cuda::kAccessReadWrite};

class SharedBlocksTest : public testing::Test {
 protected:
  void SetUp() override { gpu_.reset(); }
  void TearDown() override {
    gpu_.reset();
    blocks_.Forget();
  }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  std::map<int, std::unique_ptr<DeviceContext>> contexts_;
  SharedBlocks blocks_{*gpu_.driver, [this](int ordinal) -> const DeviceContext& {
                         std::unique_ptr<DeviceContext>& context = contexts_[ordinal];
                         if (context == nullptr) context = std::make_unique<DeviceContext>(*gpu_.driver, ordinal);
                         return *context;
                       }};
};

TEST_F(SharedBlocksTest, Find_ManyArraysOfFewAllocations_NamesEachAllocationOnce) {
  const ExportedMemory first(gpu_, 0, 1), second(gpu_, 1, 2);
  DeviceMemory plain(gpu_, 1, 100'000);
  std::vector<SharedBlocks::Array> arrays;
  for (uint64_t i = 0; i < 100; ++i) {
    arrays.push_back({first.address + i * 1000, 1000});
    arrays.push_back({second.address + i * 500, 500});
    arrays.push_back({plain.address + i * 10, 10});
  }
  const std::vector<SharedBlock> found = blocks_.Find(arrays);
  ASSERT_EQ(found.size(), 3u);
  std::map<uint64_t, SharedBlock> by_begin;
  for (const SharedBlock& block : found) by_begin[block.begin] = block;
  EXPECT_EQ(by_begin.at(first.address).kind, SharedBlock::kFile);
  EXPECT_EQ(by_begin.at(first.address).bytes, kBlock);
  EXPECT_EQ(by_begin.at(second.address).ordinal, 1);
  EXPECT_NE(by_begin.at(second.address).handle, by_begin.at(first.address).handle);
  EXPECT_EQ(by_begin.at(plain.address).kind, SharedBlock::kIpc);
  EXPECT_EQ(by_begin.at(plain.address).bytes, 100'000u);
}

TEST_F(SharedBlocksTest, Find_MemoryWithAFabricHandleAlone_IsExportedInAFile) {
  gpu_.set("fabric", 1);
  const ExportedMemory fabric(gpu_, 0, 1, cuda::kHandleFabric), both(gpu_, 0, 2, cuda::kHandleFabric | 1);
  std::map<uint64_t, SharedBlock> by_begin;
  for (const SharedBlock& block : blocks_.Find({{fabric.address, 8}, {both.address, 8}})) by_begin[block.begin] = block;
  ASSERT_EQ(by_begin.at(fabric.address).kind, SharedBlock::kFabric);
  EXPECT_EQ(by_begin.at(both.address).kind, SharedBlock::kFile) << "fabric handles are few";
  cuda::FabricHandle handle;
  EXPECT_TRUE(ReadFabricFile(blocks_.Export(by_begin.at(fabric.address).handle).get(), handle));
  EXPECT_EQ(std::memcmp(handle.bytes, fabric.ExportToFabric().bytes, sizeof(handle.bytes)), 0);
  EXPECT_FALSE(ReadFabricFile(blocks_.Export(by_begin.at(both.address).handle).get(), handle));
}

TEST_F(SharedBlocksTest, Find_TheSameMemoryAgain_NamesTheSameHandle) {
  const ExportedMemory memory(gpu_, 0, 1);
  const auto handle = blocks_.Find({{memory.address, 8}}).at(0).handle;
  EXPECT_EQ(blocks_.Find({{memory.address + 100, 8}}).at(0).handle, handle);
}

TEST_F(SharedBlocksTest, Find_MemoryThatWasFreedAndMadeAnewAtItsAddress_NamesAnotherHandle) {
  const cuda::Functions& call = gpu_.driver->call();
  const cuda::AllocationProperties properties = {.handle_types = static_cast<int>(cuda::kHandlePosix)};
  cuda::DevicePointer address = 0;
  ASSERT_EQ(call.address_reserve(&address, kBlock, 0, 0, 0), cuda::kSuccess);
  std::vector<cuda::AllocationHandle> found;
  for (int i = 0; i < 2; ++i) {
    cuda::AllocationHandle handle = 0;
    ASSERT_EQ(call.memory_create(&handle, kBlock, &properties, 0), cuda::kSuccess);
    ASSERT_EQ(call.memory_map(address, kBlock, 0, handle, 0), cuda::kSuccess);
    ASSERT_EQ(call.memory_set_access(address, kBlock, &kReadWrite, 1), cuda::kSuccess);
    ASSERT_EQ(call.memory_release(handle), cuda::kSuccess);
    found.push_back(blocks_.Find({{address, 8}}).at(0).handle);
    EXPECT_EQ(gpu_.count("handles"), 1) << "the one before was let go";
    ASSERT_EQ(call.memory_unmap(address, kBlock), cuda::kSuccess);
    EXPECT_EQ(gpu_.count("used_device_bytes"), kBlock) << "kept, so that no other memory gets its handle";
  }
  EXPECT_NE(found[0], found[1]);
  blocks_.Forget();
  EXPECT_EQ(gpu_.count("used_device_bytes"), 0);
  call.address_free(address, kBlock);
}

TEST_F(SharedBlocksTest, Find_MemoryThatIsNotExportable_SaysWhy) {
  const cuda::Functions& call = gpu_.driver->call();
  const cuda::AllocationProperties properties;
  cuda::AllocationHandle handle = 0;
  cuda::DevicePointer address = 0;
  ASSERT_EQ(call.memory_create(&handle, kBlock, &properties, 0), cuda::kSuccess);
  ASSERT_EQ(call.address_reserve(&address, kBlock, 0, 0, 0), cuda::kSuccess);
  ASSERT_EQ(call.memory_map(address, kBlock, 0, handle, 0), cuda::kSuccess);
  ASSERT_EQ(call.memory_set_access(address, kBlock, &kReadWrite, 1), cuda::kSuccess);
  const auto found = blocks_.Find({{address, 8}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, SharedBlock::kNone);
  EXPECT_NE(found[0].why, "");
  call.memory_unmap(address, kBlock);
  call.address_free(address, kBlock);
  call.memory_release(handle);
}

TEST_F(SharedBlocksTest, Find_WhatIsNoMemoryOfADevice_LeavesAGap) {
  int host = 0;
  const ExportedMemory memory(gpu_, 0, 1);
  const auto found = blocks_.Find({{reinterpret_cast<uint64_t>(&host), 4}, {memory.address, 8}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].begin, memory.address);
}

TEST_F(SharedBlocksTest, Find_WhenTheDriverFails_KeepsWhatWasFoundBefore) {
  const ExportedMemory first(gpu_, 0, 1), second(gpu_, 0, 2);
  blocks_.Find({{first.address, 8}});
  gpu_.fail("cuMemGetAddressRange_v2", 2, cuda::kUnknown);
  EXPECT_THROW(blocks_.Find({{first.address, 8}, {second.address, 8}}), DriverFailure);
  gpu_.reset();
  EXPECT_EQ(gpu_.count("handles"), 2) << "of the test; references to them are no handles of their own";
  EXPECT_TRUE(blocks_.Export(blocks_.Find({{first.address, 8}}).at(0).handle).valid());
}

}  // namespace
}  // namespace cairn
