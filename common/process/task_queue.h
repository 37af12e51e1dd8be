// Runs tasks that may block on threads of its own, in the order in which they were given.
#ifndef CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
#define CAIRN_COMMON_PROCESS_TASK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace cairn {

// These threads belong to one object, which their tasks use: Stop drops the tasks that have not begun and joins the
// threads, so that the object can end. WorkerPool does the opposite: it finishes the work of many jobs at the end, on
// threads that may hang in storage and then cannot be joined. Neither can stand in for the other.
//
// Thread-safe. With one thread, tasks run one after the other.
class TaskQueue {
 public:
  // Starts one thread, and others, up to `most` (> 0), when a task finds all of them busy. If the system refuses one,
  // those that run do its tasks. Throws std::system_error if it refuses the first.
  explicit TaskQueue(int most);
  ~TaskQueue() { Stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // Drops tasks that come after Stop.
  void Post(std::function<void()> task);
  // Drops tasks that have not begun and waits for the others. May be called again, also by several threads at once:
  // each call returns when no task runs any more. A task must not call it.
  void Stop();

 private:
  void Run();

  const size_t most_;
  Mutex join_mutex_;  // two threads must not join the same one; taken before `mutex_`
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// RunInBackground uses so many threads at most; more work waits.
inline constexpr int kMostInBackground = 64;

// Runs short work that may block for a while, and whose end nobody has to wait for, by a queue of the process: a name
// is looked up, a connection is made, a file with a secret is read again. The work holds all that it uses, and may
// still run when the process ends. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refuses a thread, and none runs that
// would do it.
absl::Status RunInBackground(std::function<void()> work);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
