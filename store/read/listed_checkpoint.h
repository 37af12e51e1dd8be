// Describes a step for lists of checkpoints, so that the lists of the coordinator and of the commands show the same.
#ifndef CAIRN_STORE_READ_LISTED_CHECKPOINT_H_
#define CAIRN_STORE_READ_LISTED_CHECKPOINT_H_

#include <string>

#include "cairn/v1/checkpoint_service.pb.h"
#include "store/read/checkpoint_store.h"

namespace cairn {

// Returns COMMITTED, SUPERSEDED if `lineage` says so, or DAMAGED with its error; `step` must be committed or damaged.
v1::Checkpoint ListedCheckpoint(const std::string& job, const StepRecord& step, const JobLineage& lineage);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_LISTED_CHECKPOINT_H_
