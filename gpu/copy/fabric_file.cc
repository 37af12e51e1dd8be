#include "gpu/copy/fabric_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace cairn {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

UniqueFd MakeFabricFile(const cuda::FabricHandle& handle) {
  UniqueFd file(memfd_create("cairn-fabric", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = file.valid() && pwrite(file.get(), handle.bytes, sizeof(handle.bytes), 0) == sizeof(handle.bytes) &&
                    fcntl(file.get(), F_ADD_SEALS, kSeals) == 0;
  return made ? std::move(file) : UniqueFd();
}

bool ReadFabricFile(int descriptor, cuda::FabricHandle& handle) {
  // Only memory files have seals, so reading a sealed file cannot block. The kernel may have added further seals.
  struct stat about = {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals && fstat(descriptor, &about) == 0 &&
         about.st_size == sizeof(handle.bytes) &&
         pread(descriptor, handle.bytes, sizeof(handle.bytes), 0) == sizeof(handle.bytes);
}

}  // namespace cairn
