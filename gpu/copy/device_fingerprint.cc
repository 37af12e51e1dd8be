#include "gpu/copy/device_fingerprint.h"

#include <algorithm>
#include <cstring>

#include "gpu/copy/crc_kernels.h"

namespace cairn {
namespace {

using crc_lanes::kBlockBytes;
using crc_lanes::Range;

constexpr size_t kSumsAt = DeviceFingerprint::kMostRanges * sizeof(Range);
constexpr size_t kBytes = kSumsAt + DeviceFingerprint::kMostBlocks * sizeof(uint64_t);

}  // namespace

DeviceFingerprint::DeviceFingerprint(const GpuDriver& driver, const DeviceContext& device)
    : driver_(driver), device_(device) {
  const auto& call = driver_.call();
  try {
    Require(driver_, call.module_load(&module_, kCrc64KernelPtx), "cuModuleLoadData");
    Require(driver_, call.module_get_function(&kernel_, module_, crc_lanes::Crc64::kKernelName), "cuModuleGetFunction");
    Require(driver_, call.memory_allocate(&memory_, kBytes), "cuMemAlloc");
    void* host = nullptr;
    Require(driver_, call.host_allocate(&host, kBytes, cuda::kMemHostAllocPortable), "cuMemHostAlloc");
    host_ = static_cast<std::byte*>(host);
  } catch (const DriverFailure&) {
    Free();
    throw;
  }
}

DeviceFingerprint::~DeviceFingerprint() {
  // After a failure the kernel may still write.
  driver_.call().stream_synchronize(device_.stream());
  Free();
}

void DeviceFingerprint::Free() {
  const auto& call = driver_.call();
  if (host_ != nullptr) call.host_free(host_);
  if (memory_ != 0) call.memory_free(memory_);
  if (module_ != nullptr) call.module_unload(module_);
}

void DeviceFingerprint::Add(uint64_t address, FingerprintPart& part) {
  FingerprintPart walk = part;
  while (const uint64_t run = walk.NextRunBytes()) {
    AddRange(address, run, std::min<uint64_t>(run, kBlockBytes), part);
    walk.AddRemainder(0, run);
    address += run;
  }
}

void DeviceFingerprint::AddRange(uint64_t address, uint64_t bytes, uint64_t block_bytes, FingerprintPart& part) {
  while (bytes > 0) {
    if (blocks_ == kMostBlocks || ranges_.size() == kMostRanges) Run();
    const uint64_t fit = std::min(bytes, (kMostBlocks - blocks_) * block_bytes);
    // Runs of one block each, which follow one another in memory, make one range.
    const bool joined = !ranges_.empty() && parts_.back() == &part && fit == block_bytes &&
                        ranges_.back().block_bytes == block_bytes && ranges_.back().bytes % block_bytes == 0 &&
                        ranges_.back().address + ranges_.back().bytes == address;
    if (joined) {
      ranges_.back().bytes += fit;
    } else {
      ranges_.push_back({.address = address, .bytes = fit, .first_block = blocks_, .block_bytes = block_bytes});
      parts_.push_back(&part);
    }
    blocks_ += (fit + block_bytes - 1) / block_bytes;
    address += fit;
    bytes -= fit;
  }
}

void DeviceFingerprint::Finish() {
  if (blocks_ > 0) Run();
}

void DeviceFingerprint::Run() {
  const auto& call = driver_.call();
  const cuda::Stream stream = device_.stream();
  const size_t table = ranges_.size() * sizeof(Range);
  std::memcpy(host_, ranges_.data(), table);
  Require(driver_, call.copy_to_device(memory_, host_, table, stream), "cuMemcpyHtoDAsync");
  cuda::DevicePointer ranges = memory_;
  auto count = static_cast<uint32_t>(ranges_.size());
  unsigned long long blocks = blocks_;
  cuda::DevicePointer sums = memory_ + kSumsAt;
  void* parameters[] = {&ranges, &count, &blocks, &sums};
  const auto grid = static_cast<unsigned>((blocks + crc_lanes::kWarps - 1) / crc_lanes::kWarps);
  Require(driver_, call.launch_kernel(kernel_, grid, 1, 1, crc_lanes::kThreads, 1, 1, 0, stream, parameters, nullptr),
          "cuLaunchKernel");
  Require(driver_, call.copy_to_host(host_ + kSumsAt, sums, blocks_ * sizeof(uint64_t), stream), "cuMemcpyDtoHAsync");
  DeviceEvent done(driver_);
  done.Record(stream);
  done.Await();
  const auto* sum = reinterpret_cast<const uint64_t*>(host_ + kSumsAt);
  for (size_t i = 0; i < ranges_.size(); ++i) {
    for (uint64_t left = ranges_[i].bytes; left > 0;) {
      const uint64_t size = std::min<uint64_t>(left, ranges_[i].block_bytes);
      parts_[i]->AddRemainder(*sum++, size);
      left -= size;
    }
  }
  ranges_.clear();
  parts_.clear();
  blocks_ = 0;
}

}  // namespace cairn
