// The checkpoints of a job as people see them: saves under way, requests for saves, and what stands in storage.
#ifndef CAIRN_COORDINATOR_JOB_CHECKPOINTS_H_
#define CAIRN_COORDINATOR_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/checkpoint_key.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/job/outcome_book.h"
#include "coordinator/job/recovery.h"
#include "coordinator/job/save_requests.h"
#include "coordinator/save/saves.h"

namespace cairn {

// Returns what stands in storage of an attempt, as people see it.
v1::Checkpoint ViewOfOutcome(const StoredAttempt& outcome, const JobContext& context);

// Looks at the parts of a job that it is given, and changes nothing. Not thread-safe.
class Checkpoints {
 public:
  // These must outlive it.
  Checkpoints(const Recovery& recovery, const OutcomeBook& outcomes, const Saves& saves, const SaveRequests& requests)
      : recovery_(recovery), outcomes_(outcomes), saves_(saves), requests_(requests) {}

  // Returns whether a request with this id has come before.
  bool Knows(const std::string& request_id) const;
  // The checkpoint that the key names. Nothing if the answer must wait for the recovery from storage. `known_epoch` is
  // the epoch of the coordinator that has told the caller of this request before, 0 for none.
  // NOT_FOUND (NOT_COMMITTED), or why storage cannot be read.
  std::optional<absl::StatusOr<v1::Checkpoint>> Find(const CheckpointKey& key, uint64_t known_epoch,
                                                     const JobContext& context) const;
  // The one that people are shown who ask about the job: what is under way, else what ended last. Nothing if neither
  // is remembered.
  std::optional<v1::Checkpoint> Shown(const JobContext& context, const ShownRanks& shown) const;
  // The ranks of that one which are worth a look.
  NoteworthyRanks Noteworthy(const JobContext& context) const;

 private:
  // Returns what has become of a request that an earlier coordinator took.
  static v1::Checkpoint ViewFromBefore(const CheckpointKey& key, uint64_t known_epoch, const JobContext& context);
  static absl::Status NotCommitted(const CheckpointKey& key, const JobContext& context);

  const Recovery& recovery_;
  const OutcomeBook& outcomes_;
  const Saves& saves_;
  const SaveRequests& requests_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_CHECKPOINTS_H_
