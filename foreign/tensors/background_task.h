// A thread beside the caller that does one task at a time.
#ifndef CAIRN_FOREIGN_TENSORS_BACKGROUND_TASK_H_
#define CAIRN_FOREIGN_TENSORS_BACKGROUND_TASK_H_

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/status.h"

namespace cairn {

// Not thread-safe. Its destructor waits for the task that is under way.
class BackgroundTask {
 public:
  // `what` is for errors: "to write an export".
  explicit BackgroundTask(std::string what) : what_(std::move(what)) {}
  ~BackgroundTask() { Wait().IgnoreError(); }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Waits for the previous task. If that one has failed, it returns its error; else it starts `task`. If the system
  // refuses a thread, the caller's thread does the task before Start returns.
  absl::Status Start(const std::function<absl::Status()>& task) {
    CAIRN_RETURN_IF_ERROR(Wait());
    auto thread = StartThread(what_, [this, task] { status_ = WithMemory(what_, task); });
    if (!thread.ok()) return task();
    thread_ = *std::move(thread);
    return absl::OkStatus();
  }

  // Waits for the task that is under way. Returns its error once.
  absl::Status Wait() {
    if (thread_.joinable()) thread_.join();
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  const std::string what_;
  std::thread thread_;
  absl::Status status_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_TENSORS_BACKGROUND_TASK_H_
