// Shows the jobs of a coordinator or of a root.
#ifndef CAIRN_CLI_VIEWS_JOBS_VIEW_H_
#define CAIRN_CLI_VIEWS_JOBS_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "cli/base/terminal.h"

namespace cairn::cli {

// Returns what the job does: "saving", "loading", "stopped" (nothing is under way, and the process of a trainer is
// stopped or does not move), "training" (trainers are attached, and nothing is under way), "waiting" (some agents are
// there), or "stored" (there is no agent).
std::string StateOf(const v1::JobSummary& job);

// Returns {"job", "state", "world_size", "agents", "trainers", "trainers_halted", "last_committed_step",
// "last_commit_time", "error"}; null for what is not known.
nlohmann::ordered_json JobSummaryToJson(const v1::JobSummary& job);
// `now`: says how old the last checkpoint is.
Table JobsTable(const std::vector<v1::JobSummary>& jobs, absl::Time now);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_JOBS_VIEW_H_
