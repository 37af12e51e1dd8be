// Tells how many ranks a launcher's command line starts on this machine.
#ifndef CAIRN_CLI_LAUNCHER_RANKS_H_
#define CAIRN_CLI_LAUNCHER_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Reads `--nproc-per-node` of torchrun (also `python -m torch.distributed.run`). A command without it starts one rank.
// INVALID_ARGUMENT (BAD_REQUEST): its value is no number, such as "gpu", so only the launcher itself knows.
absl::StatusOr<int> RanksOfLauncher(const std::vector<std::string>& command);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LAUNCHER_RANKS_H_
