#include "gpu/copy/shared_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gpu/copy/fabric_file.h"

namespace cairn {

std::vector<SharedBlock> SharedBlocks::Find(std::vector<Array> arrays) {
  if (!driver_.shares_memory()) throw DriverFailure{"the driver is older than 11.4, and cannot share memory"};
  std::sort(arrays.begin(), arrays.end(), [](const Array& a, const Array& b) { return a.address < b.address; });
  std::vector<SharedBlock> blocks;
  found_.clear();
  try {
    uint64_t at = 0;  // all addresses below this are done
    for (const Array& array : arrays) {
      const uint64_t room = std::numeric_limits<uint64_t>::max() - array.address;
      const uint64_t end = array.address + std::min(array.bytes, room);
      at = std::max(at, array.address);
      while (at < end) {
        SharedBlock block;
        if (!FindAt(at, block)) break;
        at = block.begin + block.bytes;
        blocks.push_back(std::move(block));
      }
    }
  } catch (const DriverFailure&) {
    for (const auto& [handle, kind] : found_) driver_.call().memory_release(handle);
    throw;
  }
  kept_.swap(found_);
  for (const auto& [handle, kind] : found_) driver_.call().memory_release(handle);
  found_.clear();
  return blocks;
}

bool SharedBlocks::FindAt(uint64_t address, SharedBlock& block) {
  const cuda::Functions& call = driver_.call();
  int type = 0, legacy = 0;
  int names[] = {cuda::kPointerMemoryType, cuda::kPointerDeviceOrdinal, cuda::kPointerLegacyIpcCapable};
  void* values[] = {&type, &block.ordinal, &legacy};
  Require(driver_, call.pointer_get_attributes(3, names, values, address), "cuPointerGetAttributes");
  if (type != cuda::kMemoryTypeDevice) return false;
  const CurrentContext current(driver_, context_of_(block.ordinal));
  cuda::DevicePointer begin = 0;
  size_t bytes = 0;
  Require(driver_, call.memory_get_range(&begin, &bytes, address), "cuMemGetAddressRange");
  block.begin = begin;
  block.bytes = bytes;
  if (legacy != 0) {
    cuda::Device device = 0;
    Require(driver_, call.device_get(&device, block.ordinal), "cuDeviceGet");
    Require(driver_, call.device_get_uuid(&block.uuid, device), "cuDeviceGetUuid");
    Require(driver_, call.ipc_get_memory(&block.ipc, begin), "cuIpcGetMemHandle");
    block.kind = SharedBlock::kIpc;
    return true;
  }
  unsigned long long types = 0;
  Require(driver_, call.pointer_get_attribute(&types, cuda::kPointerAllowedHandleTypes, address),
          "cuPointerGetAttribute");
  if ((types & cuda::kHandlePosix) != 0) {
    Retain(block, SharedBlock::kFile);
  } else if ((types & cuda::kHandleFabric) != 0) {
    // Fabric handles are the last choice, because a machine has a limited number of them.
    Retain(block, SharedBlock::kFabric);
  } else {
    block.why = "its allocator asked for memory that cannot be exported";
  }
  return true;
}

void SharedBlocks::Retain(SharedBlock& block, SharedBlock::Kind kind) {
  const cuda::Functions& call = driver_.call();
  Require(driver_, call.memory_retain(&block.handle, reinterpret_cast<void*>(block.begin)),
          "cuMemRetainAllocationHandle");
  // One reference per allocation is enough. The reference of the last Find is released at the end of this one.
  if (!found_.try_emplace(block.handle, kind).second) call.memory_release(block.handle);
  block.kind = kind;
}

UniqueFd SharedBlocks::Export(cuda::AllocationHandle handle) const {
  const auto kept = kept_.find(handle);
  const bool fabric = kept != kept_.end() && kept->second == SharedBlock::kFabric;
  int descriptor = -1;
  cuda::FabricHandle shared;
  const cuda::Result exported =
      driver_.call().memory_export(fabric ? static_cast<void*>(&shared) : &descriptor, handle,
                                   static_cast<int>(fabric ? cuda::kHandleFabric : cuda::kHandlePosix), 0);
  Require(driver_, exported, "cuMemExportToShareableHandle");
  UniqueFd file = fabric ? MakeFabricFile(shared) : UniqueFd(descriptor);
  if (!file.valid()) throw DriverFailure{"the system gives no file for a fabric handle"};
  return file;
}

void SharedBlocks::Forget() {
  for (const auto& [handle, kind] : kept_) driver_.call().memory_release(handle);
  kept_.clear();
}

}  // namespace cairn
