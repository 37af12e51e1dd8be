// Copies between a GPU's memory and the host's, for one client: on streams of its own, through pinned memory if it can.
#ifndef CAIRN_PYTHON_NATIVE_DEVICE_STAGING_H_
#define CAIRN_PYTHON_NATIVE_DEVICE_STAGING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/gpu/driver.h"
#include "common/gpu/transfer.h"

namespace cairn {

// A copy, and the stream of the trainer after whose work it comes (0 and 1: the default stream).
struct StagedCopy {
  DeviceCopy copy;
  uint64_t stream = 0;
};

// How a device's bytes reached the host, from best to worst.
enum class DevicePath : int64_t {
  kPinnedSlab = 0,  // straight, into memory that is pinned
  kPinnedRing = 1,  // through two pinned buffers, and from there by threads of the host
  kPageable = 2,    // through the driver's own buffers
};

struct DeviceOutcome {
  enum Kind : int64_t {
    kDone = 0,
    kDriverFailed = 1,  // `text` has the call and its result
    kStalled = 2,       // work of the driver did not end in time, and goes on: all memory must stay
    kNotOnDevice = 3,   // the memory of copy `index` is no device's, or not any more
    kManyDevices = 4,   // the memory of copy `index` begins on one device and ends on another
  };
  Kind kind = kDone;
  int64_t index = -1;
  DevicePath path = DevicePath::kPinnedSlab;
  int64_t bytes = 0;
  int64_t calls = 0;  // that enqueued a copy
  std::string text;
  std::string fallback;  // why it was no better path
};

// Does one thing at a time. What it is asked runs in a thread of its own, so that a driver that hangs keeps nobody
// longer than the given number of seconds; until that ends, everything else is kStalled at once. Thread-safe.
class DeviceStaging {
 public:
  // `driver` must outlive it. Each of the ring's two buffers has `slot_bytes` bytes.
  DeviceStaging(const GpuDriver& driver, int64_t slot_bytes);
  // Gives up all memory and streams, if nothing hangs. Waits `kCloseSeconds` at most.
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Pins host memory in pieces, because the driver stalls its other calls while it pins one, and refuses huge ones. On
  // failure nothing is pinned, and later copies say why they had to take the ring.
  DeviceOutcome Pin(int device, void* memory, int64_t bytes, int64_t piece_bytes, double seconds);
  // Must be called before the memory is unmapped.
  DeviceOutcome Unpin(void* memory, double seconds);

  // Makes the copies, which all go the same way, and waits for them. `threads` copy on the host.
  DeviceOutcome Copy(std::vector<StagedCopy> copies, int64_t threads, double seconds);

  // Computes the CRC32C of each array, in the order of the device's memory. The targets of the copies are not used.
  DeviceOutcome Checksum(std::vector<StagedCopy> copies, double seconds, std::vector<uint32_t>* checksums);

  // Whether something from before still runs.
  bool busy() const;
  // Of memory that is pinned now, the ring's included.
  int64_t pinned_bytes() const;

  static constexpr double kCloseSeconds = 5;

 private:
  struct Core;
  DeviceOutcome Run(double seconds, std::function<DeviceOutcome(Core&)> work);

  // A thread that hangs keeps it.
  const std::shared_ptr<Core> core_;
};

}  // namespace cairn

#endif  // CAIRN_PYTHON_NATIVE_DEVICE_STAGING_H_
