#include "common/rpc/call_timer.h"

#include <thread>

namespace cairn {

CallTimer& CallTimer::OfProcess() {
  static CallTimer& timer = *new CallTimer();
  return timer;
}

CallTimer::CallTimer() {
  std::thread([this] { Run(); }).detach();
}

void CallTimer::Set(absl::Duration wait, std::weak_ptr<Timed> timed, Entry& entry) {
  // Only differences of a steady clock mean something, so rounding relative to its origin is fine.
  const absl::Duration time = absl::Ceil(clock_.SteadyNow() + wait - absl::UnixEpoch(), kGrain);
  MutexLock lock(mutex_);
  entry = {absl::UnixEpoch() + time, ++last_number_};
  const auto [place, inserted] = entries_.emplace(entry, std::move(timed));
  if (place == entries_.begin()) changed_.NotifyOne();
}

void CallTimer::Cancel(const Entry& entry) {
  MutexLock lock(mutex_);
  entries_.erase(entry);
}

void CallTimer::Run() {
  for (;;) {
    std::shared_ptr<Timed> over;
    {
      MutexLock lock(mutex_);
      while (entries_.empty()) changed_.Wait(mutex_);
      const auto first = entries_.begin();
      const absl::Duration left = first->first.time - clock_.SteadyNow();
      if (left > absl::ZeroDuration()) {
        changed_.WaitFor(mutex_, left);
        continue;
      }
      over = first->second.lock();
      entries_.erase(first);
    }
    if (over != nullptr) over->OnTimeOver();
  }
}

}  // namespace cairn
