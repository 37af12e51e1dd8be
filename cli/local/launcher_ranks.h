// Reads a launcher's command line: how many ranks it starts on this machine, and how the ranks find each other.
#ifndef CAIRN_CLI_LOCAL_LAUNCHER_RANKS_H_
#define CAIRN_CLI_LOCAL_LAUNCHER_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Reads `--nproc-per-node` of torchrun (also `python -m torch.distributed.run`). A command without it starts one rank.
// INVALID_ARGUMENT (BAD_REQUEST): its value is no number, for example "gpu", so only the launcher knows the number of
// ranks.
absl::StatusOr<int> RanksOfLauncher(const std::vector<std::string>& command);

// Returns whether this is a torchrun whose ranks find each other by this machine's name. They hang if it has no
// address.
bool MeetsByOwnName(const std::vector<std::string>& command);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_LAUNCHER_RANKS_H_
