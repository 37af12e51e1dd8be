// A small, fixed number of threads that help with many short calls which wait for storage.
#ifndef CAIRN_COMMON_RESOURCES_HELPER_THREADS_H_
#define CAIRN_COMMON_RESOURCES_HELPER_THREADS_H_

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace cairn {

// Whoever asks for help works too, and does all of it alone where no helper is free: because the system refuses
// threads, because others are helped, or because storage holds them. So storage that hangs holds those who called it
// and no more helpers than there are; nobody else waits for it, and it never makes another thread. Thread-safe.
class HelperThreads {
 public:
  // At most `most` helpers, which are started when they are first of use.
  explicit HelperThreads(int most) : most_(static_cast<size_t>(most)) {}
  // Joins the helpers. Nobody may be in ForEach.
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  struct Failed {
    size_t index;
    int error;
  };
  // Calls `one` with the numbers below `count`, on this thread and one helper more for each `share` of them, in
  // ascending order but for those that run at the same time, until one returns something else than 0. Returns the
  // smallest number that failed with what it returned; all below it were done. When this returns, no helper uses `one`
  // any more. `one` must not throw, and must not use the same helpers.
  std::optional<Failed> ForEach(size_t count, size_t share, const std::function<int(size_t)>& one);

 private:
  // On the stack of the thread that asks.
  struct Task {
    const std::function<void()>& work;
    size_t wanted;
    size_t running = 0;
  };
  void Run(size_t helpers, const std::function<void()>& work);
  void Help();
  Task* Wanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_;
  Mutex mutex_;
  CondVar changed_;
  std::list<Task*> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_HELPER_THREADS_H_
