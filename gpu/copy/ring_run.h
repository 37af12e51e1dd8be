// Moves parts of copies through the ring: while the device fills (or empties) one buffer, the host works on the other.
#ifndef CAIRN_GPU_COPY_RING_RUN_H_
#define CAIRN_GPU_COPY_RING_RUN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/copy/device_context.h"

namespace cairn {

// One run on one device, whose context is current. All its methods throw DriverFailure; the caller then waits for the
// stream before it lets go of any memory.
class RingRun {
 public:
  // Parts that lie in one buffer, with the index that Add was given for each.
  struct Batch {
    std::vector<std::pair<size_t, DevicePart>> parts;  // the packed side of `host` points into the buffer
    std::byte* memory = nullptr;
    std::vector<int64_t> offsets;
  };
  // Takes the bytes of a full buffer in a copy to the host; fills a buffer in a copy to the device.
  using Work = std::function<void(Batch&)>;

  RingRun(const GpuDriver& driver, const DeviceContext& device, StagingRing& ring, bool to_host, Work work);

  // The part has at most one buffer's bytes.
  void Add(size_t index, DevicePart part);
  // Returns when all is done.
  void Finish();
  int64_t calls() const { return calls_; }

 private:
  struct Slot {
    Batch batch;
    int64_t fill = 0;
    bool queued = false;  // the device works on it
    explicit Slot(const GpuDriver& driver) : done(driver) {}
    DeviceEvent done;
  };

  void Push();
  void Drain(Slot& slot);

  const GpuDriver& driver_;
  const DeviceContext& device_;
  StagingRing& ring_;
  const bool to_host_;
  const Work work_;
  std::array<Slot, 2> slots_;
  size_t current_ = 0;
  int64_t calls_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_RING_RUN_H_
