// Runs tasks that may block on threads of its own, in the order in which they were given.
#ifndef CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
#define CAIRN_COMMON_PROCESS_TASK_QUEUE_H_

#include <deque>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace cairn {

// These threads belong to one object, which their tasks use: Stop drops the tasks that have not begun and joins the
// threads, so that the object can end. WorkerPool does the opposite: it finishes the work of many jobs at the end, on
// threads that may hang in storage and then cannot be joined. Neither can stand in for the other.
//
// Thread-safe. With one thread, tasks run one after the other.
class TaskQueue {
 public:
  // Starts fewer than `threads` (> 0) if the system refuses some of them. Throws std::system_error if it refuses all.
  explicit TaskQueue(int threads) {
    threads_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
    }
  }
  ~TaskQueue() { Stop(); }

  // Drops tasks that come after Stop.
  void Post(std::function<void()> task) {
    MutexLock lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
    changed_.NotifyOne();
  }
  // Drops tasks that have not begun and waits for the others. May be called again, also by several threads at once:
  // each call returns when no task runs any more. A task must not call it.
  void Stop() {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      tasks_.clear();
      changed_.NotifyAll();
    }
    MutexLock joining(join_mutex_);  // two threads must not join the same one
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
  Mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
