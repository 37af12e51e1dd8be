// Tells what a launcher's command line means for this machine: how many ranks it starts, and how they meet.
#ifndef CAIRN_CLI_LOCAL_LAUNCHER_RANKS_H_
#define CAIRN_CLI_LOCAL_LAUNCHER_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Reads `--nproc-per-node` of torchrun (also `python -m torch.distributed.run`). A command without it starts one rank.
// INVALID_ARGUMENT (BAD_REQUEST): its value is no number, such as "gpu", so only the launcher itself knows.
absl::StatusOr<int> RanksOfLauncher(const std::vector<std::string>& command);

// Returns whether this is a torchrun whose ranks will look for each other by this machine's own name. They wait for
// ever where that name has no address.
bool MeetsByOwnName(const std::vector<std::string>& command);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_LAUNCHER_RANKS_H_
