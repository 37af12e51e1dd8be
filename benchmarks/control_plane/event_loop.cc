#include "benchmarks/control_plane/event_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace cairn {

absl::Time SteadyNow() { return Clock::Real().SteadyNow(); }

void EventLoop::Post(Owner owner, std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back({owner, std::move(task)});
  if (tasks_.size() == 1) posted_.NotifyAll();
}

void EventLoop::After(Owner owner, absl::Duration delay, std::function<void()> task) {
  timers_.emplace(SteadyNow() + delay, Task{owner, std::move(task)});
}

bool EventLoop::RunUntil(const std::function<bool()>& done, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  std::vector<Task> round;
  for (;;) {
    if (done()) return true;
    const absl::Time now = SteadyNow();
    if (now >= deadline) return false;
    while (!timers_.empty() && timers_.begin()->first <= now) {
      round.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    {
      MutexLock lock(mutex_);
      if (round.empty() && tasks_.empty()) {
        const absl::Time next = timers_.empty() ? deadline : std::min(deadline, timers_.begin()->first);
        posted_.WaitFor(mutex_, next - now);
      }
      for (Task& task : tasks_) round.push_back(std::move(task));
      tasks_.clear();
    }
    for (const Task& task : round) task.run();
    round.clear();
  }
}

void EventLoop::Forget(Owner owner) {
  const auto owned = [owner](const Task& task) { return task.owner == owner; };
  std::erase_if(timers_, [&](const auto& timer) { return owned(timer.second); });
  MutexLock lock(mutex_);
  std::erase_if(tasks_, owned);
}

void EventLoop::RunFor(absl::Duration time) {
  RunUntil([] { return false; }, time);
}

}  // namespace cairn
