// Waits until a coordinator has removed the files of deleted checkpoints.
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

// The removals of all jobs that are not done yet, counted in checkpoints.
struct Removals {
  uint32_t due = 0;  // waiting; does not include `refused`
  uint32_t refused = 0;
  absl::Duration delay;
};
Removals RemovalsOf(const std::vector<v1::JobSummary>& jobs);
// Says what the command waits for, and how long: "waiting for the files of 3 deleted checkpoints to be removed ...".
std::string WaitingText(const Removals& removals);

// Waits until the coordinator of `context` has removed all files that it can remove, or `give_up` returns true. `say`
// gets lines for people: what the command waits for, and which files remain. Returns OK if no files remain or if
// `give_up` ended the wait. STORAGE_ERROR: storage refused to remove files. Else the error of a coordinator that does
// not answer any more.
absl::Status AwaitRemovals(const CommandContext& context, const std::function<bool()>& give_up,
                           const std::function<void(const std::string&)>& say);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_REMOVALS_H_
