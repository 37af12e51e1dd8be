// Lets one exchange at a time use a group's worker.
#ifndef CAIRN_GPU_NCCL_GROUP_TURN_H_
#define CAIRN_GPU_NCCL_GROUP_TURN_H_

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// The coordinator gives a group to one operation at a time. But an agent may still take memory back from its worker for
// an operation that has ended elsewhere. Thread-safe.
class GroupTurn {
 public:
  // Waits until the worker is free and takes it. Returns false if it is still in use after `timeout`.
  bool Take(absl::Duration timeout) {
    const absl::Time until = Clock::Real().SteadyNow() + timeout;
    MutexLock lock(mutex_);
    while (taken_) {
      const absl::Duration left = until - Clock::Real().SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
    return taken_ = true;
  }
  void GiveBack() {
    MutexLock lock(mutex_);
    taken_ = false;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_GROUP_TURN_H_
