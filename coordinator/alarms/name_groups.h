// Names tensors for people: names that differ in numbers alone are one group.
#ifndef CAIRN_COORDINATOR_ALARMS_NAME_GROUPS_H_
#define CAIRN_COORDINATOR_ALARMS_NAME_GROUPS_H_

#include <string>
#include <vector>

namespace cairn {

// Returns for example "layers.*.weight (24), head.weight and 3 more kinds". Of at most four groups, the largest first.
std::string NameGroups(const std::vector<std::string>& names);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_NAME_GROUPS_H_
