// Starts threads. The system may refuse a thread because of a limit of the user (ulimit -u), of the control group
// (pids.max) or of the address space (ulimit -v). std::thread's constructor throws then, which would end the process.
// So once a process has started, only this file calls that constructor.
#ifndef CAIRN_COMMON_RESOURCES_THREAD_H_
#define CAIRN_COMMON_RESOURCES_THREAD_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

// Starts a thread that runs `work`. `what` is for the message: "to write step 7". RESOURCE_EXHAUSTED (MEMORY_LIMIT):
// the system refused.
absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> work);

// Runs `work` on this thread and on `threads` - 1 others, and returns when all have ended. `work` must take parts of
// one common task until none is left. Then, if the system refuses threads, the remaining ones (at least this one) still
// do the whole task. `work` must not throw.
void RunOnThreads(int threads, const std::function<void()>& work);

// Limits how many helper threads the callers of ForEachOnThreads have at a time. A thread that hangs in storage counts
// until it returns, so hanging storage does not lead to ever more threads. Thread-safe.
class Helpers {
 public:
  explicit Helpers(int most) : free_(most) {}
  // Returns how many of the `wanted` threads may be started. The caller gives them back when they have ended.
  int Take(int wanted);
  void GiveBack(int taken) { free_ += taken; }

 private:
  std::atomic<int> free_;
};

// Calls `one` with the numbers 0 to `count` - 1, on this thread and on up to `threads` - 1 others. `thread` is the
// number of the calling thread, below `threads`. Numbers are taken in ascending order until a call returns an error.
// Returns the error of the smallest number that failed; all numbers below it succeeded. If the system refuses memory to
// a call, its error is RESOURCE_EXHAUSTED (MEMORY_LIMIT). `what` says what the memory was for: "to read a load".
absl::Status ForEachOnThreads(std::string_view what, size_t count, int threads,
                              const std::function<absl::Status(size_t number, int thread)>& one);
// The same on this thread and on `count` / `share` helper threads, or fewer if others use them.
absl::Status ForEachOnThreads(std::string_view what, size_t count, size_t share, Helpers& helpers,
                              const std::function<absl::Status(size_t number, int thread)>& one);

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_THREAD_H_
