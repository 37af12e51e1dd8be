// Tells a user how to run a second job on a root that already has a coordinator.
#ifndef CAIRN_CLI_LOCAL_JOIN_ADVICE_H_
#define CAIRN_CLI_LOCAL_JOIN_ADVICE_H_

#include <string>
#include <vector>

#include "store/storage/root_lock.h"

namespace cairn::cli {

// Returns the next action for a `cairn up` or `cairn run` that was refused because `holder` serves its root. `words`:
// the refused command line. If the running coordinator can be reached from here, the next action is the same command
// with the address of that coordinator.
std::string HowToJoin(const RootHolder& holder, const std::vector<std::string>& words);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_JOIN_ADVICE_H_
