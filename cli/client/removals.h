// Waits for the files that a coordinator still has to remove, of checkpoints that were deleted.
#ifndef CAIRN_CLI_CLIENT_REMOVALS_H_
#define CAIRN_CLI_CLIENT_REMOVALS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "cli/base/command.h"

namespace cairn::cli {

// Adds up the removals of all jobs.
struct Removals {
  uint32_t due = 0;  // without those that storage has refused
  uint32_t refused = 0;
  absl::Duration delay;
};
Removals RemovalsOf(const std::vector<v1::JobSummary>& jobs);
// Says what is waited for, and how long: "waiting for the files of 3 deleted checkpoints to be removed ...".
std::string WaitingText(const Removals& removals);

// Waits until the coordinator that `context` names has removed all that it can, or `give_up` returns true. `say` gets
// the lines for a person: what is waited for, if that is anything, and what stays. Returns why files stay that nobody
// removes now: STORAGE_ERROR if storage has refused to remove them, or the error of the coordinator that does not
// answer any more. OK if nothing stays, or if the wait was given up.
absl::Status AwaitRemovals(const CommandContext& context, const std::function<bool()>& give_up,
                           const std::function<void(const std::string&)>& say);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_REMOVALS_H_
