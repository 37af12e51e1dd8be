#include "agent/host/session_host.h"

#include <utility>

namespace cairn {

std::list<std::shared_ptr<SessionHost::Waiter>> SessionHost::AfterEvent() {
  std::list<std::shared_ptr<Waiter>> ready;
  const absl::Time now = clock_.SteadyNow();
  // Asking one may change what another is answered (a save's error is told once), so until nobody has an answer.
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if ((*waiter)->over()) {
      waiter = waiters_.erase(waiter);
    } else if ((*waiter)->poll(session_, now)) {
      (*waiter)->standing = Waiter::Standing::kAnswered;
      ready.push_back(*waiter);
      waiters_.erase(waiter);
      waiter = waiters_.begin();
    } else {
      ++waiter;
    }
  }
  for (Action& action : session_.TakeActions()) {
    actions_.Post([this, action = std::move(action)] { execute_(action); });
  }
  if (session_.version() != seen_version_) {
    seen_version_ = session_.version();
    announce_ = true;
    changed_.NotifyAll();
  }
  return ready;
}

void SessionHost::Finish(const std::list<std::shared_ptr<Waiter>>& ready) {
  for (const auto& waiter : ready) waiter->finish();
  std::function<void()> on_change;
  {
    MutexLock lock(mutex_);
    if (std::exchange(announce_, false)) on_change = on_change_;
  }
  if (on_change) on_change();
}

void SessionHost::Wait(std::shared_ptr<Waiter> waiter) {
  std::list<std::shared_ptr<Waiter>> ready;
  {
    MutexLock lock(mutex_);
    if (waiter->standing == Waiter::Standing::kForgotten) return;
    waiters_.push_back(std::move(waiter));
    ready = AfterEvent();  // asks it at once: something may have changed since its caller looked
  }
  Finish(ready);
}

bool SessionHost::Forget(const std::shared_ptr<Waiter>& waiter) {
  MutexLock lock(mutex_);
  if (waiter->standing == Waiter::Standing::kAnswered) return false;
  waiter->standing = Waiter::Standing::kForgotten;
  waiters_.remove(waiter);
  return true;
}

uint64_t SessionHost::WaitForChange(uint64_t version, absl::Duration timeout) {
  MutexLock lock(mutex_);
  const absl::Time deadline = clock_.SteadyNow() + timeout;
  while (session_.version() == version) {
    const absl::Duration left = deadline - clock_.SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mutex_, left);
  }
  return session_.version();
}

void SessionHost::SetOnChange(std::function<void()> on_change) {
  MutexLock lock(mutex_);
  on_change_ = std::move(on_change);
}

}  // namespace cairn
