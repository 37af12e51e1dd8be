// Lets a device compute CRC32Cs of arrays, in the trainer's own streams: of what is there when the streams get to it.
#ifndef CAIRN_GPU_COPY_DEVICE_DIGEST_H_
#define CAIRN_GPU_COPY_DEVICE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/copy/device_context.h"
#include "gpu/driver/driver.h"

namespace cairn {

// Computes the sums of one device's arrays. Its context must be current in all calls; those that call the driver throw
// DriverFailure. It takes 24 bytes of the device for each array and 4 for each 64 KiB, and as much pinned memory of the
// host, and keeps both for the next time.
class DeviceDigest {
 public:
  explicit DeviceDigest(const GpuDriver& driver) : driver_(driver) {}

  struct Array {
    uint64_t address = 0;
    int64_t bytes = 0;  // not zero
  };

  // Begins anew, with room for so many arrays. Nothing from before may be under way.
  void Begin(const std::vector<Array>& arrays);
  // Enqueues the sums of all arrays [from, to) of these in one stream.
  void Sum(size_t from, size_t to, cuda::Stream stream);
  // Enqueues that the host gets the sums. The stream must come after those of Sum().
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
  // Both hold a table of the arrays and, from sums_at_ on, one sum for each block.
  cuda::DevicePointer device_ = 0;
  std::byte* host_ = nullptr;
  size_t size_ = 0;
  size_t sums_at_ = 0;
  std::vector<Array> arrays_;
  std::vector<uint64_t> first_block_;  // of each array, and one behind the last
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_DIGEST_H_
