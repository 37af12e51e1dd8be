// Does what all calls of the stand-in begin with, and gives work to streams.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_ENTRY_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_ENTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/gpu/driver_api.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {

// This thread's contexts; the last one is current.
std::vector<cuda::Context>& Current();

cuda::Context ContextOf(int device);
int DeviceOf(cuda::Context context);

// Counts a call, and returns what a fault makes of it. With `in_context` the call needs a current context.
cuda::Result Enter(const char* function, bool in_context);

#define CAIRN_ENTER(in_context)                                                             \
  if (const ::cairn::cuda::Result entered = ::cairn::stand_in::Enter(__func__, in_context); \
      entered != ::cairn::cuda::kSuccess)                                                   \
  return entered

// Takes what the file says that CAIRN_STAND_IN_CUDA_SETTINGS names, see controls.h. Wants the mutex held.
void ReadSettings();

// Adds work to a stream, behind what the default stream's rules put before it. Wants the mutex held.
int64_t AddWork(State& state, const std::shared_ptr<Queue>& queue, std::function<void()> work);

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_ENTRY_H_
