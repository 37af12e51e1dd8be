// Runs tasks that may block, on threads of its own. Tasks begin in the order in which they were posted.
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

// The owner of the queue is an object that the tasks use: Stop drops the tasks that have not begun and joins the
// threads, so that the owner can be destroyed. The coordinator's WorkerPool does the opposite: it finishes the tasks of
// many jobs, on threads that may hang in storage and then cannot be joined.
//
// Thread-safe. With one thread, tasks run one after the other.
class TaskQueue {
 public:
  // Starts one thread. Starts another one, up to `most` (> 0) in all, when a task is posted while all are busy. If the
  // system refuses a further thread, the existing ones do its tasks. Throws std::system_error if the system refuses the
  // first thread.
  explicit TaskQueue(int most);
  ~TaskQueue() { Stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // Adds a task. Tasks that are posted after Stop are dropped.
  void Post(std::function<void()> task);
  // Drops tasks that have not begun, and waits for those that have. May be called several times, also by several
  // threads at once: each call returns when no task runs any more. A task must not call it.
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

// The maximum number of threads of RunInBackground. Further work waits.
inline constexpr int kMostInBackground = 64;

// Runs short work that may block, on a queue of the whole process. Nobody waits for the work. Examples: looking up a
// name, making a connection, reading a file with a secret again. The work must own everything that it uses, because it
// may still run when the process ends. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused memory or the queue's
// first thread.
absl::Status RunInBackground(std::function<void()> work);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_TASK_QUEUE_H_
