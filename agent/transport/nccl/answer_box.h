// A place where a thread waits for the answers of calls that it has begun, and where another one can end the waiting.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_ANSWER_BOX_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_ANSWER_BOX_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe. Callbacks hold it by a shared pointer, since they may run when nobody waits any more.
template <typename Answer>
class AnswerBox {
 public:
  // The first error stays: all that wait get it, now and later.
  void Put(absl::StatusOr<Answer> answer) {
    MutexLock lock(mutex_);
    if (!answer.ok()) {
      if (error_.ok()) error_ = answer.status();
    } else {
      answer_ = *std::move(answer);
    }
    changed_.NotifyAll();
  }
  // Blocks until there is an answer, and takes it out, or until there is an error.
  absl::StatusOr<Answer> Take() { return *Take(absl::InfiniteDuration()); }
  // The same; returns nothing when the time is over.
  std::optional<absl::StatusOr<Answer>> Take(absl::Duration timeout) {
    const absl::Time until = Clock::Real().SteadyNow() + timeout;
    MutexLock lock(mutex_);
    while (error_.ok() && !answer_.has_value()) {
      const absl::Duration left = until - Clock::Real().SteadyNow();
      if (left <= absl::ZeroDuration()) return std::nullopt;
      changed_.WaitFor(mutex_, left);
    }
    if (!error_.ok()) return error_;
    return *std::exchange(answer_, std::nullopt);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::optional<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_ANSWER_BOX_H_
