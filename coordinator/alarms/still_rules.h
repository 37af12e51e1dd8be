// Rules on what stands still though it should not: the whole step, what some ranks wrote, a part of the state.
#ifndef CAIRN_COORDINATOR_ALARMS_STILL_RULES_H_
#define CAIRN_COORDINATOR_ALARMS_STILL_RULES_H_

#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Both append to `alarms`, and are pure.

// The step is the one before it again (kSameStep).
void FindSameStep(const StatePairs& states, std::vector<Alarm>& alarms);
// The step is not the one before it: ranks, weights, averages or an optimizer's state that stand still while others go
// on (kStaleRank, kFrozenOptimizer, kStaleTensor), and bytes of two saves before (kReturned).
void FindStaleState(const StatePairs& states, std::vector<Alarm>& alarms);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_STILL_RULES_H_
