// Decides how shards move in one save between ranks that share no memory: over the host transport, or over NCCL.
//
//   nothing moves so --------------------------> none
//   planned --> undecided --all have staged--> group --it breaks--> host
//        \____________\_______________________________________/
//
// A save is not lost with its group: ranks that lack bytes then get them over the host transport, unless an agent has
// --nccl-saves=require.
#ifndef CAIRN_COORDINATOR_SAVE_SAVE_EXCHANGE_H_
#define CAIRN_COORDINATOR_SAVE_SAVE_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/core_action.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/exchange/groups.h"

namespace cairn {

// It is a function of calls and `context.now`. Errors: FAILED_PRECONDITION (NCCL_UNAVAILABLE): NCCL is required, and
// cannot be had; the message says why. Not thread-safe.
class SaveExchange {
 public:
  // The save is planned, and all ranks have begun it. `inherited`: ranks may write already, by the word of an earlier
  // coordinator.
  absl::Status Begin(int64_t step, const PlannedSave& plan, bool inherited, const JobContext& context);
  // Does what follows from the group and the time.
  absl::Status Advance(bool all_staged, const JobContext& context);
  // The save has been committed.
  void Finish(const JobContext& context);
  // It is aborted. If ranks may be in the midst of the exchange, the group is given up.
  void GiveUp(const absl::Status& why, const JobContext& context);

  // Ranks that take part hold their bytes until all have staged and the group is complete.
  ExchangeWay::Kind kind() const { return way_.kind; }
  bool undecided() const { return way_.kind == ExchangeWay::Kind::kUndecided; }
  // Returns whether this is the error of a rank that lacks bytes of the exchange, and may not get them another way.
  static bool Lacks(const absl::Status& error);
  // Returns whose fault it is that the exchange has failed, by what ranks have said of the group's end; nothing if none
  // has.
  std::optional<GroupFault> Fault(const JobContext& context) const;
  bool Has(int rank) const { return peers_.contains(static_cast<uint32_t>(rank)); }
  // Tells a rank, if it takes part.
  void AddTo(int rank, v1::SaveOrder& order) const;
  // Says how shards go; nothing while it is not decided, and if NCCL is not wanted.
  void Describe(v1::Checkpoint& view) const;

 private:
  absl::Status Take(ExchangeWay way, const JobContext& context);
  v1::Transport transport() const;
  // Returns the name by which it has its group.
  std::string user() const;

  int64_t step_ = 0;
  ExchangeWay way_;
  std::map<uint32_t, std::vector<uint32_t>> peers_;  // by rank; both ascend
  uint64_t group_ = 0;                               // also after it has broken
  uint64_t window_bytes_ = 0;
  bool required_ = false;
  // The group of an exchange that goes on has been gone since then.
  absl::Time group_lost_ = absl::InfiniteFuture();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_SAVE_EXCHANGE_H_
