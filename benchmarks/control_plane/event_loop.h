// Runs what thin agents do: one thread, for thousands of them, with tasks and timers.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_EVENT_LOOP_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_EVENT_LOOP_H_

#include <functional>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace cairn {

class EventLoop {
 public:
  // An owner may take tasks back that have not run. Only its address counts.
  using Owner = const void*;

  // The task runs in the thread of RunUntil. Thread-safe; does not block.
  void Post(Owner owner, std::function<void()> task);
  // For tasks only: the thread of RunUntil, or the one that will call it.
  void After(Owner owner, absl::Duration delay, std::function<void()> task);
  // Runs tasks until `done` says so, and says whether it did before `timeout`. `done` is asked after every round of
  // tasks, so it must be cheap.
  bool RunUntil(const std::function<bool()>& done, absl::Duration timeout);
  void RunFor(absl::Duration time);
  // Takes back what was to run for this owner, not that of others. Not to be called by a task.
  void Forget(Owner owner);

 private:
  struct Task {
    Owner owner;
    std::function<void()> run;
  };

  Mutex mutex_;
  CondVar posted_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Time, Task> timers_;  // equal times in the order in which they were set
};

// Returns the time of the one clock of the benchmark, which is monotonic.
absl::Time SteadyNow();

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_EVENT_LOOP_H_
