#include "common/process/task_queue.h"

#include <utility>

#include "common/resources/memory.h"
#include "common/resources/thread.h"

namespace cairn {

TaskQueue::TaskQueue(int most) : most_(static_cast<size_t>(most)) {
  MutexLock lock(mutex_);
  threads_.emplace_back([this] { Run(); });
}

void TaskQueue::Post(std::function<void()> task) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_.size() < most_) {
    if (auto thread = StartThread("for another task", [this] { Run(); }); thread.ok()) {
      threads_.push_back(*std::move(thread));
    }
  }
  changed_.NotifyOne();
}

void TaskQueue::Stop() {
  MutexLock joining(join_mutex_);
  std::vector<std::thread> threads;
  std::deque<std::function<void()>> dropped;  // destroyed after the lock is released
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
    dropped.swap(tasks_);
    changed_.NotifyAll();
  }
  dropped.clear();
  for (std::thread& thread : threads) thread.join();
}

void TaskQueue::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (tasks_.empty() && !stopped_) changed_.Wait(mutex_);
      --idle_;
      if (stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

absl::Status RunInBackground(std::function<void()> work) {
  return WithMemory("for work in the background", [&] {
    static TaskQueue& queue = *new TaskQueue(kMostInBackground);  // its threads may outlive main
    queue.Post(std::move(work));
    return absl::OkStatus();
  });
}

}  // namespace cairn
