// Threads that run tasks which may block, in the order they were given.
#ifndef CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
#define CAIRN_COMMON_PROCESS_TASK_QUEUE_H_

#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace cairn {

// The threads of one object, whose tasks use it: Stop drops what has not begun and joins them, so that the object can
// end. WorkerPool is for the opposite: work of many jobs that is finished at the end, on threads that may hang in
// storage, are given up and cannot be joined. Neither can stand in for the other.
//
// Thread-safe. With one thread, tasks run one after the other.
class TaskQueue {
 public:
  explicit TaskQueue(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~TaskQueue() { Stop(); }

  // After Stop, tasks are dropped.
  void Post(std::function<void()> task) {
    MutexLock lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
    changed_.NotifyOne();
  }
  // Drops what has not begun and waits for what has. Idempotent; not to be called by a task.
  void Stop() {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      tasks_.clear();
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> task;
      {
        MutexLock lock(mutex_);
        while (tasks_.empty() && !stopped_) changed_.Wait(mutex_);
        if (stopped_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
