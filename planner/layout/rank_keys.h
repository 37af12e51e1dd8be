// Keys of dicts that name a rank ("dp_rank_3" of the loaders of torchtitan): each rank has its own, so those of ranks
// that are gone belong to nobody. The client takes the dicts of such keys apart, and knows them by the same rule
// (rank_keys.txt, which the tests of both read).
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
