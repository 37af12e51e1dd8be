// Finds names that a save lacks although the checkpoint on which it builds has them.
#ifndef CAIRN_PLANNER_SAVE_DROPPED_NAMES_H_
#define CAIRN_PLANNER_SAVE_DROPPED_NAMES_H_

#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "planner/save/save_plan.h"

namespace cairn {

// Returns the names of tensors, objects and aliases that `before` has and the plan lacks, sorted. These do not count as
// dropped: * An object that is a part of one of the plan's, or of which the plan has parts: a dict without tensors is
// one value,
//   and one with tensors has a name for each of its values ("progress" and "progress.done").
// * An object that only ranks had of their own that are not there any more.
// * An object whose key names a rank, if the plan has the same key of another rank ("loader.dp_rank_3" and
//   "loader.dp_rank_0"): each rank has its own, and there may be fewer ranks now.
// * An object that Cairn's own client has added ("cairn.description.optimizer"), which the program does not know.
// * What an optimizer keeps for a parameter that had a number, if the plan names its parameters
//   ("optimizer.state.0.exp_avg" and "optimizer.state.weight.exp_avg").
std::vector<std::string> DroppedNames(const Manifest& before, const SavePlan& plan);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_DROPPED_NAMES_H_
