// Moves parts of copies through a StagingRing: while the device fills (or empties) one buffer, the host works on the
// other.
#ifndef CAIRN_GPU_COPY_RING_RUN_H_
#define CAIRN_GPU_COPY_RING_RUN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/copy/device_context.h"

namespace cairn {

// The copies of one device in one direction. The device's context must be current. All methods throw DriverFailure; the
// caller must then wait for the device's stream before it frees any memory.
class RingRun {
 public:
  // The parts in one buffer, each with its index from Add.
  struct Batch {
    std::vector<std::pair<size_t, DevicePart>> parts;  // the packed side of each part's `host` points into the buffer
    std::byte* memory = nullptr;
    std::vector<int64_t> offsets;
  };
  // The host's work: consumes the bytes of a full buffer, or fills a buffer if the direction is to the device.
  using Work = std::function<void(Batch&)>;

  RingRun(const GpuDriver& driver, const DeviceContext& device, StagingRing& ring, bool to_host, Work work);

  // Adds a part. It must fit into one buffer.
  void Add(size_t index, DevicePart part);
  // Waits until all parts are done.
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
