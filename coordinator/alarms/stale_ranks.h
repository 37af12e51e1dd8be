// Finds ranks that wrote what they wrote before, while others went on.
#ifndef CAIRN_COORDINATOR_ALARMS_STALE_RANKS_H_
#define CAIRN_COORDINATOR_ALARMS_STALE_RANKS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Appends to `alarms` if all that some ranks wrote is old, or all weights, all moments, all averages or all running
// statistics that they wrote of tensors that have changed elsewhere (kStaleRank). Returns the numbers of these tensors.
// Pure.
std::set<uint32_t> FindStaleRanks(const StatePairs& states, std::vector<Alarm>& alarms);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_STALE_RANKS_H_
