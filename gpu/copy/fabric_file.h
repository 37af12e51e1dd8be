// Puts a fabric handle of GPU memory into a file, whose descriptor can be sent to another process.
#ifndef CAIRN_GPU_COPY_FABRIC_FILE_H_
#define CAIRN_GPU_COPY_FABRIC_FILE_H_

#include "common/file/unique_fd.h"
#include "gpu/driver/driver_api.h"

namespace cairn {

// Whoever knows the bytes of a fabric handle can map the memory. So the bytes are not put into a message, which might
// be logged, but into a memory file. Its descriptor is sent in the same way as the descriptors that the driver exports.

// Returns a sealed memory file with the handle; an invalid descriptor if the system refuses one.
UniqueFd MakeFabricFile(const cuda::FabricHandle& handle);
// Reads a handle from a file, which is untrusted. Returns false if it is not such a file.
bool ReadFabricFile(int descriptor, cuda::FabricHandle& handle);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_FABRIC_FILE_H_
