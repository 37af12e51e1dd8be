// Starts threads, which the system may refuse: there are limits of the user (ulimit -u), of the control group
// (pids.max) and of the address space (ulimit -v). A refusal in std::thread's own constructor would end the process, so
// after a process's start only this file calls it.
#ifndef CAIRN_COMMON_RESOURCES_THREAD_H_
#define CAIRN_COMMON_RESOURCES_THREAD_H_

#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"

namespace cairn {

// Starts a thread that runs `work`. `what` is for the message: "to write step 7". RESOURCE_EXHAUSTED (MEMORY_LIMIT):
// the system refused.
absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> work);

// Runs `work` on this thread and on `threads` - 1 others, and returns when all have ended. Each call of `work` must
// take shares of one task until none is left: if the system refuses threads, the others, and at least this one, do the
// whole task more slowly. `work` must not throw.
void RunOnThreads(int threads, const std::function<void()>& work);

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_THREAD_H_
