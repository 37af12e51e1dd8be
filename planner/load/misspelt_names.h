// Says which names of a load are probably misspelt.
#ifndef CAIRN_PLANNER_LOAD_MISSPELT_NAMES_H_
#define CAIRN_PLANNER_LOAD_MISSPELT_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// Returns "; for 'optimiser', did you mean 'optimizer'?" for the first missing names that have a near one among
// `others`, as many as a message has room for. Empty if none has, or if there are so many others that the comparison
// would take long.
std::string MisspeltNames(const std::vector<std::string>& missing, const std::vector<std::string_view>& others);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_MISSPELT_NAMES_H_
