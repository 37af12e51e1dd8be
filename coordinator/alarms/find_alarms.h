// Finds what looks wrong in a step's state, by comparing it with the step on which it builds. docs/trust.md has the
// rules for people.
//
// A rule speaks only of what this training has never shown before: each tensor has a history of how it changes, which
// stands in the manifest. So a frozen tensor, an expert without tokens or a learning rate of 0 raise no alarm.
#ifndef CAIRN_COORDINATOR_ALARMS_FIND_ALARMS_H_
#define CAIRN_COORDINATOR_ALARMS_FIND_ALARMS_H_

#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/state_summary.h"

namespace cairn {

// Returns the alarms, one of a kind at most, and sets the histories of `now`. A message names the tensors by their
// patterns with counts, the ranks that wrote them, and both steps. `before` is the newest committed step on
// which the training builds; null if there is none. Pure. Takes O(size of the state): about 100 ns for a shard, and
// some microseconds for a tensor.
std::vector<Alarm> FindAlarms(const StateSummary* before, StateSummary& now);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_FIND_ALARMS_H_
