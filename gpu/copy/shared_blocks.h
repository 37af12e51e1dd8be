// Finds the allocations that contain arrays on devices, and exports them to other processes.
#ifndef CAIRN_GPU_COPY_SHARED_BLOCKS_H_
#define CAIRN_GPU_COPY_SHARED_BLOCKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/file/unique_fd.h"
#include "gpu/copy/device_context.h"
#include "gpu/driver/driver.h"

namespace cairn {

// Describes one allocation of this process.
struct SharedBlock {
  enum Kind : int64_t {
    kNone = 0,    // it cannot be exported; `why` says why
    kFile = 1,    // it has a handle that can be exported as a descriptor
    kIpc = 2,     // it was made by cuMemAlloc, and has a handle of CUDA IPC
    kFabric = 3,  // it has a handle that can only be exported as a fabric handle
  };
  Kind kind = kNone;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  int ordinal = 0;
  // Set for kFile and kFabric. Different allocations have different handles.
  cuda::AllocationHandle handle = 0;
  // Set for kIpc.
  cuda::IpcMemoryHandle ipc;
  cuda::Uuid uuid;
  std::string why;
};

// Keeps a reference to each allocation that the last Find has found, so that no later allocation gets its handle while
// another process still uses it. So an equal handle means the same memory, which an equal address does not. The cost:
// memory that the process has freed stays allocated until the next Find or Forget. Calls throw DriverFailure. Not
// thread-safe.
class SharedBlocks {
 public:
  // `context_of` returns the context of a device; it may throw DriverFailure.
  SharedBlocks(const GpuDriver& driver, std::function<const DeviceContext&(int)> context_of)
      : driver_(driver), context_of_(std::move(context_of)) {}

  struct Array {
    uint64_t address = 0;
    uint64_t bytes = 0;  // not zero
  };

  // Returns the allocations that contain the arrays, by ascending address. Parts of an array that are no device memory
  // have no allocation in the result.
  std::vector<SharedBlock> Find(std::vector<Array> arrays);
  // Returns a descriptor for an allocation that the last Find has found. For kFabric it is a file with the handle
  // (fabric_file.h).
  UniqueFd Export(cuda::AllocationHandle handle) const;
  // Releases all kept allocations.
  void Forget();

 private:
  // Returns false if `address` is no device memory.
  bool FindAt(uint64_t address, SharedBlock& block);
  void Retain(SharedBlock& block, SharedBlock::Kind kind);

  const GpuDriver& driver_;
  const std::function<const DeviceContext&(int)> context_of_;
  using Handles = std::map<cuda::AllocationHandle, SharedBlock::Kind>;
  Handles kept_;
  Handles found_;  // by the Find that runs
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_SHARED_BLOCKS_H_
