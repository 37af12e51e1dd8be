// Copies between a GPU's memory and the host's, for one client: on streams of its own, through pinned memory if it can.
#ifndef CAIRN_PYTHON_NATIVE_DEVICE_STAGING_H_
#define CAIRN_PYTHON_NATIVE_DEVICE_STAGING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/gpu/driver.h"
#include "common/gpu/staged_copy.h"
#include "python/native/overlap_state.h"

namespace cairn {

class DeviceCore;

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

  // Begins a save whose copies go on behind the trainer's back, and returns when all arrays are as if they were copied,
  // if updates wait for OverlapState::Guard. That is kept by the returned state, which outlives this object if need be;
  // until it has ended, everything else is kStalled. The outcome says whether it has begun: kDone, or why not.
  std::shared_ptr<OverlapState> Overlap(OverlapRequest request, double seconds, DeviceOutcome* outcome);

  // Computes the CRC32C of each array, in the order of the device's memory. The targets of the copies are not used.
  DeviceOutcome Checksum(std::vector<StagedCopy> copies, double seconds, std::vector<uint32_t>* checksums);

  // Whether something from before still runs.
  bool busy() const;
  // Returns how much memory is pinned now, with the ring's and that of sums.
  int64_t pinned_bytes() const;

  static constexpr double kCloseSeconds = 5;

 private:
  // Returns false if something from before still runs, or if there is no thread; `outcome` says which.
  bool Start(std::function<void(DeviceCore&)> work, DeviceOutcome* outcome);
  DeviceOutcome Run(double seconds, std::function<DeviceOutcome(DeviceCore&)> work);

  // A thread that hangs keeps it.
  const std::shared_ptr<DeviceCore> core_;
};

}  // namespace cairn

#endif  // CAIRN_PYTHON_NATIVE_DEVICE_STAGING_H_
