// Decides when a call of people is answered that waits for news of a checkpoint or of a job.
#ifndef CAIRN_COORDINATOR_JOB_WAITING_CALLER_H_
#define CAIRN_COORDINATOR_JOB_WAITING_CALLER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.pb.h"

namespace cairn {

struct WaitingCaller {
  // The caller was last told this revision by the coordinator of this epoch; 0 if it was told nothing.
  uint64_t known_revision = 0;
  uint64_t known_epoch = 0;
  absl::Duration waited;  // since the call came
};

// Returns whether the caller is told of the checkpoint now, by the coordinator of `epoch`. Ends are told at once, mere
// progress at a pace that people can follow. A request that an earlier coordinator took is told only when it is certain
// what has become of it.
bool IsAnswered(const WaitingCaller& caller, const v1::Checkpoint& checkpoint, uint64_t epoch);

// The same of a job, whose revision is `revision`. A `known_revision` is one of this coordinator.
bool IsAnswered(const WaitingCaller& caller, uint64_t revision);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_WAITING_CALLER_H_
