// Tests a keeper with a real worker; this test plays trainer and session. The trainer's devices are those of the
// stand-in for CUDA's driver, which shares memory between processes.
#include "agent/execution/device_keeper.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "gpu/copy/device_context.h"
#include "tests/testing/stand_in/cuda/device_memory.h"
#include "tests/testing/stand_in/cuda/exported_memory.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

constexpr uint64_t kBlock = ExportedMemory::kBytes;
constexpr uint64_t kSlab = uint64_t{8} << 20;

// Keeps what the session would be told.
template <typename Result>
class Told {
 public:
  void Set(uint64_t id, Result result) {
    MutexLock lock(mutex_);
    results_.emplace(id, std::move(result));
    changed_.NotifyAll();
  }
  Result Await(uint64_t id) {
    MutexLock lock(mutex_);
    while (!results_.contains(id)) changed_.Wait(mutex_);
    return results_.at(id);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Result> results_ ABSL_GUARDED_BY(mutex_);
};

class DeviceKeeperTest : public testing::Test {
 protected:
  DeviceKeeperTest() {
    gpu_.reset();
    settings_ = testing::TempDir() + "/settings";
    setenv("STAND_IN_CUDA", settings_.c_str(), 1);
    std::ofstream(settings_) << "";
    slab_ = *SharedMemory::Create("slab", kSlab);
    Begin(absl::Seconds(20));
  }
  ~DeviceKeeperTest() override {
    keeper_.reset();
    gpu_.reset();
    std::filesystem::remove(settings_);
  }

  void Begin(absl::Duration grace) {
    DeviceKeeperOptions options;
    options.worker.program = std::filesystem::absolute("gpu/share/cairn-gpu-worker").string();
    options.worker.libcuda = gpu_.path;
    options.worker.grace = grace;
    options.on_taken = [this](uint64_t offer, const absl::Status& status) { taken_.Set(offer, status); };
    options.on_copied = [this](uint64_t copy, absl::StatusOr<DeviceCopied> result) {
      copied_.Set(copy, std::move(result));
    };
    keeper_ = std::make_unique<DeviceKeeper>(std::move(options));
  }
  // Counts for workers that start from now on.
  void SetWorkers(const std::string& line) { std::ofstream(settings_) << line << "\n"; }

  absl::Status Take(uint64_t offer, const std::vector<const ExportedMemory*>& memory, uint64_t bytes = kBlock) {
    std::vector<DeviceBlock> blocks;
    std::vector<UniqueFd> descriptors;
    for (const ExportedMemory* each : memory) {
      blocks.push_back({.id = 100 * offer + blocks.size(), .bytes = bytes});
      descriptors.push_back(each->Export());
    }
    keeper_->Take(offer, blocks, std::move(descriptors));
    return taken_.Await(offer);
  }
  void Begin(uint64_t copy, std::vector<DeviceMemoryPart> parts, std::vector<DeviceBlock> ipc = {},
             absl::Duration timeout = absl::Seconds(60)) {
    keeper_->Copy({.copy = copy,
                   .slab_id = slab_id_,
                   .slab = slab_,
                   .parts = std::make_shared<const std::vector<DeviceMemoryPart>>(std::move(parts)),
                   .ipc = std::move(ipc),
                   .deadline = Clock::Real().SteadyNow() + timeout});
  }
  absl::StatusOr<DeviceCopied> Copy(uint64_t copy, std::vector<DeviceMemoryPart> parts,
                                    std::vector<DeviceBlock> ipc = {}, absl::Duration timeout = absl::Seconds(60)) {
    Begin(copy, std::move(parts), std::move(ipc), timeout);
    return copied_.Await(copy);
  }
  std::string Slab(uint64_t offset, uint64_t bytes) const { return {slab_->data() + offset, bytes}; }
  // Returns the worker's process, which is this test's only child; 0 if there is none.
  static pid_t Child() {
    pid_t found = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream children(task.path() / "children");
      if (pid_t child = 0; children >> child) found = child;
    }
    return found;
  }
  static DeviceMemoryPart PartOf(uint64_t block, uint64_t offset, uint64_t slab_offset, uint64_t bytes) {
    return {.block = block, .offset = offset, .slab_offset = slab_offset, .bytes = bytes};
  }
  DeviceBlock IpcOf(const DeviceMemory& memory, uint64_t id, int device = 0) {
    const cuda::Functions& call = gpu_.driver->call();
    cuda::IpcMemoryHandle handle;
    cuda::Uuid uuid;
    const DeviceContext context(*gpu_.driver, device);
    const CurrentContext current(*gpu_.driver, context);
    EXPECT_EQ(call.ipc_get_memory(&handle, memory.address), cuda::kSuccess);
    EXPECT_EQ(call.device_get_uuid(&uuid, device), cuda::kSuccess);
    return {.id = id,
            .bytes = memory.bytes.size(),
            .ipc_handle = std::string(handle.bytes, sizeof(handle.bytes)),
            .device_uuid = std::string(uuid.bytes, sizeof(uuid.bytes))};
  }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  std::string settings_;
  std::shared_ptr<SharedMemory> slab_;
  uint64_t slab_id_ = 1;
  Told<absl::Status> taken_;
  Told<absl::StatusOr<DeviceCopied>> copied_;
  std::unique_ptr<DeviceKeeper> keeper_;
};

