// Describes what stands in storage as people see it: the coordinator, and what reads storage itself, say the same.
#ifndef CAIRN_STORE_READ_LISTED_CHECKPOINT_H_
#define CAIRN_STORE_READ_LISTED_CHECKPOINT_H_

#include <string>

#include "cairn/v1/checkpoint_service.pb.h"
#include "store/read/step_record.h"

namespace cairn {

// Returns an attempt that has ended: COMMITTED, ABORTED, DAMAGED or DELETED.
v1::Checkpoint CheckpointOf(const std::string& job, const StoredAttempt& attempt);

// Returns a step for lists, with its pin and tags: COMMITTED, SUPERSEDED if `lineage` says so, or DAMAGED with its
// error; `step` must be committed or damaged.
v1::Checkpoint ListedCheckpoint(const std::string& job, const StepRecord& step, const JobLineage& lineage);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_LISTED_CHECKPOINT_H_
