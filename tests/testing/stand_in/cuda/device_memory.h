// Memory of the stand-in's devices, for tests.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_DEVICE_MEMORY_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdlib>
#include <random>
#include <span>

#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {

// Memory of a device, which the test may look into.
class DeviceMemory {
 public:
  DeviceMemory(const LoadedStandIn& gpu, int device, size_t size) : gpu_(gpu), device_(device) {
    const auto& call = gpu.driver->call();
    call.primary_context_retain(&context_, device);
    call.context_push(context_);
    if (call.memory_allocate(&address, size) != cuda::kSuccess) std::abort();
    call.context_pop(&context_);
    bytes = {static_cast<std::byte*>(gpu.alias(address)), size};
  }
  ~DeviceMemory() { Free(); }
  void Free() {
    if (address == 0) return;
    const auto& call = gpu_.driver->call();
    call.context_push(context_);
    call.memory_free(address);
    call.context_pop(&context_);
    call.primary_context_release(device_);
    address = 0;
  }
  void Fill(unsigned seed) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }

  cuda::DevicePointer address = 0;
  std::span<std::byte> bytes;

 private:
  const LoadedStandIn& gpu_;
  const int device_;
  cuda::Context context_ = nullptr;
};

}  // namespace cairn

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_DEVICE_MEMORY_H_
