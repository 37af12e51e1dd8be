// Finds the allocations behind arrays on devices, and gives other processes part in them.
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
    kNone = 0,    // it can be given to nobody; `why` says so
    kFile = 1,    // it was made by a handle, which can be exported as a descriptor
    kIpc = 2,     // it was made by cuMemAlloc: there is a handle of CUDA IPC
    kFabric = 3,  // it was made by a handle, which can be exported as a fabric handle alone
  };
  Kind kind = kNone;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  int ordinal = 0;
  // It is set for kFile and kFabric. Two allocations have the same one only if they are one.
  cuda::AllocationHandle handle = 0;
  // These two are set for kIpc.
  cuda::IpcMemoryHandle ipc;
  cuda::Uuid uuid;
  std::string why;
};

// The handles that were found are kept until they are not found any more, so that no later allocation gets the handle
// of one that another process still has: a handle tells whether memory is the same as before, and an address does not.
// So memory that the process has freed is used up until then. Calls throw DriverFailure. Not thread-safe.
class SharedBlocks {
 public:
  // `context_of` returns the context of a device; it may throw DriverFailure.
  SharedBlocks(const GpuDriver& driver, std::function<const DeviceContext&(int)> context_of)
      : driver_(driver), context_of_(std::move(context_of)) {}

  struct Array {
    uint64_t address = 0;
    uint64_t bytes = 0;  // not zero
  };

  // Returns the allocations that the arrays are in, ascending. Where no memory of a device is, a gap is left.
  std::vector<SharedBlock> Find(std::vector<Array> arrays);
  // Returns a descriptor of an allocation that was found last: of kFabric, that of a file with its handle
  // (fabric_file.h).
  UniqueFd Export(cuda::AllocationHandle handle) const;
  // Lets go of everything.
  void Forget();

 private:
  // Returns false if no memory of a device is there.
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
