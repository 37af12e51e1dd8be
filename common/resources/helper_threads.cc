#include "common/resources/helper_threads.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/resources/thread.h"

namespace cairn {

HelperThreads::~HelperThreads() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    threads = std::move(threads_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
}

HelperThreads::Task* HelperThreads::Wanted() {
  const auto found = std::find_if(tasks_.begin(), tasks_.end(), [](const Task* task) { return task->wanted > 0; });
  return found == tasks_.end() ? nullptr : *found;
}

void HelperThreads::Help() {
  MutexLock lock(mutex_);
  for (;;) {
    Task* task = nullptr;
    while ((task = Wanted()) == nullptr && !stopped_) changed_.Wait(mutex_);
    if (task == nullptr) return;
    --task->wanted;
    ++task->running;
    mutex_.Unlock();
    task->work();
    mutex_.Lock();
    if (--task->running == 0) changed_.NotifyAll();
  }
}

void HelperThreads::Run(size_t helpers, const std::function<void()>& work) {
  if (helpers == 0) return work();
  Task task{work, helpers};
  {
    MutexLock lock(mutex_);
    while (threads_.size() < std::min(most_, helpers)) {
      auto thread = StartThread("to help", [this] { Help(); });
      if (!thread.ok()) break;
      threads_.push_back(*std::move(thread));
    }
    tasks_.push_back(&task);
    changed_.NotifyAll();
  }
  work();
  MutexLock lock(mutex_);
  tasks_.remove(&task);
  while (task.running > 0) changed_.Wait(mutex_);
}

std::optional<HelperThreads::Failed> HelperThreads::ForEach(size_t count, size_t share,
                                                            const std::function<int(size_t)>& one) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> stop = false;
  Mutex mutex;
  std::optional<Failed> first;
  Run(std::min(most_, count / share), [&] {
    // Numbers are taken in order, and what was taken is done: so when one has failed, all below it are done.
    while (!stop) {
      const size_t i = next++;
      if (i >= count) return;
      const int error = one(i);
      if (error == 0) continue;
      stop = true;
      MutexLock lock(mutex);
      if (!first.has_value() || i < first->index) first = {i, error};
    }
  });
  return first;
}

}  // namespace cairn
