// Starts threads, which the system may refuse: there are limits of the user (ulimit -u), of the control group
// (pids.max) and of the address space (ulimit -v). A refusal in std::thread's own constructor would end the process, so
// after a process's start only this file calls it.
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

// Runs `work` on this thread and on `threads` - 1 others, and returns when all have ended. Each call of `work` must
// take shares of one task until none is left: if the system refuses threads, the others, and at least this one, do the
// whole task more slowly. `work` must not throw.
void RunOnThreads(int threads, const std::function<void()>& work);

// So many threads may help callers of ForEachOnThreads at a time. Those that hang are counted until they come back, so
// storage that hangs makes no others. Thread-safe.
class Helpers {
 public:
  explicit Helpers(int most) : free_(most) {}
  // Returns how many of those that are wanted may be started. They are given back when they have ended.
  int Take(int wanted);
  void GiveBack(int taken) { free_ += taken; }

 private:
  std::atomic<int> free_;
};

// Calls `one` with the numbers below `count`, on this thread and on up to `threads` - 1 others, each of which has a
// number too, below `threads`. The numbers of calls are taken in ascending order until one returns an error. Returns
// the error of the smallest number that failed; all below it were done. If the system refuses memory to a call, its
// error is RESOURCE_EXHAUSTED (MEMORY_LIMIT), of which `what` says what the memory was for: "to read a load".
absl::Status ForEachOnThreads(std::string_view what, size_t count, int threads,
                              const std::function<absl::Status(size_t number, int thread)>& one);
// The same on this thread and on one helper more for each `share` of them, or fewer where the others are busy.
absl::Status ForEachOnThreads(std::string_view what, size_t count, size_t share, Helpers& helpers,
                              const std::function<absl::Status(size_t number, int thread)>& one);

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_THREAD_H_
