// Copies from devices to pinned memory in chunks, so that the trainer's own copies can run between them.
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

// A device's copy engine executes copies in the order in which they were enqueued, also across streams. If gigabytes
// were enqueued at once, a trainer's copy of a few bytes (`loss.item()`) would wait for all of them. So at most two
// chunks of each device are enqueued at a time. Once an update waits for the copies (OverlapState::Guard), all
// remaining chunks are enqueued.
class ChunkedCopy {
 public:
  ChunkedCopy(const DeviceCore& core, int64_t chunk_bytes)
      : core_(core), driver_(core.driver), pinned_(core.pinned), chunk_bytes_(chunk_bytes) {}

  // Adds a device: Run then also waits for all work that is already in the device's stream. No context needs to be
  // current in the calls of Add.
  void Add(const DeviceContext& device);
  // Adds a copy. Both sides must be packed, and the host's side must be pinned.
  void Add(const DeviceContext& device, const StagedCopy& copy);
  // Executes all copies, serves the guards of `state` meanwhile, and returns when the copies have ended. Throws
  // DriverFailure; the caller must then wait for the devices' streams.
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
    size_t next = 0;    // index into `pieces`
    int64_t taken = 0;  // bytes of that piece that are enqueued
    // Each is recorded behind one of the enqueued chunks. events[first] belongs to the older chunk.
    std::array<std::unique_ptr<DeviceEvent>, 2> events;
    size_t first = 0;
    size_t queued = 0;
    std::unique_ptr<DeviceEvent> end;  // recorded behind all copies of the lane; null until all are enqueued
  };

  // Make and destroy the events, with the device's context current.
  void Open(Lane& lane);
  void Close(Lane& lane);
  // Enqueues chunks that have room, or all remaining ones if `all`. Returns whether anything changed.
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
