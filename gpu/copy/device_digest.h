// Makes a device compute CRC32Cs of arrays. The work is enqueued in the trainer's own streams, so it covers the arrays'
// contents at that point of each stream.
#ifndef CAIRN_GPU_COPY_DEVICE_DIGEST_H_
#define CAIRN_GPU_COPY_DEVICE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/copy/device_context.h"
#include "gpu/driver/driver.h"

namespace cairn {

// Computes the sums of one device's arrays. The device's context must be current in all calls. Calls throw
// DriverFailure. It takes 32 bytes of device memory for each array and 4 bytes for each 64 KiB, and as much pinned host
// memory. It keeps both for the next time.
class DeviceDigest {
 public:
  explicit DeviceDigest(const GpuDriver& driver) : driver_(driver) {}

  struct Array {
    uint64_t address = 0;
    int64_t bytes = 0;  // not zero
  };

  // Begins with a new list of arrays. Earlier work must have ended.
  void Begin(const std::vector<Array>& arrays);
  // Enqueues the computation for the arrays [from, to) in `stream`.
  void Sum(size_t from, size_t to, cuda::Stream stream);
  // Enqueues the copy of all sums to the host. `stream` must be ordered after the streams of Sum().
  void Fetch(cuda::Stream stream);
  // Returns the CRC32C of an array. All enqueued work must have ended.
  uint32_t CrcOf(size_t array) const;

  void Free();
  int64_t pinned_bytes() const { return static_cast<int64_t>(size_); }

 private:
  void Load();

  const GpuDriver& driver_;
  cuda::Module module_ = nullptr;
  cuda::Function kernel_ = nullptr;
  // Both memories hold a table of the arrays, and from offset sums_at_ on one sum for each block.
  cuda::DevicePointer device_ = 0;
  std::byte* host_ = nullptr;
  size_t size_ = 0;
  size_t sums_at_ = 0;
  std::vector<Array> arrays_;
  std::vector<uint64_t> first_block_;  // of each array, and one behind the last
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_DIGEST_H_
