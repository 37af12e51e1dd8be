#include "gpu/copy/ring_run.h"

#include <utility>

namespace cairn {

// Parts begin at multiples of a cache line.
constexpr int64_t kAlignment = 64;

RingRun::RingRun(const GpuDriver& driver, const DeviceContext& device, StagingRing& ring, bool to_host, Work work)
    : driver_(driver),
      device_(device),
      ring_(ring),
      to_host_(to_host),
      work_(std::move(work)),
      slots_{Slot(driver), Slot(driver)} {}

void RingRun::Add(size_t index, DevicePart part) {
  if (slots_[current_].fill + part.bytes > ring_.slot_bytes()) Push();
  Slot& slot = slots_[current_];
  if (slot.queued) Drain(slot);
  slot.batch.memory = ring_.slot(current_);
  std::byte* place = slot.batch.memory + slot.fill;
  if (to_host_) {
    part.host.source = place;
  } else {
    part.host.target = place;
  }
  slot.batch.offsets.push_back(slot.fill);
  slot.fill += (part.bytes + kAlignment - 1) / kAlignment * kAlignment;
  slot.batch.parts.emplace_back(index, std::move(part));
}

// Gives the current buffer to the device, and continues with the other one.
void RingRun::Push() {
  Slot& slot = slots_[current_];
  if (slot.batch.parts.empty()) return;
  if (!to_host_) work_(slot.batch);
  for (size_t i = 0; i < slot.batch.parts.size(); ++i) {
    calls_ += EnqueueRows(driver_, device_.stream(), slot.batch.parts[i].second.rows, to_host_,
                          slot.batch.memory + slot.batch.offsets[i]);
  }
  slot.done.Record(device_.stream());
  slot.queued = true;
  current_ = 1 - current_;
}

void RingRun::Drain(Slot& slot) {
  slot.done.Await();
  if (to_host_) work_(slot.batch);
  slot.batch = {};
  slot.fill = 0;
  slot.queued = false;
}

void RingRun::Finish() {
  Push();
  // The buffer that the device got first is drained first.
  for (const size_t index : {current_, 1 - current_}) {
    if (slots_[index].queued) Drain(slots_[index]);
  }
}

}  // namespace cairn
