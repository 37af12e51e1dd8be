// Notices that trainers' processes have ended, by pidfds: at once, also by SIGKILL. A pidfd says so only when the last
// thread is gone and with it the process's memory, so what a trainer had mapped is written by nobody from then on.
#ifndef CAIRN_AGENT_SESSION_TRAINER_WATCH_H_
#define CAIRN_AGENT_SESSION_TRAINER_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Thread-safe.
class TrainerWatch {
 public:
  // `on_end` gets the incarnation of a trainer that has ended, on the watch's own thread.
  explicit TrainerWatch(std::function<void(uint64_t)> on_end);
  ~TrainerWatch();

  // Watches this process too: that of a trainer whose place another one has taken may live on. False if it cannot be
  // watched (it lives in another pid namespace): then its end is never told and shows only by the timeouts of what it
  // had begun. The processes of the newest trainers are watched, 16 of them; of others that still live no end is told
  // either.
  bool Watch(uint64_t incarnation, pid_t pid);
  // Nobody needs to know the end of this one any more.
  void Forget(uint64_t incarnation);

 private:
  struct Watched {
    uint64_t incarnation = 0;
    std::shared_ptr<const UniqueFd> process;
  };

  void Run();
  void Wake();

  const std::function<void(uint64_t)> on_end_;
  const UniqueFd wake_;  // an eventfd
  Mutex mutex_;
  std::deque<Watched> watched_ ABSL_GUARDED_BY(mutex_);  // oldest first
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_TRAINER_WATCH_H_
