// This rank's part of the job's group: follows the coordinator's orders, with a worker that is started when a group is
// built and ended when it is over.
#ifndef CAIRN_GPU_NCCL_GROUP_KEEPER_H_
#define CAIRN_GPU_NCCL_GROUP_KEEPER_H_

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

// A group that all ranks have joined. `worker`, `steps` and `memories` are for the exchange that has the turn.
struct GroupWorker {
  uint64_t number = 0;
  std::vector<uint32_t> ranks;  // of the job, by rank of the group
  std::unique_ptr<WorkerProcess> worker;
  uint64_t steps = 0;     // that the worker was given
  uint64_t memories = 0;  // that the worker was given, and has perhaps given back
  GroupTurn turn;
};

struct GroupKeeperOptions {
  uint32_t rank = 0;  // within the job
  uint32_t device = 0;
  WorkerProcessOptions worker;
  // Called from a thread of the keeper, without a lock, when what the coordinator is told has changed.
  std::function<void(std::vector<v1::GroupState>)> on_change;
};

// Thread-safe.
class GroupKeeper {
 public:
  explicit GroupKeeper(GroupKeeperOptions options) : options_(std::move(options)) {}
  ~GroupKeeper() { Stop(); }

  // Takes all orders about groups. Does not wait.
  void Follow(const std::vector<v1::GroupOrder>& orders);
  // The group, if this rank has joined it and it is not broken; else null.
  std::shared_ptr<GroupWorker> Find(uint64_t number);
  // The same of whatever group there is.
  std::shared_ptr<GroupWorker> FindAny();
  // Returns why Find has nothing. UNAVAILABLE (TRANSPORT_FAILED), with the ranks that are known to be at fault.
  absl::Status WhyNot(uint64_t number);
  // Is called when an operation in the group has failed: ends the worker, and tells the coordinator. Does not wait.
  void Break(uint64_t number, const absl::Status& why);
  // Ends the worker, and waits. Idempotent.
  void Stop();

 private:
  // Runs on the queue's thread.
  void FollowNow(const std::optional<v1::GroupOrder>& order);
  absl::Status Begin(const v1::GroupOrder& order);
  absl::Status Join(const v1::GroupOrder& order);
  void EndNow();
  void Report(v1::GroupState::Phase phase);
  // Ends the worker too.
  void ReportBroken(const absl::Status& why);

  const GroupKeeperOptions options_;
  Mutex mutex_;
  std::shared_ptr<GroupWorker> current_ ABSL_GUARDED_BY(mutex_);
  v1::GroupState state_ ABSL_GUARDED_BY(mutex_);
  v1::GroupState broken_ ABSL_GUARDED_BY(mutex_);  // the last one; the coordinator may have ended it since
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  TaskQueue queue_{1};  // in order
};

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_GROUP_KEEPER_H_
