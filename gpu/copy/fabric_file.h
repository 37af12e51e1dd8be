// Hands a fabric handle of memory on a GPU to another process in a descriptor.
#ifndef CAIRN_GPU_COPY_FABRIC_FILE_H_
#define CAIRN_GPU_COPY_FABRIC_FILE_H_

#include "common/file/unique_fd.h"
#include "gpu/driver/driver_api.h"

namespace cairn {

// Who knows the bytes of a fabric handle can map the memory. So they stand in no message, which somebody might log, but
// in a file of memory, whose descriptor goes the way of those that a driver makes itself.

// Returns a sealed file with the handle; one that is not valid if the system gives none.
UniqueFd MakeFabricFile(const cuda::FabricHandle& handle);
// Reads such a file, which is untrusted. Returns whether it was one.
bool ReadFabricFile(int descriptor, cuda::FabricHandle& handle);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_FABRIC_FILE_H_
