// Names tensors and ranks for people. Names that differ in numbers alone are one group.
#ifndef CAIRN_COORDINATOR_ALARMS_NAME_GROUPS_H_
#define CAIRN_COORDINATOR_ALARMS_NAME_GROUPS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "coordinator/alarms/state_summary.h"

namespace cairn {

// Returns for example "layers.*.weight (24), head.weight and 3 more kinds". Of at most four groups, the largest first.
std::string NameGroups(const std::vector<std::string>& names);

// Returns the groups and who wrote these tensors, for example "layers.*.weight (24), written by ranks 0, 1", if the
// state has several ranks. Names that are not among its tensors' have no ranks.
std::string NamesAndRanks(const StateSummary& state, const std::vector<std::string>& names);

// Returns for example "rank 3" or "ranks 0, 1 and 14 more". Of at most eight ranks. `ranks` must not be empty.
std::string RankNames(const std::set<int32_t>& ranks);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_NAME_GROUPS_H_
