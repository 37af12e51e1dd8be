#include "cli/views/jobs_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/views/checkpoint_view.h"
#include "common/base/time_proto.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

// Returns a rounded age, for example "35s", "12m", "3h" or "8d".
std::string AgeText(absl::Duration age) {
  const int64_t seconds = std::max<int64_t>(absl::ToInt64Seconds(age), 0);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 60 * 60) return absl::StrCat(seconds / 60, "m");
  if (seconds < 24 * 60 * 60) return absl::StrCat(seconds / (60 * 60), "h");
  return absl::StrCat(seconds / (24 * 60 * 60), "d");
}

}  // namespace

std::string StateOf(const v1::JobSummary& job) {
  if (job.agents() == 0) return "stored";
  if (job.saves_running() > 0) return "saving";
  if (job.loads_running() > 0) return "loading";
  if (job.trainers_halted() > 0) return "stopped";
  return job.trainers() > 0 && job.agents() >= job.world_size() ? "training" : "waiting";
}

nlohmann::ordered_json JobSummaryToJson(const v1::JobSummary& job) {
  using Json = nlohmann::ordered_json;
  return {{"job", job.job()},
          {"state", StateOf(job)},
          {"world_size", job.world_size()},
          {"agents", job.agents()},
          {"trainers", job.trainers()},
          {"trainers_halted", job.trainers_halted()},
          {"last_committed_step", job.has_last_committed_step() ? Json(job.last_committed_step()) : Json()},
          {"removals_refused", job.removals_refused()},
          {"last_commit_time", job.has_last_commit_time() ? Json(TimeText(job.last_commit_time())) : Json()},
          {"error", job.has_error() ? ErrorToJson(StatusFromProto(job.error())) : Json()}};
}

Table JobsTable(const std::vector<v1::JobSummary>& jobs, absl::Time now) {
  Table table({"JOB", "STATE", "RANKS", "AGENTS", "LAST STEP", "COMMITTED", "AGE", "ERROR"});
  for (const v1::JobSummary& job : jobs) {
    table.Add(
        {job.job(), StateOf(job), job.world_size() == 0 ? "" : absl::StrCat(job.world_size()),
         absl::StrCat(job.agents()), job.has_last_committed_step() ? absl::StrCat(job.last_committed_step()) : "",
         TimeText(job.last_commit_time()),
         job.has_last_commit_time() ? AgeText(now - TimeOf(job.last_commit_time())) : "",
         job.has_error() ? StatusFromProto(job.error()).ToString(absl::StatusToStringMode::kWithNoExtraData) : ""},
        job.trainers_halted() > 0 || job.has_error() ? Colour::kRed : Colour::kNone);
  }
  return table;
}

}  // namespace cairn::cli
