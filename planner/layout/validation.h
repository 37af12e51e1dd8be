// Checks that the shards of a job hold every tensor exactly once, replicas aside.
#ifndef CAIRN_PLANNER_LAYOUT_VALIDATION_H_
#define CAIRN_PLANNER_LAYOUT_VALIDATION_H_

#include "common/status/fault.h"
#include "planner/layout/layout_set.h"

namespace cairn {

// Adds SHARD_GAP and SHARD_OVERLAP for each region that is held by no shard or by several different ones, for every
// tensor that is not disputed, and EMPTY_LAYOUT if there is nothing at all. Flat pieces that tile their box stand for
// it; others count by the boxes that they consist of, so flat pieces and boxes of one tensor may be mixed freely.
// Cost: that of TilesExactly for each tensor.
void ValidateTiling(const LayoutSet& set, FaultList& faults);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_VALIDATION_H_
