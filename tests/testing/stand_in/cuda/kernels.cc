// Has the calls for modules and kernels. A kernel is known by its name, and its reference on the host runs.
#include <cstring>

#include "gpu/copy/crc_lanes.h"
#include "gpu/driver/driver_api.h"
#include "gpu/testing/crc_block_on_host.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

constexpr uintptr_t kCrc32cFunction = 0xC32;
constexpr uintptr_t kCrc64Function = 0xC64;

// Returns where the host finds a device's memory; null if the device would fault there. Wants the mutex held.
char* Alias(const State& state, cuda::DevicePointer address, size_t bytes, int access = cuda::kAccessRead) {
  size_t offset = 0;
  const Allocation* found = state.FindEnqueued(address, bytes, &offset, access);
  return found == nullptr ? nullptr : found->alias + offset;
}

// Returns false if the kernel reaches memory that is none.
template <typename Code>
bool SumBlocks(cuda::DevicePointer ranges, uint32_t count, unsigned long long blocks, cuda::DevicePointer sums) {
  using Sum = typename Code::Sum;
  State& state = TheState();
  for (unsigned long long block = 0; block < blocks; ++block) {
    const std::lock_guard lock(state.mutex);
    const auto* table =
        reinterpret_cast<const crc_lanes::Range*>(Alias(state, ranges, count * sizeof(crc_lanes::Range)));
    char* sum = Alias(state, sums + block * sizeof(Sum), sizeof(Sum), cuda::kAccessReadWrite);
    if (table == nullptr || sum == nullptr) return false;
    const crc_lanes::Range range = table[crc_lanes::RangeOfBlock(table, count, block)];
    if (range.block_bytes == 0 || range.block_bytes > crc_lanes::kBlockBytes) return false;
    const unsigned long long offset = (block - range.first_block) * range.block_bytes;
    if (offset >= range.bytes) return false;
    const auto bytes = static_cast<uint32_t>(std::min(range.block_bytes, range.bytes - offset));
    const char* data = Alias(state, range.address + offset, bytes);
    if (data == nullptr) return false;
    const Sum value = CrcBlockOnHost<Code>(data, bytes);
    std::memcpy(sum, &value, sizeof value);
  }
  return true;
}

}  // namespace
}  // namespace cairn::stand_in

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
using namespace cairn::stand_in;
using namespace cairn::cuda;

extern "C" {

Result cuModuleLoadData(Module* module, const void* image) {
  CAIRN_ENTER_UNSAFE();
  if (std::strstr(static_cast<const char*>(image), ".version") == nullptr) return kInvalidImage;
  const std::lock_guard lock(TheState().mutex);
  const uintptr_t handle = TheState().next_handle += 16;
  TheState().modules[handle] = static_cast<const char*>(image);
  *module = reinterpret_cast<Module>(handle);
  return kSuccess;
}

Result cuModuleUnload(Module module) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  return TheState().modules.erase(reinterpret_cast<uintptr_t>(module)) == 1 ? kSuccess : kInvalidHandle;
}

Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().modules.find(reinterpret_cast<uintptr_t>(module));
  if (found == TheState().modules.end()) return kInvalidHandle;
  const std::string entry = std::string(".entry ") + name + "(";
  if (found->second.find(entry) == std::string::npos) return kNotFound;
  const bool crc64 = std::strcmp(name, cairn::crc_lanes::Crc64::kKernelName) == 0;
  if (!crc64 && std::strcmp(name, cairn::crc_lanes::Crc32c::kKernelName) != 0) return kNotFound;
  *function = reinterpret_cast<Function>(crc64 ? kCrc64Function : kCrc32cFunction);
  return kSuccess;
}

Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned, Stream stream, void** parameters, void**) {
  CAIRN_ENTER(true);
  const bool crc64 = reinterpret_cast<uintptr_t>(function) == kCrc64Function;
  if (!crc64 && reinterpret_cast<uintptr_t>(function) != kCrc32cFunction) return kInvalidHandle;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != cairn::crc_lanes::kThreads || block_y != 1 ||
      block_z != 1) {
    return kInvalidValue;
  }
  const auto ranges = *static_cast<DevicePointer*>(parameters[0]);
  const auto count = *static_cast<uint32_t*>(parameters[1]);
  const auto blocks = *static_cast<unsigned long long*>(parameters[2]);
  const auto sums = *static_cast<DevicePointer*>(parameters[3]);
  const unsigned long long warps = static_cast<unsigned long long>(grid_x) * cairn::crc_lanes::kWarps;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  if (queue == nullptr) return kInvalidHandle;
  if (const auto recorded = Recorded(state, stream)) return *recorded;
  AddWork(state, queue, [=, blocks = std::min(blocks, warps)] {
    const bool done = crc64 ? SumBlocks<cairn::crc_lanes::Crc64>(ranges, count, blocks, sums)
                            : SumBlocks<cairn::crc_lanes::Crc32c>(ranges, count, blocks, sums);
    if (done) return;
    const std::lock_guard breaking(TheState().mutex);
    TheState().settings.broken = kIllegalAddress;
  });
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
