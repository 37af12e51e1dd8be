// Notices that a trainer's process has ended, by a pidfd: at once, also by SIGKILL.
#ifndef CAIRN_AGENT_LOCAL_TRAINER_WATCH_H_
#define CAIRN_AGENT_LOCAL_TRAINER_WATCH_H_

#include <sys/types.h>

#include <functional>
#include <thread>

#include "common/base/mutex.h"
#include "common/storage/unique_fd.h"

namespace cairn {

// Thread-safe.
class TrainerWatch {
 public:
  // `on_end` gets the incarnation of a trainer that has ended, on the watch's own thread.
  explicit TrainerWatch(std::function<void(uint64_t)> on_end);
  ~TrainerWatch();

  // Watches this process instead of the one before. False if it cannot be watched (it lives in another pid namespace):
  // then its end shows only by the timeouts of what it had begun.
  bool Watch(uint64_t incarnation, pid_t pid);
  void Clear();

 private:
  void Run();
  void Wake();

  const std::function<void(uint64_t)> on_end_;
  const UniqueFd wake_;  // an eventfd
  Mutex mutex_;
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  UniqueFd process_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_LOCAL_TRAINER_WATCH_H_
