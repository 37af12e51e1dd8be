// All calls of the stand-in begin with these, and give work to streams by these.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_ENTRY_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_ENTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gpu/driver/driver_api.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {

// This thread's contexts; the last one is current.
std::vector<cuda::Context>& Current();

cuda::Context ContextOf(int device);
int DeviceOf(cuda::Context context);

// Counts a call, and returns the result that a fault gives it. With `in_context` the call needs a current context. A
// call that is not `safe` ends the captures that it may disturb, unless the thread is relaxed about them.
cuda::Result Enter(const char* function, bool in_context, bool safe = true);

// Counts a call, and does the part that faults have in it: it may hang, or return true and a result.
bool Meet(State& state, std::unique_lock<std::mutex>& lock, const char* function, cuda::Result* result);

#define CAIRN_ENTER(in_context)                                                             \
  if (const ::cairn::cuda::Result entered = ::cairn::stand_in::Enter(__func__, in_context); \
      entered != ::cairn::cuda::kSuccess)                                                   \
  return entered

#define CAIRN_ENTER_UNSAFE()                                                                 \
  if (const ::cairn::cuda::Result entered = ::cairn::stand_in::Enter(__func__, true, false); \
      entered != ::cairn::cuda::kSuccess)                                                    \
  return entered

// Says how this thread takes captures of others.
int& CaptureMode();

// Returns nothing if work in this stream is to run. Otherwise what the call returns: success if a graph records it.
// Wants the mutex held.
std::optional<cuda::Result> Recorded(State& state, cuda::Stream stream);

// Takes what the file says that STAND_IN_CUDA names, see controls.h. Wants the mutex held.
void ReadSettings();

// Adds work to a stream, behind what the default stream's rules put before it. Wants the mutex held.
int64_t AddWork(State& state, const std::shared_ptr<Queue>& queue, std::function<void()> work);

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_ENTRY_H_
