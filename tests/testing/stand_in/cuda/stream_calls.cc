// The stand-in's calls about streams and events.
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "gpu/driver/driver_api.h"
#include "tests/testing/stand_in/cuda/controls.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

// Waiting for a stream that records ends the recording. Wants the mutex held.
bool Disturbs(State& state, cuda::Stream stream) {
  const auto found = state.captures.find(reinterpret_cast<uintptr_t>(stream));
  if (found == state.captures.end()) return false;
  found->second.invalidated = true;
  return true;
}

}  // namespace
}  // namespace cairn::stand_in

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
using namespace cairn::stand_in;
using namespace cairn::cuda;

extern "C" {

Result cuStreamCreate(Stream* stream, unsigned flags) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const uintptr_t handle = TheState().next_handle += 16;
  TheState().streams[handle] = std::make_shared<Queue>((flags & kStreamNonBlocking) == 0);
  *stream = reinterpret_cast<Stream>(handle);
  return kSuccess;
}

Result cuStreamDestroy_v2(Stream stream) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  TheState().captures.erase(reinterpret_cast<uintptr_t>(stream));
  return TheState().streams.erase(reinterpret_cast<uintptr_t>(stream)) == 1 ? kSuccess : kInvalidHandle;
}

Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  CAIRN_ENTER(true);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  const auto found = state.events.find(reinterpret_cast<uintptr_t>(event));
  if (queue == nullptr || found == state.events.end()) return kInvalidHandle;
  const EventState recorded = found->second;
  const auto capture = state.captures.find(reinterpret_cast<uintptr_t>(stream));
  if (capture != state.captures.end() && !recorded.captured) {
    capture->second.invalidated = true;
    return kStreamCaptureIsolation;
  }
  if (const auto captured = Recorded(state, stream)) return *captured;
  if (recorded.captured) return kCapturedEvent;
  if (recorded.queue != nullptr) AddWork(state, queue, [recorded] { recorded.queue->Await(recorded.ticket); });
  return kSuccess;
}

Result cuStreamQuery(Stream stream) {
  CAIRN_ENTER_UNSAFE();
  const std::lock_guard lock(TheState().mutex);
  const std::shared_ptr<Queue> queue = TheState().FindStream(stream);
  if (queue == nullptr) return kInvalidHandle;
  if (Disturbs(TheState(), stream)) return kStreamCaptureUnsupported;
  return queue->IsDone(queue->last()) ? kSuccess : kNotReady;
}

Result cuStreamIsCapturing(Stream stream, int* status) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  if (TheState().FindStream(stream) == nullptr) return kInvalidHandle;
  const bool is_default = reinterpret_cast<uintptr_t>(stream) <= kStreamLegacy;
  for (const auto& [other, capture] : TheState().captures) {
    if (is_default && TheState().streams.at(other)->blocking()) return kStreamCaptureImplicit;
  }
  const auto found = TheState().captures.find(reinterpret_cast<uintptr_t>(stream));
  *status = found == TheState().captures.end() ? kCaptureNone
            : found->second.invalidated        ? kCaptureInvalidated
                                               : kCaptureActive;
  return kSuccess;
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  CAIRN_ENTER(false);
  if (*mode < kCaptureGlobal || *mode > kCaptureRelaxed) return kInvalidValue;
  std::swap(*mode, CaptureMode());
  return kSuccess;
}

Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  CAIRN_ENTER(true);
  if (mode < kCaptureGlobal || mode > kCaptureRelaxed) return kInvalidValue;
  const std::lock_guard lock(TheState().mutex);
  const uintptr_t handle = reinterpret_cast<uintptr_t>(stream);
  if (handle <= kStreamLegacy) return kStreamCaptureUnsupported;
  if (!TheState().streams.contains(handle)) return kInvalidHandle;
  const bool begun =
      TheState().captures.try_emplace(handle, Capture{.mode = mode, .thread = std::this_thread::get_id()}).second;
  return begun ? kSuccess : kIllegalState;
}

Result cuStreamEndCapture(Stream stream, Graph* graph) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().captures.find(reinterpret_cast<uintptr_t>(stream));
  if (found == TheState().captures.end()) return kIllegalState;
  const Capture capture = found->second;
  if (capture.mode != kCaptureRelaxed && capture.thread != std::this_thread::get_id()) return kStreamCaptureWrongThread;
  TheState().captures.erase(found);
  *graph = capture.invalidated ? nullptr : reinterpret_cast<Graph>(TheState().next_handle += 16);
  return capture.invalidated ? kStreamCaptureInvalidated : kSuccess;
}

Result cuGraphDestroy(Graph graph) {
  CAIRN_ENTER(false);
  return graph == nullptr ? kInvalidValue : kSuccess;
}

Result cuStreamSynchronize(Stream stream) {
  CAIRN_ENTER_UNSAFE();
  std::shared_ptr<Queue> queue;
  {
    const std::lock_guard lock(TheState().mutex);
    queue = TheState().FindStream(stream);
    if (Disturbs(TheState(), stream)) return kStreamCaptureUnsupported;
  }
  if (queue == nullptr) return kInvalidHandle;
  queue->Await(queue->last());
  return kSuccess;
}

Result cuEventCreate(Event* event, unsigned) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const uintptr_t handle = TheState().next_handle += 16;
  TheState().events[handle] = {};
  *event = reinterpret_cast<Event>(handle);
  return kSuccess;
}

Result cuEventDestroy_v2(Event event) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  return TheState().events.erase(reinterpret_cast<uintptr_t>(event)) == 1 ? kSuccess : kInvalidHandle;
}

Result cuEventRecord(Event event, Stream stream) {
  CAIRN_ENTER(true);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  const auto found = state.events.find(reinterpret_cast<uintptr_t>(event));
  if (queue == nullptr || found == state.events.end()) return kInvalidHandle;
  if (const auto captured = Recorded(state, stream)) {
    found->second = {.captured = true};
    return *captured;
  }
  found->second = {.queue = queue, .ticket = AddWork(state, queue, [] {})};
  return kSuccess;
}

Result cuEventQuery(Event event) {
  CAIRN_ENTER_UNSAFE();
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().events.find(reinterpret_cast<uintptr_t>(event));
  if (found == TheState().events.end()) return kInvalidHandle;
  const EventState& state = found->second;
  if (state.captured) return kCapturedEvent;
  return state.queue == nullptr || state.queue->IsDone(state.ticket) ? kSuccess : kNotReady;
}

Result cuEventSynchronize(Event event) {
  CAIRN_ENTER_UNSAFE();
  EventState recorded;
  {
    const std::lock_guard lock(TheState().mutex);
    const auto found = TheState().events.find(reinterpret_cast<uintptr_t>(event));
    if (found == TheState().events.end()) return kInvalidHandle;
    recorded = found->second;
  }
  if (recorded.captured) return kCapturedEvent;
  if (recorded.queue != nullptr) recorded.queue->Await(recorded.ticket);
  return kSuccess;
}

bool cairn_stand_in_enqueue(void* stream, void (*work)(void*), void* argument) {
  const std::lock_guard lock(TheState().mutex);
  const std::shared_ptr<Queue> queue = TheState().FindStream(static_cast<Stream>(stream));
  if (queue == nullptr) return false;
  AddWork(TheState(), queue, [work, argument] { work(argument); });
  return true;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
