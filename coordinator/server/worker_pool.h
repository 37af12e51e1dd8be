// Threads for everything that may block: planning, storage, manifests.
#ifndef CAIRN_COORDINATOR_SERVER_WORKER_POOL_H_
#define CAIRN_COORDINATOR_SERVER_WORKER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class WorkerPool {
 public:
  explicit WorkerPool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  // Finishes what was submitted.
  ~WorkerPool() { Stop(); }

  // Ignored after Stop.
  void Submit(std::function<void()> work) {
    MutexLock lock(mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(work));
    changed_.NotifyOne();
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !stopped_) changed_.Wait(mutex_);
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  std::vector<std::thread> threads_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_WORKER_POOL_H_
