// Keys of dicts that name a rank, such as "dp_rank_3" in torchtitan's loaders. Each rank has a key of its own, so the
// key of a rank that does not exist any more belongs to nobody. The client stores each such key as an object of its
// own, and finds the keys by the same rule (rank_keys.txt, which the tests of both sides read).
#ifndef CAIRN_PLANNER_LAYOUT_RANK_KEYS_H_
#define CAIRN_PLANNER_LAYOUT_RANK_KEYS_H_

#include <string_view>
#include <vector>

namespace cairn {

// Returns whether a key within `name` names a rank ("loader.dp_rank_3.at"), and one of the sorted `names` has this key
// of another rank.
bool IsOfAnotherRank(const std::vector<std::string_view>& names, std::string_view name);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_RANK_KEYS_H_
