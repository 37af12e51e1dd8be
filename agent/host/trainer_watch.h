// Notices that trainers' processes have ended: at once, also by SIGKILL. A pidfd says so only when the last thread is
// gone and with it the process's memory, so what a trainer had mapped is written by nobody from then on. Where there is
// no pidfd, the end of the trainer's connection shows that it is gone, but not that its memory is.
#ifndef CAIRN_AGENT_HOST_TRAINER_WATCH_H_
#define CAIRN_AGENT_HOST_TRAINER_WATCH_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "agent/session/slab_use.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Thread-safe.
class TrainerWatch {
 public:
  // `on_end` gets the incarnation of a trainer that has ended (kEnded), or whose connection has (kDetached), on the
  // watch's own thread.
  explicit TrainerWatch(std::function<void(uint64_t, TrainerEnd)> on_end);
  ~TrainerWatch();

  // False if the process had no descriptor left for it. Then it watches nothing.
  bool works() const { return wake_.valid(); }
  // Watches the process of a trainer, a pidfd, in place of what it watched for that trainer before. A trainer whose
  // place another one has taken may live on, so it is watched too. The newest 16 trainers are watched; of others that
  // still live no end is told.
  void WatchProcess(uint64_t incarnation, std::shared_ptr<const UniqueFd> process);
  // Watches a socket of the trainer: for one that has no pidfd.
  void WatchConnection(uint64_t incarnation, std::shared_ptr<const UniqueFd> connection);
  // Nobody needs to know the end of this one any more.
  void Forget(uint64_t incarnation);

 private:
  struct Watched {
    uint64_t incarnation = 0;
    std::shared_ptr<const UniqueFd> fd;
    TrainerEnd end = TrainerEnd::kEnded;
  };

  void Add(Watched watched);
  void Run();
  void Wake();

  const std::function<void(uint64_t, TrainerEnd)> on_end_;
  const UniqueFd wake_;  // an eventfd
  Mutex mutex_;
  std::deque<Watched> watched_ ABSL_GUARDED_BY(mutex_);  // oldest first
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_HOST_TRAINER_WATCH_H_