TEST_F(DeviceKeeperTest, Copy_FromBlocksOfTwoDevices_FillsTheSlab) {
  const ExportedMemory first(gpu_, 0, 1), second(gpu_, 1, 2);
  ASSERT_TRUE(Take(1, {&first, &second}).ok());
  const auto copied = Copy(1, {PartOf(100, 5, 0, 1000), PartOf(101, 0, 4096, kBlock)});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->kind, DeviceCopied::Kind::kDone) << copied->why;
  EXPECT_EQ(copied->unpinned, "");
  EXPECT_EQ(copied->checksums, (std::vector<uint32_t>{Crc32c(first.bytes + 5, 1000), Crc32c(second.bytes, kBlock)}));
  EXPECT_TRUE(Slab(0, 1000) == first.Part(5, 1000));
  EXPECT_TRUE(Slab(4096, kBlock) == second.Part(0, kBlock));
}

TEST_F(DeviceKeeperTest, Copy_OfMorePartsThanOnePacketHolds_CopiesAll) {
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  std::vector<DeviceMemoryPart> parts;
  for (uint64_t i = 0; i < 2500; ++i) parts.push_back(PartOf(100, 7 * i, 16 * i, 7));
  const auto copied = Copy(1, parts);
  ASSERT_TRUE(copied.ok()) << copied.status();
  ASSERT_EQ(copied->checksums.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSERT_EQ(copied->checksums[i], Crc32c(memory.bytes + 7 * i, 7)) << i;
    ASSERT_EQ(Slab(16 * i, 7), memory.Part(7 * i, 7)) << i;
  }
}

