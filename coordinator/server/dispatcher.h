// Runs the core: one lock around it, its actions on workers, its log on standard error, and the calls that wait for it.
#ifndef CAIRN_COORDINATOR_SERVER_DISPATCHER_H_
#define CAIRN_COORDINATOR_SERVER_DISPATCHER_H_

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/reactor.h"
#include "coordinator/job/core.h"
#include "coordinator/server/executor.h"
#include "coordinator/server/worker_pool.h"

namespace cairn {

// Thread-safe. One lock; it is never held while a call is answered or an action runs.
class Dispatcher {
 public:
  // Says under the lock what a held call answers, or nothing if it must wait on. `last`: its time is over, so that it
  // must answer. The response is written by `respond` afterwards, without the lock.
  struct Answer {
    absl::Status status;
    std::function<void()> respond = nullptr;
  };
  using Poll = std::function<std::optional<Answer>(Core& core, const Environment& environment, bool last)>;

  Dispatcher(const CoreOptions& options, Executor& executor, const Clock& clock, int workers);
  ~Dispatcher() { Stop(); }

  // Applies an event.
  template <typename Function>
  auto Event(Function function) {
    Effects effects;
    auto result = [&] {
      MutexLock lock(mutex_);
      const Environment environment = core_.At(clock_.SteadyNow(), clock_.WallNow());
      auto value = function(core_, environment);
      Collect(effects);
      return value;
    }();
    Release(std::move(effects));
    return result;
  }

  // Answers a call when `poll` does: now, after an event, or when `max_wait` is over. `agent`: a later call with the
  // same name (not empty) ends the wait of this one.
  grpc::ServerUnaryReactor* Hold(grpc::CallbackServerContext* context, const std::string& agent,
                                 absl::Duration max_wait, Poll poll);

  // Runs `work` on a worker and answers the call with its status.
  grpc::ServerUnaryReactor* OnWorker(std::function<absl::Status(std::function<void()>& respond)> work);

  bool busy();
  // Answers all held calls and ends workers and timer. Idempotent.
  void Stop();

 private:
  struct Held {
    std::string agent;
    Poll poll;
    std::shared_ptr<HeldCall> call;
  };
  struct Effects {
    std::vector<CoreAction> actions;
    std::vector<std::string> log;
    std::vector<std::pair<std::shared_ptr<HeldCall>, Answer>> answers;
  };

  std::optional<Answer> Ask(const Poll& poll, const Environment& environment, bool last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Collect(Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Effects effects);
  void OnEnd(HeldCall& call, bool timer);
  void Execute(const CoreAction& action);
  void RunTimer();

  const Clock& clock_;
  Executor& executor_;
  WorkerPool workers_;
  Mutex mutex_;
  Core core_ ABSL_GUARDED_BY(mutex_);
  std::list<Held> held_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar stop_;
  std::thread timer_;
};

// A line of the log on standard error: time, then `text`. Thread-safe.
void LogLine(const Clock& clock, const std::string& text);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_DISPATCHER_H_
