// Makes a device compute the parts of fingerprints that arrays in its memory make, so that their bytes need not be
// copied to the host. Blocks whose bytes lie together in the tensor are summed by the device; the host puts the sums
// where they belong.
#ifndef CAIRN_GPU_COPY_DEVICE_FINGERPRINT_H_
#define CAIRN_GPU_COPY_DEVICE_FINGERPRINT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/fingerprint.h"
#include "gpu/copy/crc_lanes.h"
#include "gpu/copy/device_context.h"
#include "gpu/driver/driver.h"

namespace cairn {

// The device's context must be current in all calls. All of them throw DriverFailure; the caller must then wait for the
// device's stream. It has 3 MiB of device memory and as much pinned host memory while it lives.
class DeviceFingerprint {
 public:
  DeviceFingerprint(const GpuDriver& driver, const DeviceContext& device);
  ~DeviceFingerprint();
  DeviceFingerprint(const DeviceFingerprint&) = delete;
  DeviceFingerprint& operator=(const DeviceFingerprint&) = delete;

  // Sums the bytes from `address` on, of which `part` has taken none yet. `part` has its value after Finish(), and must
  // stay until then.
  void Add(uint64_t address, FingerprintPart& part);
  // Waits until all that was added is summed.
  void Finish();

  // So many sums, and ranges, are in flight at one time.
  static constexpr uint64_t kMostBlocks = 1 << 18;
  static constexpr size_t kMostRanges = 1 << 15;

 private:
  void Free();
  // Adds bytes of one run, in blocks of `block_bytes`.
  void AddRange(uint64_t address, uint64_t bytes, uint64_t block_bytes, FingerprintPart& part);
  void Run();

  const GpuDriver& driver_;
  const DeviceContext& device_;
  cuda::Module module_ = nullptr;
  cuda::Function kernel_ = nullptr;
  // Both memories hold kMostRanges ranges, and behind them kMostBlocks sums.
  cuda::DevicePointer memory_ = 0;
  std::byte* host_ = nullptr;
  std::vector<crc_lanes::Range> ranges_;
  std::vector<FingerprintPart*> parts_;  // of each range
  uint64_t blocks_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_FINGERPRINT_H_
