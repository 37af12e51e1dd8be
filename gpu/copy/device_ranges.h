// Finds the device and the allocation of a device address.
#ifndef CAIRN_GPU_COPY_DEVICE_RANGES_H_
#define CAIRN_GPU_COPY_DEVICE_RANGES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "gpu/copy/device_context.h"
#include "gpu/copy/staged_copy.h"
#include "gpu/driver/driver.h"

namespace cairn {

// Caches the driver's answers, because thousands of arrays may be parts of one allocation. It may live for one run
// only: during a run the caller keeps the arrays, but between runs memory may be freed and allocated anew.
class DeviceRanges {
 public:
  // `context_of` returns the context of a device; it may throw DriverFailure.
  DeviceRanges(const GpuDriver& driver, std::function<const DeviceContext&(int)> context_of)
      : driver_(driver), context_of_(std::move(context_of)) {}

  // Checks the `bytes` (> 0) bytes from `address` on and finds their device. Returns kDone, kNotOnDevice, kTooLong or
  // kManyDevices. Throws DriverFailure.
  DeviceOutcome::Kind Find(uint64_t address, int64_t bytes, int* ordinal);

 private:
  struct Range {
    uint64_t end = 0;
    int ordinal = 0;
    // True if the memory was mapped by a handle. Only then may an array extend into the next range.
    bool mapped = false;
  };

  const Range* At(uint64_t address);

  const GpuDriver& driver_;
  const std::function<const DeviceContext&(int)> context_of_;
  std::map<uint64_t, Range> ranges_;  // by begin
  std::optional<int> current_ordinal_;
  std::unique_ptr<CurrentContext> current_;
};

// Returns the device of an address; nothing if it is no device memory. Throws DriverFailure. Needs no current context.
std::optional<int> OrdinalOf(const GpuDriver& driver, uint64_t address);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_RANGES_H_
