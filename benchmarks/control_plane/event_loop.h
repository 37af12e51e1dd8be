// Runs what thin agents do: one thread, for thousands of them, with tasks and timers.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_EVENT_LOOP_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace cairn {

class EventLoop {
 public:
  // The task runs in the thread of RunUntil. Thread-safe; does not block.
  void Post(std::function<void()> task);
  // For tasks only: the thread of RunUntil, or the one that will call it.
  void After(absl::Duration delay, std::function<void()> task);
  // Runs tasks until `done` says so, and says whether it did before `timeout`. `done` is asked after every round of
  // tasks, so it must be cheap.
  bool RunUntil(const std::function<bool()>& done, absl::Duration timeout);
  void RunFor(absl::Duration time);
  // What was to run will not: its owner ends.
  void Clear();

 private:
  struct Timer {
    absl::Time at;
    uint64_t order;
    std::function<void()> task;
    bool operator<(const Timer& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  Mutex mutex_;
  CondVar posted_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::priority_queue<Timer> timers_;
  uint64_t order_ = 0;
};

// Monotonic; the one clock of the benchmark.
absl::Time SteadyNow();

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_EVENT_LOOP_H_
