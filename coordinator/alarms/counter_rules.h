// Rules on what counts.
#ifndef CAIRN_COORDINATOR_ALARMS_COUNTER_RULES_H_
#define CAIRN_COORDINATOR_ALARMS_COUNTER_RULES_H_

#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Appends to `alarms`, of a step that is not the one before it again: objects and counts that stand still, and counts
// that went back or far ahead (kCounterStopped). Pure.
void FindStoppedCounters(const StatePairs& states, std::vector<Alarm>& alarms);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_COUNTER_RULES_H_
