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

// Returns the first of these states that applies: "stored" (there is no agent), "saving", "loading", "stopped" (a
// trainer's process is stopped or makes no progress), "training" (every rank has an agent, and trainers are attached),
// "waiting".
std::string StateOf(const v1::JobSummary& job);

// Returns {"job", "state", "world_size", "agents", "trainers", "trainers_halted", "last_committed_step",
// "removals_refused", "last_commit_time", "error"}; null for unknown values.
nlohmann::ordered_json JobSummaryToJson(const v1::JobSummary& job);
// `now`: the current time, for the age of the last checkpoint.
Table JobsTable(const std::vector<v1::JobSummary>& jobs, absl::Time now);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_JOBS_VIEW_H_
