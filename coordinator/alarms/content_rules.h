// Rules on what is in a step: which tensors, and which numbers in them.
#ifndef CAIRN_COORDINATOR_ALARMS_CONTENT_RULES_H_
#define CAIRN_COORDINATOR_ALARMS_CONTENT_RULES_H_

#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// All append to `alarms`, and are pure.

// Moments of an optimizer that have become zeros (kZeroMoments).
void FindZeroMoments(const StatePairs& states, std::vector<Alarm>& alarms);
// NaN and infinities (kNonFinite).
void FindNonFinite(const StatePairs& states, std::vector<Alarm>& alarms);
// Shapes and dtypes that are others, within one run (kStateDrift).
void FindDrift(const StatePairs& states, std::vector<Alarm>& alarms);
// Experts, layers or stages that have become equal (kEqualTensors).
void FindEqualTensors(const StatePairs& states, std::vector<Alarm>& alarms);
// Names of one tied weight that have parted (kUntied).
void FindUntied(const StatePairs& states, std::vector<Alarm>& alarms);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_CONTENT_RULES_H_
