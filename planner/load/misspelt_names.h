// Suggests corrections for names of a load that are probably misspelt.
#ifndef CAIRN_PLANNER_LOAD_MISSPELT_NAMES_H_
#define CAIRN_PLANNER_LOAD_MISSPELT_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// Returns "; for 'optimiser', did you mean 'optimizer'?" for missing names that resemble one of `others`; only the
// first ones, because a message must stay short. Empty if there are none, or if `others` are too many to compare.
std::string MisspeltNames(const std::vector<std::string>& missing, const std::vector<std::string_view>& others);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_MISSPELT_NAMES_H_
