// This rank's part in the job's group. It follows the coordinator's orders: starts a worker when a group is built, and
// ends the worker with the group.
#ifndef CAIRN_GPU_NCCL_GROUP_KEEPER_H_
#define CAIRN_GPU_NCCL_GROUP_KEEPER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"
#include "gpu/nccl/group_turn.h"
#include "gpu/share/worker_process.h"

namespace cairn {

// A group and its worker. Only the exchange that has taken `turn` may use `worker`, `steps` and `memories`.
struct GroupWorker {
  uint64_t number = 0;
  std::vector<uint32_t> ranks;  // ranks[i] is the job's rank that has rank i in the group
  // Returns the index in `ranks` of a rank of the job; ranks.size() if it is not in the group.
  uint32_t IndexOf(uint32_t rank) const {
    return static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  std::unique_ptr<WorkerProcess> worker;
  uint64_t steps = 0;     // how many steps the worker has been given
  uint64_t memories = 0;  // how many memories the worker has been given, including unmapped ones
  GroupTurn turn;
};

struct GroupKeeperOptions {
  uint32_t rank = 0;  // within the job
  uint32_t device = 0;
  WorkerProcessOptions worker;
  // Called on a thread of the keeper, without a lock, when the state for the coordinator has changed.
  std::function<void(std::vector<v1::GroupState>)> on_change;
};

// Thread-safe.
class GroupKeeper {
 public:
  explicit GroupKeeper(GroupKeeperOptions options) : options_(std::move(options)) {}
  ~GroupKeeper() { Stop(); }

  // Takes the current orders about groups. Does not block.
  void Follow(const std::vector<v1::GroupOrder>& orders);
  // Returns the group with this number if this rank has joined it and it is not broken; else null.
  std::shared_ptr<GroupWorker> Find(uint64_t number);
  // Does the same for any number.
  std::shared_ptr<GroupWorker> FindAny();
  // Returns why Find returns null: UNAVAILABLE (TRANSPORT_FAILED), with the ranks that are known to be at fault.
  absl::Status WhyNot(uint64_t number);
  // Must be called when an operation of the group has failed. Ends the worker and reports the failure to the
  // coordinator. Does not block.
  void Break(uint64_t number, const absl::Status& why);
  // Ends the worker and waits for its end. Idempotent.
  void Stop();

 private:
  // Runs on the queue's thread.
  void FollowNow(const std::optional<v1::GroupOrder>& order);
  absl::Status Begin(const v1::GroupOrder& order);
  absl::Status Join(const v1::GroupOrder& order);
  void EndNow();
  void Report(v1::GroupState::Phase phase);
  // Reports the group as broken and ends the worker.
  void ReportBroken(const absl::Status& why);

  const GroupKeeperOptions options_;
  Mutex mutex_;
  std::shared_ptr<GroupWorker> current_ ABSL_GUARDED_BY(mutex_);
  v1::GroupState state_ ABSL_GUARDED_BY(mutex_);
  v1::GroupState broken_ ABSL_GUARDED_BY(mutex_);  // the last broken group; the coordinator may have ended it since
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  TaskQueue queue_{1};  // one thread, so orders are executed in their order
};

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_GROUP_KEEPER_H_
