#include "gpu/copy/device_digest.h"

#include "gpu/copy/crc_kernels.h"

namespace cairn {

void DeviceDigest::Load() {
  if (kernel_ != nullptr) return;
  Require(driver_, driver_.call().module_load(&module_, kCrc32cKernelPtx), "cuModuleLoadData");
  const cuda::Result result = driver_.call().module_get_function(&kernel_, module_, crc_lanes::Crc32c::kKernelName);
  if (result == cuda::kSuccess) return;
  driver_.call().module_unload(module_);
  module_ = nullptr;
  kernel_ = nullptr;
  Require(driver_, result, "cuModuleGetFunction");
}

void DeviceDigest::Begin(const std::vector<Array>& arrays) {
  Load();
  arrays_ = arrays;
  first_block_.assign(1, 0);
  for (const Array& array : arrays) {
    first_block_.push_back(first_block_.back() + static_cast<uint64_t>(CrcBlocksOf(array.bytes)));
  }
  sums_at_ = arrays.size() * sizeof(crc_lanes::Range);
  const size_t size = sums_at_ + static_cast<size_t>(first_block_.back()) * sizeof(uint32_t);
  if (size > size_) {
    const auto& call = driver_.call();
    if (device_ != 0) call.memory_free(device_);
    if (host_ != nullptr) call.host_free(host_);
    device_ = 0;
    host_ = nullptr;
    size_ = 0;
    void* host = nullptr;
    Require(driver_, call.memory_allocate(&device_, size), "cuMemAlloc");
    const cuda::Result result = call.host_allocate(&host, size, cuda::kMemHostAllocPortable);
    if (result != cuda::kSuccess) {
      call.memory_free(device_);
      device_ = 0;
      Require(driver_, result, "cuMemHostAlloc");
    }
    host_ = static_cast<std::byte*>(host);
    size_ = size;
  }
  auto* table = reinterpret_cast<crc_lanes::Range*>(host_);
  for (size_t i = 0; i < arrays.size(); ++i) {
    table[i] = {.address = arrays[i].address,
                .bytes = static_cast<crc_lanes::Long>(arrays[i].bytes),
                .first_block = first_block_[i],
                .block_bytes = crc_lanes::kBlockBytes};
  }
}

void DeviceDigest::Sum(size_t from, size_t to, cuda::Stream stream) {
  if (from == to) return;
  // Within one launch, blocks are numbered from its first array on.
  auto* table = reinterpret_cast<crc_lanes::Range*>(host_);
  for (size_t i = from; i < to; ++i) table[i].first_block = first_block_[i] - first_block_[from];
  cuda::DevicePointer ranges = device_ + from * sizeof(crc_lanes::Range);
  Require(driver_, driver_.call().copy_to_device(ranges, table + from, (to - from) * sizeof(crc_lanes::Range), stream),
          "cuMemcpyHtoDAsync");
  auto count = static_cast<uint32_t>(to - from);
  unsigned long long blocks = first_block_[to] - first_block_[from];
  cuda::DevicePointer sums = device_ + sums_at_ + first_block_[from] * sizeof(uint32_t);
  void* parameters[] = {&ranges, &count, &blocks, &sums};
  const auto grid = static_cast<unsigned>((blocks + crc_lanes::kWarps - 1) / crc_lanes::kWarps);
  Require(driver_,
          driver_.call().launch_kernel(kernel_, grid, 1, 1, crc_lanes::kThreads, 1, 1, 0, stream, parameters, nullptr),
          "cuLaunchKernel");
}

void DeviceDigest::Fetch(cuda::Stream stream) {
  const size_t bytes = static_cast<size_t>(first_block_.back()) * sizeof(uint32_t);
  if (bytes == 0) return;
  Require(driver_, driver_.call().copy_to_host(host_ + sums_at_, device_ + sums_at_, bytes, stream),
          "cuMemcpyDtoHAsync");
}

uint32_t DeviceDigest::CrcOf(size_t array) const {
  const auto* sums = reinterpret_cast<const uint32_t*>(host_ + sums_at_);
  return Crc32cOfBlocks(sums + first_block_[array], arrays_[array].bytes);
}

void DeviceDigest::Free() {
  if (device_ != 0) driver_.call().memory_free(device_);
  if (host_ != nullptr) driver_.call().host_free(host_);
  if (module_ != nullptr) driver_.call().module_unload(module_);
  device_ = 0;
  host_ = nullptr;
  size_ = 0;
  module_ = nullptr;
  kernel_ = nullptr;
}

}  // namespace cairn
