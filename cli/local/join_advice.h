// What to type to run a second job on a root that a coordinator serves already.
#ifndef CAIRN_CLI_LOCAL_JOIN_ADVICE_H_
#define CAIRN_CLI_LOCAL_JOIN_ADVICE_H_

#include <string>
#include <vector>

#include "store/storage/root_lock.h"

namespace cairn::cli {

// Returns the next action of a person whose command `words`, a `cairn up` or `cairn run`, was refused because `holder`
// serves its root: the same command with the coordinator that runs, if it can be reached from here.
std::string HowToJoin(const RootHolder& holder, const std::vector<std::string>& words);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_JOIN_ADVICE_H_
