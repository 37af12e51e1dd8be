#include "gpu/copy/chunked_copy.h"

#include <algorithm>
#include <limits>

namespace cairn {

// How often the thread checks for ended chunks. A chunk takes a third of a millisecond.
constexpr double kLookSeconds = 200e-6;

void ChunkedCopy::Add(const DeviceContext& device) { lanes_[device.ordinal()].device = &device; }

void ChunkedCopy::Add(const DeviceContext& device, const StagedCopy& copy) {
  Add(device);
  const TiledCopy& packed = copy.copy.copy;
  lanes_[device.ordinal()].pieces.push_back({copy.copy.device, packed.target, packed.element_bytes, copy.pinned});
  bytes_ += packed.element_bytes;
}

void ChunkedCopy::Run(OverlapState& state) {
  try {
    for (auto& [ordinal, lane] : lanes_) Open(lane);
    for (bool ended = false; !ended;) {
      const std::vector<OverlapState::Streams> guards = state.Guards();
      bool advanced = false;
      ended = true;
      for (auto& [ordinal, lane] : lanes_) {
        const CurrentContext current(driver_, *lane.device);
        advanced = Advance(lane, !guards.empty()) || advanced;
        ended = ended && HasEnded(lane);
      }
      if (!guards.empty()) {
        Serve(guards);
        state.Served(guards.size());
      } else if (!ended && !advanced) {
        state.AwaitGuard(kLookSeconds);
      }
    }
  } catch (const DriverFailure&) {
    for (auto& [ordinal, lane] : lanes_) Close(lane);
    throw;
  }
  for (auto& [ordinal, lane] : lanes_) Close(lane);
}

void ChunkedCopy::Open(Lane& lane) {
  const CurrentContext current(driver_, *lane.device);
  for (auto& event : lane.events) event = std::make_unique<DeviceEvent>(driver_);
}

void ChunkedCopy::Close(Lane& lane) {
  // Destroying an event needs its context. If the context is broken, the event is freed with the process.
  try {
    const CurrentContext current(driver_, *lane.device);
    for (auto& event : lane.events) event.reset();
    lane.end.reset();
  } catch (const DriverFailure&) {
    for (auto& event : lane.events) event.reset();
    lane.end.reset();
  }
}

bool ChunkedCopy::Advance(Lane& lane, bool all) {
  bool advanced = false;
  while (lane.queued > 0 && IsReached(*lane.events[lane.first])) {
    lane.first = 1 - lane.first;
    --lane.queued;
    advanced = true;
  }
  while (lane.next < lane.pieces.size() && (all || lane.queued < lane.events.size())) {
    EnqueueChunk(lane, all);
    advanced = true;
  }
  if (lane.next == lane.pieces.size() && lane.end == nullptr) {
    auto end = std::make_unique<DeviceEvent>(driver_);
    end->Record(lane.device->stream());
    lane.end = std::move(end);
  }
  return advanced;
}

void ChunkedCopy::EnqueueChunk(Lane& lane, bool all) {
  int64_t room = all ? std::numeric_limits<int64_t>::max() : chunk_bytes_;
  while (room > 0 && lane.next < lane.pieces.size()) {
    const Piece& piece = lane.pieces[lane.next];
    const int64_t bytes =
        std::min({room, piece.bytes - lane.taken, pinned_.BytesToSeam(piece.pinned, piece.target + lane.taken)});
    Require(driver_,
            driver_.call().copy_to_host(piece.target + lane.taken, piece.source + static_cast<uint64_t>(lane.taken),
                                        static_cast<size_t>(bytes), lane.device->stream()),
            "cuMemcpyDtoHAsync");
    ++calls_;
    room -= bytes;
    lane.taken += bytes;
    if (lane.taken < piece.bytes) continue;
    ++lane.next;
    lane.taken = 0;
  }
  if (all) return;
  lane.events[(lane.first + lane.queued) % lane.events.size()]->Record(lane.device->stream());
  ++lane.queued;
}

bool ChunkedCopy::HasEnded(Lane& lane) const { return lane.end != nullptr && IsReached(*lane.end); }

void ChunkedCopy::Serve(const std::vector<OverlapState::Streams>& guards) {
  for (auto& [ordinal, lane] : lanes_) {
    const CurrentContext current(driver_, *lane.device);
    for (const OverlapState::Streams& streams : guards) {
      const auto named = streams.find(ordinal);
      const uint64_t stream = named == streams.end() ? 0 : named->second;
      // Work that is captured does not run now, so it changes nothing. And the wait would make the capture fail.
      if (core_.IsCapturing(stream)) continue;
      Require(driver_, driver_.call().stream_wait_event(reinterpret_cast<cuda::Stream>(stream), lane.end->event(), 0),
              "cuStreamWaitEvent");
    }
  }
}

bool ChunkedCopy::IsReached(const DeviceEvent& event) const {
  const cuda::Result result = driver_.call().event_query(event.event());
  if (result == cuda::kNotReady) return false;
  Require(driver_, result, "cuEventQuery");
  return true;
}

}  // namespace cairn
