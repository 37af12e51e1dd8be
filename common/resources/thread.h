// Threads, which may not be to be had: beyond a limit of the user (ulimit -u), of the control group (pids.max) or of
// the address space (ulimit -v) the system refuses. std::thread's own constructor would end the process then, so
// outside of a process's start it is called here alone.
#ifndef CAIRN_COMMON_RESOURCES_THREAD_H_
#define CAIRN_COMMON_RESOURCES_THREAD_H_

#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"

namespace cairn {

// A thread that runs `work`. `what` is for the message: "to write step 7".
// RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused.
absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> work);

// Runs `work` on this thread and on `threads` - 1 others, and returns when all have ended. `work` takes shares of one
// task until none is left, so it goes on with those threads that are to be had, this one at least, and is only slower.
// `work` must not throw.
void RunOnThreads(int threads, const std::function<void()>& work);

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_THREAD_H_