TEST_F(DeviceKeeperTest, Copy_FromIpcMemory_OpensItForThatCopyAlone) {
  DeviceMemory memory(gpu_, 1, 100'000);
  memory.Fill(3);
  const auto copied = Copy(1, {PartOf(7, 10, 64, 99'000)}, {IpcOf(memory, 7, 1)});
  ASSERT_TRUE(copied.ok()) << copied.status();
  ASSERT_EQ(copied->kind, DeviceCopied::Kind::kDone) << copied->why;
  EXPECT_EQ(std::memcmp(slab_->data() + 64, memory.bytes.data() + 10, 99'000), 0);
  const pid_t worker = Child();
  EXPECT_NE(worker, 0);
  memory.Free();
  EXPECT_EQ(gpu_.count("lent_bytes"), 0) << "the worker that goes on has none of it";
}

TEST_F(DeviceKeeperTest, Copy_FromIpcMemoryOfADeviceThatIsNotSeen_IsRefusedAndTheWorkerGoesOn) {
  const ExportedMemory block(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&block}).ok());
  DeviceMemory memory(gpu_, 0, 4096);
  DeviceBlock ipc = IpcOf(memory, 7);
  ipc.device_uuid[0] ^= 1;
  const auto copied = Copy(1, {PartOf(7, 0, 0, 8)}, {ipc});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->kind, DeviceCopied::Kind::kRefused);
  EXPECT_NE(copied->why.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << copied->why;
  EXPECT_EQ(Copy(2, {PartOf(100, 0, 0, 8)})->kind, DeviceCopied::Kind::kDone);
}

TEST_F(DeviceKeeperTest, Copy_FromIpcMemoryThatIsSmallerThanTheTrainerSays_IsRefused) {
  DeviceMemory memory(gpu_, 0, 4096);
  DeviceBlock ipc = IpcOf(memory, 7);
  ipc.bytes = uint64_t{1} << 30;
  const auto copied = Copy(1, {PartOf(7, 0, 0, 8)}, {ipc});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->kind, DeviceCopied::Kind::kRefused);
}

TEST_F(DeviceKeeperTest, Take_WhatTheDriverRefuses_EndsTheWorkerAndTheNextIsTaken) {
  const ExportedMemory memory(gpu_, 0, 1);
  const absl::Status refused = Take(1, {&memory}, 2 * kBlock);
  EXPECT_TRUE(HasReason(refused, Reason::kDeviceError)) << refused;
  EXPECT_EQ(Child(), 0);
  ASSERT_TRUE(Take(2, {&memory}).ok());
  EXPECT_EQ(Copy(1, {PartOf(200, 0, 0, 8)})->kind, DeviceCopied::Kind::kDone);
}

TEST_F(DeviceKeeperTest, Drop_OfABlock_GivesItBack) {
  auto memory = std::make_unique<ExportedMemory>(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {memory.get()}).ok());
  memory.reset();
  EXPECT_EQ(gpu_.count("used_device_bytes"), kBlock) << "the worker still has it";
  keeper_->Drop({100});
  const ExportedMemory another(gpu_, 0, 2);
  ASSERT_TRUE(Take(2, {&another}).ok());  // calls are followed in their order
  EXPECT_EQ(gpu_.count("used_device_bytes"), kBlock) << "the other one alone";
}

TEST_F(DeviceKeeperTest, End_GivesEverythingBackAndTheNextOneIsServed) {
  auto memory = std::make_unique<ExportedMemory>(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {memory.get()}).ok());
  keeper_->End();
  ASSERT_TRUE(Take(2, {memory.get()}).ok());
  EXPECT_EQ(Copy(1, {PartOf(200, 0, 0, 8)})->kind, DeviceCopied::Kind::kDone);
  keeper_->Stop();
  EXPECT_EQ(Child(), 0);
  memory.reset();
  EXPECT_EQ(gpu_.count("lent_bytes"), 0);
}

TEST_F(DeviceKeeperTest, Copy_AfterTheWorkerWasKilled_SaysThatTheBlocksAreLost) {
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  ASSERT_EQ(kill(Child(), SIGKILL), 0);
  EXPECT_EQ(Copy(1, {PartOf(100, 0, 0, 8)})->kind, DeviceCopied::Kind::kLost);
  ASSERT_TRUE(Take(2, {&memory}).ok());
  EXPECT_EQ(Copy(2, {PartOf(200, 0, 0, 8)})->kind, DeviceCopied::Kind::kDone);
}

TEST_F(DeviceKeeperTest, Copy_AfterTheWorkerWasKilledAndTookAnotherBlock_SaysThatTheBlocksAreLost) {
  const ExportedMemory first(gpu_, 0, 1), second(gpu_, 0, 2);
  ASSERT_TRUE(Take(1, {&first}).ok());
  kill(Child(), SIGKILL);
  ASSERT_TRUE(Take(2, {&second}).ok()) << "by a new worker";
  EXPECT_EQ(Copy(1, {PartOf(100, 0, 0, kBlock), PartOf(200, 0, kBlock, kBlock)})->kind, DeviceCopied::Kind::kLost);
  ASSERT_TRUE(Take(3, {&first, &second}).ok());
  EXPECT_EQ(Copy(2, {PartOf(300, 0, 0, kBlock), PartOf(301, 0, kBlock, kBlock)})->kind, DeviceCopied::Kind::kDone);
  EXPECT_TRUE(Slab(0, kBlock) == first.Part(0, kBlock));
  EXPECT_TRUE(Slab(kBlock, kBlock) == second.Part(0, kBlock));
}

TEST_F(DeviceKeeperTest, Copy_WhoseWorkerHangs_EndsByItsDeadlineAndNothingWritesAnyMore) {
  keeper_.reset();
  Begin(absl::Milliseconds(10));
  SetWorkers("hang cuEventSynchronize");
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  const absl::Status stalled = Copy(1, {PartOf(100, 0, 0, 8)}, {}, absl::Milliseconds(500)).status();
  EXPECT_TRUE(HasReason(stalled, Reason::kDeviceStalled)) << stalled;
  EXPECT_EQ(Child(), 0) << "it is told only when the worker has ended";
  SetWorkers("");
  ASSERT_TRUE(Take(2, {&memory}).ok());
  EXPECT_EQ(Copy(2, {PartOf(200, 0, 0, 8)})->kind, DeviceCopied::Kind::kDone);
}

TEST_F(DeviceKeeperTest, StopCopy_OfOneThatRuns_EndsIt) {
  keeper_.reset();
  Begin(absl::Milliseconds(10));
  SetWorkers("set engine_stopped 2");
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  Begin(1, {PartOf(100, 0, 0, 8)});
  keeper_->StopCopy(1);
  EXPECT_TRUE(HasReason(copied_.Await(1).status(), Reason::kDeviceError));
  EXPECT_EQ(Child(), 0);
}

TEST_F(DeviceKeeperTest, End_WhileACopyRuns_EndsIt) {
  keeper_.reset();
  Begin(absl::Milliseconds(10));
  SetWorkers("set engine_stopped 2");
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  Begin(1, {PartOf(100, 0, 0, 8)});
  keeper_->End();
  EXPECT_FALSE(copied_.Await(1).ok());
  EXPECT_EQ(Child(), 0);
}

TEST_F(DeviceKeeperTest, Copy_ThatTheDriverFails_SaysWhichCall) {
  SetWorkers("fail cuMemcpyDtoHAsync_v2 2 700");
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  const absl::Status failed = Copy(1, {PartOf(100, 0, 0, 8)}).status();
  EXPECT_TRUE(HasReason(failed, Reason::kDeviceError)) << failed;
  EXPECT_NE(failed.message().find("cuMemcpyDtoHAsync: CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << failed;
}

TEST_F(DeviceKeeperTest, Copy_ToASlabThatIsSealed_IsRefused) {
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  ASSERT_TRUE(slab_->OpenReadOnly().ok());
  const auto copied = Copy(1, {PartOf(100, 0, 0, 8)});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->kind, DeviceCopied::Kind::kRefused);
  EXPECT_NE(copied->why.find("mapping the staging buffer"), std::string::npos) << copied->why;
}

TEST_F(DeviceKeeperTest, Copy_ToAnotherSlab_MapsIt) {
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  ASSERT_TRUE(Copy(1, {PartOf(100, 0, 0, 8)}).ok());
  const auto first = slab_;
  slab_ = *SharedMemory::Create("slab", kSlab);
  slab_id_ = 2;
  ASSERT_TRUE(Copy(2, {PartOf(100, 8, 0, 8)}).ok());
  EXPECT_EQ(Slab(0, 8), memory.Part(8, 8));
  EXPECT_EQ(std::string(first->data(), 8), memory.Part(0, 8));
}

TEST_F(DeviceKeeperTest, LetGoOfSlab_LeavesItMappedNowhereElse) {
  const auto maps = [] {
    std::ifstream file("/proc/" + std::to_string(Child()) + "/maps");
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  };
  const ExportedMemory memory(gpu_, 0, 1);
  ASSERT_TRUE(Take(1, {&memory}).ok());
  ASSERT_TRUE(Copy(1, {PartOf(100, 0, 0, 8)}).ok());
  EXPECT_NE(maps().find("memfd:slab"), std::string::npos);
  keeper_->LetGoOfSlab();
  ASSERT_TRUE(Take(2, {&memory}).ok());  // calls are followed in their order
  EXPECT_EQ(maps().find("memfd:slab"), std::string::npos);
  EXPECT_EQ(Copy(2, {PartOf(100, 0, 0, 8)})->kind, DeviceCopied::Kind::kDone);
}

TEST_F(DeviceKeeperTest, Take_WithoutAWorker_SaysWhy) {
  keeper_.reset();
  DeviceKeeperOptions options;
  options.worker.program = "/nowhere/cairn-gpu-worker";
  options.on_taken = [this](uint64_t offer, const absl::Status& status) { taken_.Set(offer, status); };
  keeper_ = std::make_unique<DeviceKeeper>(std::move(options));
  const ExportedMemory memory(gpu_, 0, 1);
  const absl::Status refused = Take(1, {&memory});
  EXPECT_NE(refused.message().find("/nowhere/cairn-gpu-worker"), std::string::npos) << refused;
}

}  // namespace
}  // namespace cairn
