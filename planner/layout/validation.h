// Checks that the shards of a job hold every tensor exactly once, apart from replicas.
#ifndef CAIRN_PLANNER_LAYOUT_VALIDATION_H_
#define CAIRN_PLANNER_LAYOUT_VALIDATION_H_

#include <cstdint>

#include "common/status/fault.h"
#include "planner/layout/layout_set.h"

namespace cairn {

// Adds SHARD_GAP or SHARD_OVERLAP for each region that no shard or several different shards hold, for every tensor that
// is not disputed; adds EMPTY_LAYOUT if there is nothing at all. Flat pieces that tile their box count as that box.
// Other flat pieces count as the boxes that they consist of, so one tensor may mix flat pieces and boxes. The cost is
// one call of TilesExactly for each tensor.
void ValidateTiling(const LayoutSet& set, FaultList& faults);

// Returns whether the distinct shards of a tensor hold each of its elements exactly once.
bool IsTiled(const LayoutSet& set, uint32_t tensor);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_VALIDATION_H_
