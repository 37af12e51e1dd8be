// Makes the errors that name ranks, the phase they are in, their last progress, and the last committed step.
#ifndef CAIRN_COORDINATOR_DECISION_RANK_ERROR_H_
#define CAIRN_COORDINATOR_DECISION_RANK_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "common/status/reason.h"
#include "coordinator/decision/job_context.h"

namespace cairn {

struct NamedRank {
  int rank = 0;
  v1::Phase::Value phase = v1::Phase::WAITING;
  std::string detail;  // "no progress for 5s, 3 of 8 MiB": the last progress of this rank
};

struct Operation {
  std::string_view kind;  // "save", "load" or "reshard"; the errors of the latter two name it: "demo (reshard): ..."
  std::optional<int64_t> step;
  uint32_t attempt = 0;
};

// Makes an error such as "demo@120 attempt 1: ranks 2, 3 are late in phase staging: rank 2 ...; last committed step
// 100". It names at most eight ranks, then a count. The phase is that of the rank that is farthest behind. The metadata
// has "job", "step", "attempt", "ranks", "phase" and "last_committed".
absl::Status ErrorNaming(Reason reason, const JobContext& context, const Operation& operation, std::string_view what,
                         std::vector<NamedRank> named_ranks);

// Returns whether the agent has not been heard for most of its lease, so nobody can know what its trainer does.
bool IsSilent(const Member& member, const JobContext& context);

// Says so in the detail of a rank, or else when its agent was last heard, if that is long ago: ", its agent has not
// answered for 8s", ", agent last heard 2s ago", "".
std::string SilenceOf(const Member& member, const JobContext& context);

// Says why nothing can be expected of a trainer that is halted(): "its trainer has been stopped for 12s (...)"; empty
// for another one.
std::string HaltOf(const Member& member, const JobContext& context);

// Returns those that hold up the others among ranks that are waited for, because their trainers have not come. A
// trainer that runs may itself wait for one that is halted, so if one of them is, those that run are left out. Ranks
// without an agent or a trainer, and silent ones, stay. Looks at each of them.
std::vector<int> HoldingUp(std::vector<int> ranks, const JobContext& context);
std::vector<NamedRank> HoldingUp(std::vector<NamedRank> named_ranks, const JobContext& context);
// Returns whether one of these ranks is halted.
bool AnyHalted(const std::vector<int>& ranks, const JobContext& context);

// Returns "3.00 MiB of 8.00 MiB", what a rank has reported of its work. Any numbers will do.
std::string BytesText(uint64_t done, uint64_t total);

// As ErrorNaming, for an error of the coordinator's own, without ranks.
absl::Status OperationError(Reason reason, const JobContext& context, const Operation& operation,
                            std::string_view what);

// Returns an error of planning or of storage with `operation`, as "demo (load)", before its message. A message that
// names a step of the job itself, as "demo@6 lacks 2 names" does, stays as it is.
absl::Status WithOperation(const absl::Status& status, const JobContext& context, const std::string& operation,
                           const ErrorMetadata& more);

// Returns the error with the root in its metadata, if the commands of its next action name it.
absl::Status WithRoot(const absl::Status& status, const JobContext& context);

// Says what is wrong with a rank's agent or trainer.
struct MemberFault {
  bool trainer = false;  // else the agent
  std::string detail;
};

// Collects such faults of an operation's ranks.
class MemberFaults {
 public:
  void Add(int rank, v1::Phase::Value phase, MemberFault fault);
  bool empty() const { return lost_.empty() && trainers_.empty(); }
  // Returns RANK_LOST, which names the ranks without their agents, else TRAINER_LOST. There must be a fault. RANK_LOST
  // also names ranks whose agents have been silent for most of their leases: what one machine or switch took with it is
  // lost together, though the leases end one after the other.
  absl::Status ToError(const JobContext& context, const Operation& operation) &&;

 private:
  std::vector<NamedRank> Silent(const JobContext& context) const;

  std::vector<NamedRank> lost_;
  std::vector<NamedRank> trainers_;
};

// Several ranks' own errors in one: the reason of the first, all messages as far as they fit. The metadata "ranks" are
// those that the errors say they are about ("ranks" of an error: the peer that did not answer), else who said them. Of
// an exchange over NCCL, in which all wait for each other, they are those whose workers are at fault, else those that
// do not say that they waited themselves.
struct RankError {
  int rank = 0;
  v1::Phase::Value phase = v1::Phase::WAITING;
  absl::Status error;
};
absl::Status ErrorFromRanks(const JobContext& context, const Operation& operation,
                            const std::vector<RankError>& errors);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_RANK_ERROR_H_
