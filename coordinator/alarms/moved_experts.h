// Finds experts that changed places on purpose, as they do to share the load among ranks.
#ifndef CAIRN_COORDINATOR_ALARMS_MOVED_EXPERTS_H_
#define CAIRN_COORDINATOR_ALARMS_MOVED_EXPERTS_H_

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Returns which of the tensors `alike` was where tensor `i` is now, which is far from where it was itself; nothing if
// none of them was. Pure.
std::optional<size_t> CameFrom(const StatePairs& states, size_t i, const std::vector<size_t>& alike);

// Returns the numbers of the weights of experts that were another expert's, and of what chose among them (their
// router), of those modules in which both moved: then each token still goes to its expert. A wrong index in a save or
// load moves the experts alone. Routers are among `weights`, all that are judged; `usual` is how much farther than ever
// before the one in the middle moved. Pure.
std::set<size_t> MovedExperts(const StatePairs& states, const std::vector<size_t>& weights, double usual);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_MOVED_EXPERTS_H_
