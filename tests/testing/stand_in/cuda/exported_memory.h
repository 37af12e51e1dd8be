// Makes memory of the stand-in's devices that a test gives to other processes.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_EXPORTED_MEMORY_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_EXPORTED_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "common/file/unique_fd.h"
#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {

// Is one allocation that was made and mapped by a handle, with random bytes.
class ExportedMemory {
 public:
  static constexpr uint64_t kBytes = uint64_t{2} << 20;

  ExportedMemory(const LoadedStandIn& gpu, int device, unsigned seed, unsigned long long types = cuda::kHandlePosix)
      : call_(gpu.driver->call()) {
    const cuda::AllocationProperties properties = {.handle_types = static_cast<int>(types),
                                                   .location = {.device = device}};
    const cuda::MemoryAccess access = {.location = {.device = device}, .flags = cuda::kAccessReadWrite};
    if (call_.memory_create(&handle_, kBytes, &properties, 0) != cuda::kSuccess ||
        call_.address_reserve(&address, kBytes, 0, 0, 0) != cuda::kSuccess ||
        call_.memory_map(address, kBytes, 0, handle_, 0) != cuda::kSuccess ||
        call_.memory_set_access(address, kBytes, &access, 1) != cuda::kSuccess) {
      std::abort();
    }
    bytes = static_cast<char*>(gpu.alias(address));
    std::mt19937 random(seed);
    for (uint64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(random());
  }
  ~ExportedMemory() {
    call_.memory_unmap(address, kBytes);
    call_.address_free(address, kBytes);
    call_.memory_release(handle_);
  }
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  UniqueFd Export() const {
    int file = -1;
    if (call_.memory_export(&file, handle_, static_cast<int>(cuda::kHandlePosix), 0) != cuda::kSuccess) std::abort();
    return UniqueFd(file);
  }
  cuda::FabricHandle ExportToFabric() const {
    cuda::FabricHandle shared;
    if (call_.memory_export(&shared, handle_, static_cast<int>(cuda::kHandleFabric), 0) != cuda::kSuccess) std::abort();
    return shared;
  }
  std::string Part(uint64_t offset, uint64_t size) const { return {bytes + offset, size}; }

  cuda::DevicePointer address = 0;
  char* bytes = nullptr;  // where the test may look into it

 private:
  const cuda::Functions& call_;
  cuda::AllocationHandle handle_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_EXPORTED_MEMORY_H_
