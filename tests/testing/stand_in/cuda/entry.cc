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

Result Enter(const char* function, bool in_context) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  ++state.counts[function];
  if (state.hanging.contains(function)) {
    ++state.counts["hanging"];
    state.changed.wait(lock, [&] { return !state.hanging.contains(function); });
    --state.counts["hanging"];
  }
  const auto failure = state.failures.find(function);
  if (failure != state.failures.end() && --failure->second.calls_left == 0) {
    const Result result = failure->second.result;
    state.failures.erase(failure);
    return result;
  }
  if (state.process != getpid()) return cuda::kNotInitialized;
  if (state.settings.broken != 0) return static_cast<Result>(state.settings.broken);
  return in_context && Current().empty() ? cuda::kInvalidContext : cuda::kSuccess;
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
