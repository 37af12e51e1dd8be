// The stand-in's calls about streams and events.
#include <cstdint>
#include <memory>
#include <mutex>

#include "common/gpu/driver_api.h"
#include "tests/testing/stand_in/cuda/controls.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

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
  if (recorded.queue != nullptr) AddWork(state, queue, [recorded] { recorded.queue->Await(recorded.ticket); });
  return kSuccess;
}

Result cuStreamQuery(Stream stream) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const std::shared_ptr<Queue> queue = TheState().FindStream(stream);
  if (queue == nullptr) return kInvalidHandle;
  return queue->IsDone(queue->last()) ? kSuccess : kNotReady;
}

Result cuStreamIsCapturing(Stream stream, int* status) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  if (TheState().FindStream(stream) == nullptr) return kInvalidHandle;
  const bool is_default = reinterpret_cast<uintptr_t>(stream) <= kStreamLegacy;
  if (is_default && TheState().settings.capturing != 0) return kStreamCaptureImplicit;
  *status = static_cast<int>(TheState().settings.capturing);
  return kSuccess;
}

Result cuStreamSynchronize(Stream stream) {
  CAIRN_ENTER(true);
  std::shared_ptr<Queue> queue;
  {
    const std::lock_guard lock(TheState().mutex);
    queue = TheState().FindStream(stream);
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
  found->second = {.queue = queue, .ticket = AddWork(state, queue, [] {})};
  return kSuccess;
}

Result cuEventQuery(Event event) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().events.find(reinterpret_cast<uintptr_t>(event));
  if (found == TheState().events.end()) return kInvalidHandle;
  const EventState& state = found->second;
  return state.queue == nullptr || state.queue->IsDone(state.ticket) ? kSuccess : kNotReady;
}

Result cuEventSynchronize(Event event) {
  CAIRN_ENTER(true);
  EventState recorded;
  {
    const std::lock_guard lock(TheState().mutex);
    const auto found = TheState().events.find(reinterpret_cast<uintptr_t>(event));
    if (found == TheState().events.end()) return kInvalidHandle;
    recorded = found->second;
  }
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
