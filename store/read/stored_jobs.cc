#include "store/read/stored_jobs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxDirectories = 10'000;

}  // namespace

absl::StatusOr<std::vector<std::string>> FindJobs(Storage& storage) {
  std::vector<std::string> jobs;
  // Directories to look at, and their depth; "" is the root itself.
  std::vector<std::pair<std::string, int>> open = {{"", 0}};
  size_t seen = 0;
  while (!open.empty()) {
    const auto [directory, depth] = std::move(open.back());
    open.pop_back();
    if (++seen > kMaxDirectories) {
      return MakeError(Reason::kOverloaded,
                       absl::StrCat(storage.root(), " has more than ", kMaxDirectories, " directories of jobs"),
                       {{"root", storage.root()}});
    }
    const auto entries = storage.List(directory);
    // A job may be removed while this looks.
    if (HasReason(entries.status(), Reason::kFileMissing) && !directory.empty()) continue;
    CAIRN_RETURN_IF_ERROR(entries.status());
    // A root within this one has jobs of its own, under other names.
    if (!directory.empty() && storage.Exists(absl::StrCat(directory, "/.cairn"))) continue;
    bool is_job = false;
    for (const Storage::Entry& entry : *entries) {
      if (ParseStepName(entry.name).has_value() || entry.name == ".retention") {
        is_job = true;
        continue;
      }
      if (!entry.directory || depth == kMaxDepth) continue;
      const std::string path = directory.empty() ? entry.name : absl::StrCat(directory, "/", entry.name);
      if (CheckJobName(path).ok()) open.emplace_back(path, depth + 1);
    }
    if (is_job && !directory.empty()) jobs.push_back(directory);
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

void DescribeStored(const std::vector<StepRecord>& steps, v1::JobSummary& job) {
  for (const StepRecord& step : steps) {
    if (step.unread().ok()) continue;
    // This may be the latest step. The coordinator's memory of the latest step is better than a guess.
    *job.mutable_error() =
        StatusToProto(Annotate(step.unread(), absl::StrCat(job.job(), "@", step.step, " cannot be read"),
                               {{"job", job.job()}, {"step", absl::StrCat(step.step)}}));
    if (job.has_last_committed_step()) return;
  }
  const std::optional<int64_t> latest = LineageOf(steps).latest();
  job.clear_last_committed_step();
  for (const StepRecord& step : steps) {
    if (step.step != latest) continue;
    const StoredAttempt& attempt = *step.deciding();
    job.set_last_committed_step(step.step);
    SetTimestamp(attempt.time, *job.mutable_last_commit_time());
    if (job.world_size() == 0) job.set_world_size(attempt.world_size);
  }
}

}  // namespace cairn
