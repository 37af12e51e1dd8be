#include "benchmarks/control_plane/event_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace cairn {

absl::Time SteadyNow() { return Clock::Real().SteadyNow(); }

void EventLoop::Post(std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) posted_.NotifyAll();
}

void EventLoop::After(absl::Duration delay, std::function<void()> task) {
  timers_.push({SteadyNow() + delay, ++order_, std::move(task)});
}

bool EventLoop::RunUntil(const std::function<bool()>& done, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  std::vector<std::function<void()>> round;
  for (;;) {
    if (done()) return true;
    const absl::Time now = SteadyNow();
    if (now >= deadline) return false;
    while (!timers_.empty() && timers_.top().at <= now) {
      round.push_back(std::move(const_cast<Timer&>(timers_.top()).task));
      timers_.pop();
    }
    {
      MutexLock lock(mutex_);
      if (round.empty() && tasks_.empty()) {
        const absl::Time next = timers_.empty() ? deadline : std::min(deadline, timers_.top().at);
        posted_.WaitFor(mutex_, next - now);
      }
      for (std::function<void()>& task : tasks_) round.push_back(std::move(task));
      tasks_.clear();
    }
    for (const std::function<void()>& task : round) task();
    round.clear();
  }
}

void EventLoop::Clear() {
  timers_ = {};
  MutexLock lock(mutex_);
  tasks_.clear();
}

void EventLoop::RunFor(absl::Duration time) {
  RunUntil([] { return false; }, time);
}

}  // namespace cairn
