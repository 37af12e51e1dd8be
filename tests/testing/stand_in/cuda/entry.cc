#include "tests/testing/stand_in/cuda/entry.h"

#include <unistd.h>

#include <mutex>
#include <utility>

namespace cairn::stand_in {

using cuda::Context;
using cuda::Result;

std::vector<Context>& Current() {
  thread_local std::vector<Context> current;
  return current;
}

Context ContextOf(int device) { return reinterpret_cast<Context>(uintptr_t{0x100} + static_cast<uintptr_t>(device)); }
int DeviceOf(Context context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context) - 0x100); }

int& CaptureMode() {
  thread_local int mode = cuda::kCaptureGlobal;
  return mode;
}

std::optional<Result> Recorded(State& state, cuda::Stream stream) {
  const uintptr_t handle = reinterpret_cast<uintptr_t>(stream);
  if (handle > cuda::kStreamLegacy) {
    const auto found = state.captures.find(handle);
    if (found == state.captures.end()) return std::nullopt;
    return found->second.invalidated ? cuda::kStreamCaptureInvalidated : cuda::kSuccess;
  }
  bool disturbed = false;
  for (auto& [other, capture] : state.captures) {
    if (!state.streams.at(other)->blocking()) continue;
    capture.invalidated = disturbed = true;
  }
  return disturbed ? std::optional<Result>(cuda::kStreamCaptureImplicit) : std::nullopt;
}

bool Meet(State& state, std::unique_lock<std::mutex>& lock, const char* function, Result* result) {
  ++state.counts[function];
  if (state.hanging.contains(function)) {
    ++state.counts["hanging"];
    state.changed.wait(lock, [&] { return !state.hanging.contains(function); });
    --state.counts["hanging"];
  }
  const auto failure = state.failures.find(function);
  if (failure != state.failures.end() && --failure->second.calls_left == 0) {
    *result = failure->second.result;
    state.failures.erase(failure);
    return true;
  }
  return false;
}

Result Enter(const char* function, bool in_context, bool safe) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  Result result = cuda::kSuccess;
  if (Meet(state, lock, function, &result)) return result;
  if (state.process != getpid()) return cuda::kNotInitialized;
  if (state.settings.broken != 0) return static_cast<Result>(state.settings.broken);
  if (in_context && Current().empty()) return cuda::kInvalidContext;
  if (safe || CaptureMode() == cuda::kCaptureRelaxed) return cuda::kSuccess;
  for (auto& [stream, capture] : state.captures) {
    const bool own = capture.thread == std::this_thread::get_id() && capture.mode != cuda::kCaptureRelaxed;
    const bool of_others = CaptureMode() == cuda::kCaptureGlobal && capture.mode == cuda::kCaptureGlobal;
    if (!own && !of_others) continue;
    capture.invalidated = true;
    result = cuda::kStreamCaptureUnsupported;
  }
  return result;
}

int64_t AddWork(State& state, const std::shared_ptr<Queue>& queue, std::function<void()> work) {
  if (queue->blocking()) {
    const std::shared_ptr<Queue> legacy = state.FindStream(nullptr);
    for (const auto& [handle, other] : state.streams) {
      if (other == queue || !other->blocking() || (other != legacy && queue != legacy)) continue;
      queue->Add([other = other, ticket = other->last()] { other->Await(ticket); });
    }
  }
  return queue->Add(std::move(work));
}

}  // namespace cairn::stand_in
