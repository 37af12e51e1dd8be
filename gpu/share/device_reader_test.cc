// Which device memory of a trainer the worker reads, and which requests it must refuse. The stand-in for CUDA's driver
// lets one process give memory by descriptors to itself.
#include "gpu/share/device_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "gpu/copy/fabric_file.h"
#include "tests/testing/stand_in/cuda/exported_memory.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

using worker::DeviceRequest;

constexpr uint64_t kBlock = ExportedMemory::kBytes;
constexpr uint64_t kSlab = uint64_t{6} << 20;

DeviceRequest ImportRequest(uint64_t block, uint64_t bytes = kBlock) {
  DeviceRequest request;
  request.mutable_import_block()->set_block(block);
  request.mutable_import_block()->set_bytes(bytes);
  return request;
}
DeviceRequest DropRequest(uint64_t block) {
  DeviceRequest request;
  request.mutable_drop_blocks()->add_blocks(block);
  return request;
}
struct Part {
  uint64_t block, offset, slab_offset, bytes;
};
DeviceRequest CopyRequest(const std::vector<Part>& parts) {
  DeviceRequest request;
  for (const Part& part : parts) {
    worker::CopiedPart& to = *request.mutable_copy_to_slab()->add_parts();
    to.set_block(part.block);
    to.set_offset(part.offset);
    to.set_slab_offset(part.slab_offset);
    to.set_bytes(part.bytes);
  }
  return request;
}

class DeviceReaderTest : public testing::Test {
 protected:
  DeviceReaderTest() : slab_(memfd_create("slab", MFD_CLOEXEC)) {
    gpu_.reset();
    EXPECT_EQ(ftruncate(slab_.get(), kSlab), 0);
    reader_ = std::make_unique<DeviceReader>(gpu_.path);
  }
  ~DeviceReaderTest() override {
    gpu_.hang(nullptr);
    reader_.reset();
    gpu_.reset();
  }

