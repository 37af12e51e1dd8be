// Rules on how far tensors move.
#ifndef CAIRN_COORDINATOR_ALARMS_MOVEMENT_RULES_H_
#define CAIRN_COORDINATOR_ALARMS_MOVEMENT_RULES_H_

#include <cstddef>
#include <set>
#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Returns the numbers of the experts and routers that changed places on purpose. Pure.
std::set<size_t> MovedExperts(const StatePairs& states);

// Appends to `alarms` if weights moved farther than ever before, also from a long rest, if they, averages of them or
// running statistics have become all zeros, or if moments are a multiple of what they were (kJump). Pure.
void FindJumps(const StatePairs& states, std::vector<Alarm>& alarms);

// Appends to `alarms` if moments of an optimizer, averages of weights or running statistics are in each other's place
// (kWrongPlace): squared ones have negative elements, or they have moved far from what they were and are near to what
// those of another weight were. Pure.
void FindMisplacedMoments(const StatePairs& states, std::vector<Alarm>& alarms);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_MOVEMENT_RULES_H_
