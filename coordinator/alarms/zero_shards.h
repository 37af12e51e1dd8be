// Finds ranks that wrote nothing but zeros of a part of the state.
#ifndef CAIRN_COORDINATOR_ALARMS_ZERO_SHARDS_H_
#define CAIRN_COORDINATOR_ALARMS_ZERO_SHARDS_H_

#include <string>
#include <vector>

#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Returns, of the tensors of `part` (by tensor), which ranks' shards are all zeros while none was at the step before,
// for a message: "all that rank 3 wrote of these is zeros: layers.*.weight (8)". Empty if there is no such rank, if all
// ranks are such, or if the ranks have other shards than before. Small shards and whole tensors do not
// count, and one shard alone tells nothing. Pure.
std::string ZeroShards(const StatePairs& states, const std::vector<bool>& part);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_ZERO_SHARDS_H_