  absl::StatusOr<worker::DeviceEvent> Import(uint64_t id, ExportedMemory& block, uint64_t bytes = kBlock) {
    const UniqueFd descriptor = block.Export();
    return reader_->Handle(ImportRequest(id, bytes), descriptor);
  }
  worker::DeviceEvent MapSlab(uint64_t bytes = kSlab) {
    DeviceRequest request;
    request.mutable_map_slab()->set_bytes(bytes);
    const auto event = reader_->Handle(request, slab_);
    EXPECT_TRUE(event.ok()) << event.status();
    return event.value_or(worker::DeviceEvent());
  }
  absl::StatusOr<worker::DeviceEvent> Copy(const std::vector<Part>& parts) {
    return reader_->Handle(CopyRequest(parts), UniqueFd());
  }
  std::string Slab(uint64_t offset, uint64_t bytes) const {
    std::string found(bytes, '\0');
    EXPECT_EQ(pread(slab_.get(), found.data(), bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
    return found;
  }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  const UniqueFd slab_;
  std::unique_ptr<DeviceReader> reader_;
};

TEST_F(DeviceReaderTest, Copy_PartsOfBlocksOfTwoDevices_AreInTheSlabWithTheirChecksums) {
  ExportedMemory first(gpu_, 0, 1), second(gpu_, 1, 2);
  ASSERT_TRUE(Import(7, first)->has_imported());
  ASSERT_TRUE(Import(8, second)->has_imported());
  EXPECT_EQ(MapSlab().slab_mapped().unpinned(), "");
  const std::vector<Part> parts = {{7, 3, 100, 70'000}, {8, 0, kBlock, kBlock}, {7, kBlock - 1, 5, 1}};
  const auto copied = Copy(parts);
  ASSERT_TRUE(copied.ok()) << copied.status();
  ASSERT_EQ(copied->copied().checksums_size(), 3) << copied->copied().unchecked();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string wanted = (parts[i].block == 7 ? first : second).Part(parts[i].offset, parts[i].bytes);
    EXPECT_TRUE(Slab(parts[i].slab_offset, parts[i].bytes) == wanted) << i;
    EXPECT_EQ(copied->copied().checksums(static_cast<int>(i)), Crc32c(wanted.data(), wanted.size())) << i;
  }
  EXPECT_EQ(Slab(6, 94), std::string(94, '\0')) << "nothing else was touched";
}

TEST_F(DeviceReaderTest, Copy_FromMemoryOfAFabricHandle_IsInTheSlab) {
  gpu_.set("fabric", 1);
  ExportedMemory block(gpu_, 1, 5, cuda::kHandleFabric);
  DeviceRequest request = ImportRequest(7);
  request.mutable_import_block()->set_fabric(true);
  const auto imported = reader_->Handle(request, MakeFabricFile(block.ExportToFabric()));
  ASSERT_TRUE(imported.ok() && imported->has_imported()) << imported.status();
  MapSlab();
  ASSERT_TRUE(Copy({{7, 9, 0, 50'000}}).ok());
  EXPECT_TRUE(Slab(0, 50'000) == block.Part(9, 50'000));
}

TEST_F(DeviceReaderTest, Import_AFabricBlockWhoseDescriptorBringsNoHandle_IsRefusedAndTheReaderGoesOn) {
  gpu_.set("fabric", 1);
  ExportedMemory block(gpu_, 0, 5, cuda::kHandleFabric | cuda::kHandlePosix);
  DeviceRequest request = ImportRequest(7);
  request.mutable_import_block()->set_fabric(true);
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const UniqueFd reading(pipe_ends[0]), writing(pipe_ends[1]);  // reading it would block forever
  const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), sizeof(cuda::FabricHandle)), 0);
  const UniqueFd memory = block.Export();
  for (const UniqueFd* descriptor : {&reading, &unsealed, &memory}) {
    const auto event = reader_->Handle(request, *descriptor);
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_EQ(event->refused().error(), "a descriptor brings no fabric handle");
  }
  EXPECT_TRUE(Import(7, block)->has_imported());
}

TEST_F(DeviceReaderTest, Copy_AcrossTheSeamOfPinnedPieces_IsCut) {
  // One piece is 256 MiB, and a slab of two is more than this test wants to fill: holes take no memory.
  constexpr uint64_t kSeam = uint64_t{256} << 20;
  ASSERT_EQ(ftruncate(slab_.get(), kSeam + kBlock), 0);
  ExportedMemory block(gpu_, 0, 3);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab(kSeam + kBlock);
  ASSERT_TRUE(Copy({{7, 0, kSeam - 1000, 5000}}).ok());
  EXPECT_TRUE(Slab(kSeam - 1000, 5000) == block.Part(0, 5000));
  EXPECT_EQ(gpu_.count("cuMemcpyDtoHAsync_v2"), 3) << "two pieces, and the checksums";
}

TEST_F(DeviceReaderTest, Import_MoreThanThereIs_IsRefusedByTheDriverAndTheReaderGoesOn) {
  ExportedMemory block(gpu_, 0, 1);
  const auto event = Import(7, block, 2 * kBlock);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_NE(event->refused().error().find("cuMemMap"), std::string::npos) << event->ShortDebugString();
  EXPECT_EQ(gpu_.count("reservations"), 1) << "that of the trainer";
  EXPECT_TRUE(Import(7, block)->has_imported());
}

TEST_F(DeviceReaderTest, Import_WhatIsNoMemoryOfADevice_IsRefused) {
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto event = reader_->Handle(ImportRequest(7), file);
  ASSERT_TRUE(event.ok());
  EXPECT_NE(event->refused().error().find("cuMemImportFromShareableHandle"), std::string::npos);
}

TEST_F(DeviceReaderTest, Import_OfWhatTheDriverFailsTo_LeavesNothingBehind) {
  ExportedMemory block(gpu_, 0, 1);
  const int64_t handles = gpu_.count("handles");
  for (const char* call : {"cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle",
                           "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    gpu_.fail(call, 1, cuda::kUnknown);
    const auto event = Import(7, block);
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_NE(event->refused().error().find(call), std::string::npos) << event->ShortDebugString();
    EXPECT_EQ(gpu_.count("handles"), handles) << call;
    EXPECT_EQ(gpu_.count("reservations"), 1) << call;
    EXPECT_EQ(gpu_.count("imported_bytes"), 0) << call;
  }
}

TEST_F(DeviceReaderTest, Drop_ABlock_FreesWhatTheTrainerHasFreed) {
  auto block = std::make_unique<ExportedMemory>(gpu_, 0, 1);
  ASSERT_TRUE(Import(7, *block)->has_imported());
  block.reset();
  EXPECT_EQ(gpu_.count("imported_bytes"), kBlock) << "it is held alive until it is dropped";
  ASSERT_TRUE(reader_->Handle(DropRequest(7), UniqueFd())->has_dropped());
  EXPECT_EQ(gpu_.count("imported_bytes"), 0);
  EXPECT_EQ(gpu_.count("reservations"), 0);
}

TEST_F(DeviceReaderTest, End_OfTheReader_GivesEverythingBack) {
  ExportedMemory block(gpu_, 0, 1);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab();
  ASSERT_TRUE(Copy({{7, 0, 0, kBlock}}).ok());
  reader_.reset();
  for (const char* what : {"imported_bytes", "registered_bytes", "allocated_host_bytes", "streams", "events"}) {
    EXPECT_EQ(gpu_.count(what), 0) << what;
  }
  EXPECT_EQ(gpu_.count("reservations"), 1);
}

TEST_F(DeviceReaderTest, End_OneDeviceIsBroken_OthersGetTheirMemoryBackAllTheSame) {
  for (const int broken : {0, 1}) {
    SCOPED_TRACE(broken);
    reader_ = std::make_unique<DeviceReader>(gpu_.path);
    ExportedMemory first(gpu_, 0, 1), second(gpu_, 1, 2);
    const int64_t before = gpu_.count("used_device_bytes");
    ASSERT_TRUE(Import(7, first)->has_imported());
    ASSERT_TRUE(Import(8, second)->has_imported());
    MapSlab();
    const int64_t imported = gpu_.count("used_device_bytes");
    ASSERT_TRUE(Copy({{broken == 0 ? 7U : 8U, 0, 0, kBlock}}).ok());
    const int64_t sums = gpu_.count("used_device_bytes") - imported;  // of the device that breaks
    ASSERT_GT(sums, 0);
    ASSERT_TRUE(Copy({{broken == 0 ? 8U : 7U, 0, 0, kBlock}}).ok());
    ASSERT_GT(gpu_.count("used_device_bytes"), imported + sums);
    // The sums come first, in the order of the devices.
    gpu_.fail("cuCtxPushCurrent_v2", broken + 1, cuda::kIllegalAddress);
    reader_.reset();
    EXPECT_EQ(gpu_.count("used_device_bytes"), before + sums);
    EXPECT_EQ(gpu_.count("imported_bytes"), 0);
    EXPECT_EQ(gpu_.count("registered_bytes"), 0);
  }
}

TEST_F(DeviceReaderTest, Copy_OutsideOfItsBounds_IsRefusedBeforeAnythingIsCopied) {
  ExportedMemory block(gpu_, 0, 1);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab();
  constexpr uint64_t kMost = UINT64_MAX;
  for (const Part& part : {Part{7, 0, 0, kBlock + 1}, Part{7, 1, 0, kBlock}, Part{7, kMost, 0, 2}, Part{7, 2, 0, kMost},
                           Part{7, 0, kSlab - 1, 2}, Part{7, 0, kMost, 2}, Part{7, 0, 0, 0}, Part{9, 0, 0, 1}}) {
    const auto copied = Copy({{7, 0, 0, 8}, part});
    EXPECT_TRUE(HasReason(copied.status(), Reason::kBadRequest)) << copied.status();
  }
  EXPECT_EQ(gpu_.count("cuMemcpyDtoHAsync_v2"), 0);
  EXPECT_EQ(Slab(0, 8), std::string(8, '\0'));
}

TEST_F(DeviceReaderTest, Copy_WithoutASlab_IsRefused) {
  ExportedMemory block(gpu_, 0, 1);
  ASSERT_TRUE(Import(7, block)->has_imported());
  EXPECT_TRUE(HasReason(Copy({{7, 0, 0, 1}}).status(), Reason::kBadRequest));
}

TEST_F(DeviceReaderTest, Handle_ABlockThatIsKnownOrNone_IsRefused) {
  ExportedMemory block(gpu_, 0, 1);
  ASSERT_TRUE(Import(7, block)->has_imported());
  EXPECT_FALSE(Import(7, block).ok()) << "known";
  EXPECT_FALSE(Import(8, block, 0).ok()) << "of no bytes";
  EXPECT_FALSE(reader_->Handle(ImportRequest(8), UniqueFd()).ok()) << "without a descriptor";
  EXPECT_FALSE(reader_->Handle(DropRequest(8), UniqueFd()).ok());
  EXPECT_FALSE(reader_->Handle(DeviceRequest(), UniqueFd()).ok());
}

TEST_F(DeviceReaderTest, MapSlab_ThatCannotBePinned_SaysSoAndIsCopiedToAllTheSame) {
  ExportedMemory block(gpu_, 0, 4);
  ASSERT_TRUE(Import(7, block)->has_imported());
  gpu_.fail("cuMemHostRegister_v2", 1, cuda::kOutOfMemory);
  EXPECT_EQ(MapSlab().slab_mapped().unpinned(), "cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_TRUE(Copy({{7, 0, 0, kBlock}}).ok());
  EXPECT_TRUE(Slab(0, kBlock) == block.Part(0, kBlock));
}

TEST_F(DeviceReaderTest, MapSlab_Again_UnpinsTheLastOne) {
  ExportedMemory block(gpu_, 0, 4);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab();
  MapSlab(4096);
  EXPECT_EQ(gpu_.count("registered_bytes"), 4096);
  EXPECT_TRUE(HasReason(Copy({{7, 0, 4096, 1}}).status(), Reason::kBadRequest)) << "the smaller one counts";
}

TEST_F(DeviceReaderTest, MapSlab_OfNoBytes_LetsGoOfTheLastOne) {
  ExportedMemory block(gpu_, 0, 4);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab();
  MapSlab(0);
  EXPECT_EQ(gpu_.count("registered_bytes"), 0);
  EXPECT_TRUE(HasReason(Copy({{7, 0, 0, 1}}).status(), Reason::kBadRequest));
}

TEST_F(DeviceReaderTest, Copy_ThatTheDeviceCannotSum_IsMadeAndSaysSo) {
  ExportedMemory block(gpu_, 0, 5);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab();
  gpu_.fail("cuModuleLoadData", 1, cuda::kInvalidPtx);
  const auto copied = Copy({{7, 0, 0, kBlock}});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->copied().unchecked(), "cuModuleLoadData: CUDA_ERROR_INVALID_PTX");
  EXPECT_EQ(copied->copied().checksums_size(), 0);
  EXPECT_TRUE(Slab(0, kBlock) == block.Part(0, kBlock));
}

TEST_F(DeviceReaderTest, Copy_ThatTheDriverFails_EndsTheReader) {
  ExportedMemory block(gpu_, 0, 6);
  ASSERT_TRUE(Import(7, block)->has_imported());
  MapSlab();
  gpu_.fail("cuMemcpyDtoHAsync_v2", 2, cuda::kIllegalAddress);  // the first one fetches the checksums
  const auto copied = Copy({{7, 0, 0, kBlock}});
  EXPECT_TRUE(HasReason(copied.status(), Reason::kDeviceError)) << copied.status();
  EXPECT_NE(copied.status().message().find("cuMemcpyDtoHAsync"), std::string::npos);
  EXPECT_FALSE(Copy({{7, 0, 0, 1}}).ok());
}

TEST_F(DeviceReaderTest, Open_WithoutADriver_IsRefused) {
  DeviceReader reader("/nowhere/libcuda.so");
  ExportedMemory block(gpu_, 0, 1);
  const UniqueFd descriptor = block.Export();
  const auto event = reader.Handle(ImportRequest(7), descriptor);
  ASSERT_TRUE(event.ok());
  EXPECT_NE(event->refused().error().find("/nowhere/libcuda.so"), std::string::npos);
}

}  // namespace
}  // namespace cairn
