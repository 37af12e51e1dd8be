// Finds names that are parts of others: "model.layer.weight" is a part of "model.layer" and of "model".
#ifndef CAIRN_PLANNER_LAYOUT_NAME_PARTS_H_
#define CAIRN_PLANNER_LAYOUT_NAME_PARTS_H_

#include <string_view>
#include <vector>

namespace cairn {

// `names` must be sorted. The cost is logarithmic in their number.

// Returns whether one of the names is a part of `whole`.
bool HasPartsOf(const std::vector<std::string_view>& names, std::string_view whole);
// Returns whether `name` is a part of one of the names.
bool IsPartOfAny(const std::vector<std::string_view>& names, std::string_view name);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_NAME_PARTS_H_
