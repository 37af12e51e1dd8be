// The session behind a lock: events go in from any thread, actions come out in order, and callers that wait are asked
// again after every change.
#ifndef CAIRN_AGENT_HOST_SESSION_HOST_H_
#define CAIRN_AGENT_HOST_SESSION_HOST_H_

#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "agent/session/session.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"

namespace cairn {

// Thread-safe.
class SessionHost {
 public:
  // `execute` is called for every action, in order, on one thread; it must not wait for long.
  SessionHost(SessionOptions options, const Clock& clock, std::function<void(Action)> execute)
      : clock_(clock), session_(std::move(options)), execute_(std::move(execute)) {}
  ~SessionHost() { Stop(); }

  // Runs `event` on the session, then what follows from it.
  template <typename Event>
  auto Do(Event event) {
    std::list<std::shared_ptr<Waiter>> ready;
    if constexpr (std::is_void_v<decltype(event(session_, absl::Time()))>) {
      {
        MutexLock lock(mutex_);
        event(session_, clock_.SteadyNow());
        ready = AfterEvent();
      }
      Finish(ready);
    } else {
      auto result = [&] {
        MutexLock lock(mutex_);
        auto value = event(session_, clock_.SteadyNow());
        ready = AfterEvent();
        return value;
      }();
      Finish(ready);
      return result;
    }
  }

  // A caller that waits. `poll` is asked after every change, under the lock, until it returns true; then `finish` is
  // called once, without the lock.
  struct Waiter {
    std::function<bool(Session&, absl::Time)> poll;
    std::function<void()> finish;
    // True for one that need not be asked any more.
    std::function<bool()> over;

   private:
    friend class SessionHost;
    enum class Standing { kAsked, kAnswered, kForgotten };
    Standing standing = Standing::kAsked;  // under the host's lock
  };
  void Wait(std::shared_ptr<Waiter> waiter);
  // It is asked no more, also if it comes to wait only now. False if it has been answered: then `finish` is called, and
  // what the session has told by it must not be lost.
  bool Forget(const std::shared_ptr<Waiter>& waiter);

  // Lets the session look at its deadlines, and at whatever changed without an event.
  void Tick() {
    Do([](Session& session, absl::Time now) { session.OnTick(now); });
  }

  // Waits until the session's version is not `version`, at most for `timeout`. Returns the version then.
  uint64_t WaitForChange(uint64_t version, absl::Duration timeout);
  // Called under no lock whenever the version has changed.
  void SetOnChange(std::function<void()> on_change);

  // No action is executed any more. Idempotent.
  void Stop() { actions_.Stop(); }

 private:
  std::list<std::shared_ptr<Waiter>> AfterEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(const std::list<std::shared_ptr<Waiter>>& ready);

  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  Session session_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Waiter>> waiters_ ABSL_GUARDED_BY(mutex_);
  uint64_t seen_version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool announce_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_change_ ABSL_GUARDED_BY(mutex_);
  const std::function<void(Action)> execute_;
  TaskQueue actions_{1};
};

}  // namespace cairn

#endif  // CAIRN_AGENT_HOST_SESSION_HOST_H_
