// Looks up what lies behind addresses of devices.
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

// Remembers the allocations that it has asked the driver about, of which thousands of arrays may be parts. It must live
// for one run only, in which the caller answers for the arrays: memory that is freed and made anew later is another
// one.
class DeviceRanges {
 public:
  // `context_of` returns the context of a device; it may throw DriverFailure.
  DeviceRanges(const GpuDriver& driver, std::function<const DeviceContext&(int)> context_of)
      : driver_(driver), context_of_(std::move(context_of)) {}

  // Looks at all of `bytes` bytes, of which there is at least one. Returns kDone, kNotOnDevice, kTooLong or
  // kManyDevices. Throws DriverFailure.
  DeviceOutcome::Kind Find(uint64_t address, int64_t bytes, int* ordinal);

 private:
  struct Range {
    uint64_t end = 0;
    int ordinal = 0;
    // True if it was mapped by a handle. Only then may an array go on in the next one.
    bool mapped = false;
  };

  const Range* At(uint64_t address);

  const GpuDriver& driver_;
  const std::function<const DeviceContext&(int)> context_of_;
  std::map<uint64_t, Range> ranges_;  // by begin
  std::optional<int> current_ordinal_;
  std::unique_ptr<CurrentContext> current_;
};

// Returns the device that an address is on; nothing if it is on none. Throws DriverFailure. No context need be current.
std::optional<int> OrdinalOf(const GpuDriver& driver, uint64_t address);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_RANGES_H_
