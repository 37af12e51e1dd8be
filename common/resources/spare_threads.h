// Threads of the process for short work that may block for a while, and whose end nobody has to wait for: a name is
// looked up, a connection is made, a file with a secret is read again.
#ifndef CAIRN_COMMON_RESOURCES_SPARE_THREADS_H_
#define CAIRN_COMMON_RESOURCES_SPARE_THREADS_H_

#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace cairn {

// A TaskQueue belongs to an object, and its Stop waits for its tasks. These threads belong to nobody: a task holds all
// that it uses, and may still run when the process ends. Thread-safe.
class SpareThreads {
 public:
  // More work waits until one of so many threads is free.
  static constexpr int kMost = 64;

  static SpareThreads& OfProcess();

  // Runs `work` soon. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refuses a thread, and none runs that would do it.
  absl::Status Run(std::function<void()> work);

 private:
  SpareThreads() = default;
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_SPARE_THREADS_H_
