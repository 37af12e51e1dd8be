// Copies from devices to pinned memory in pieces, so that other copies find their way between them.
#ifndef CAIRN_GPU_COPY_CHUNKED_COPY_H_
#define CAIRN_GPU_COPY_CHUNKED_COPY_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gpu/copy/device_context.h"
#include "gpu/copy/device_core.h"
#include "gpu/copy/overlap_state.h"

namespace cairn {

// A copy engine takes copies in the order in which they were enqueued, whatever their streams: if gigabytes were
// enqueued at once, a copy of a few bytes (`loss.item()`) would wait for them all. So at most two chunks of each device
// are enqueued at a time, until an update waits for the copies; then all the rest is.
class ChunkedCopy {
 public:
  ChunkedCopy(const DeviceCore& core, int64_t chunk_bytes)
      : core_(core), driver_(core.driver), pinned_(core.pinned), chunk_bytes_(chunk_bytes) {}

  // No context need be current in these. All that is in the stream of a device is waited for, too.
  void Add(const DeviceContext& device);
  // Both sides are packed, and the host's is pinned.
  void Add(const DeviceContext& device, const StagedCopy& copy);
  // Copies all, serves guards meanwhile, and returns when the copies have ended. Throws DriverFailure; the caller then
  // waits for the devices' streams.
  void Run(OverlapState& state);

  int64_t calls() const { return calls_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    uint64_t source = 0;
    std::byte* target = nullptr;
    int64_t bytes = 0;
    uint64_t pinned = 0;
  };
  struct Lane {
    const DeviceContext* device = nullptr;
    std::vector<Piece> pieces;
    size_t next = 0;    // piece
    int64_t taken = 0;  // bytes of it
    // These come behind the chunks that are enqueued; that of the older one is `first`.
    std::array<std::unique_ptr<DeviceEvent>, 2> events;
    size_t first = 0;
    size_t queued = 0;
    std::unique_ptr<DeviceEvent> end;  // behind all of the lane, if it is enqueued
  };

  // Makes the events while the context is current, and ends them so.
  void Open(Lane& lane);
  void Close(Lane& lane);
  // Returns whether it did something.
  bool Advance(Lane& lane, bool all);
  void EnqueueChunk(Lane& lane, bool all);
  bool HasEnded(Lane& lane) const;
  void Serve(const std::vector<OverlapState::Streams>& guards);
  bool IsReached(const DeviceEvent& event) const;

  const DeviceCore& core_;
  const GpuDriver& driver_;
  const PinnedMemory& pinned_;
  const int64_t chunk_bytes_;
  std::map<int, Lane> lanes_;
  int64_t calls_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_CHUNKED_COPY_H_
