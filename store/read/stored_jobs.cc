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
#include "store/read/change_number.h"

namespace cairn {
namespace {

constexpr int kMaxDepth = 8;

// Returns how deep below the root a directory is; 0 for the root.
int DepthOf(const std::string& directory) {
  if (directory.empty()) return 0;
  return 1 + static_cast<int>(std::count(directory.begin(), directory.end(), '/'));
}

}  // namespace

absl::StatusOr<JobDirectory> ListJobDirectory(Storage& storage, const std::string& directory) {
  JobDirectory listed;
  const auto entries = storage.List(directory);
  // A job may be removed while this looks.
  if (HasReason(entries.status(), Reason::kFileMissing) && !directory.empty()) return listed;
  CAIRN_RETURN_IF_ERROR(entries.status());
  // A root within this one has jobs of its own, under other names.
  if (!directory.empty() && storage.Exists(absl::StrCat(directory, "/.cairn"))) return listed;
  const int depth = DepthOf(directory);
  for (const Storage::Entry& entry : *entries) {
    if (ParseStepName(entry.name).has_value() || entry.name == ".retention" || entry.name == kRulesName) {
      listed.is_job = !directory.empty();
      continue;
    }
    if (!entry.directory || depth == kMaxDepth) continue;
    std::string path = directory.empty() ? entry.name : absl::StrCat(directory, "/", entry.name);
    if (CheckJobName(path).ok()) listed.below.push_back(std::move(path));
  }
  return listed;
}

absl::StatusOr<FoundJobs> LookForJobs(Storage& storage) {
  FoundJobs jobs;
  std::vector<std::string> open = {""};
  size_t seen = 0;
  while (!open.empty()) {
    const std::string directory = std::move(open.back());
    open.pop_back();
    if (++seen > kMostJobDirectories) {
      return MakeError(Reason::kOverloaded,
                       absl::StrCat(storage.root(), " has more than ", kMostJobDirectories, " directories of jobs"),
                       {{"root", storage.root()}});
    }
    auto listed = ListJobDirectory(storage, directory);
    if (!listed.ok()) {
      if (directory.empty()) return listed.status();
      jobs.unlisted.emplace(directory, listed.status());
      continue;
    }
    if (listed->is_job) jobs.names.push_back(directory);
    open.insert(open.end(), listed->below.begin(), listed->below.end());
  }
  std::sort(jobs.names.begin(), jobs.names.end());
  return jobs;
}

absl::StatusOr<std::vector<std::string>> FindJobs(Storage& storage) {
  CAIRN_ASSIGN_OR_RETURN(FoundJobs found, LookForJobs(storage));
  if (!found.unlisted.empty()) return found.unlisted.begin()->second;
  return std::move(found.names);
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

void DescribeRead(const absl::StatusOr<std::vector<StepRecord>>& steps, v1::JobSummary& job) {
  if (steps.ok()) {
    DescribeStored(*steps, job);
  } else {
    *job.mutable_error() = StatusToProto(steps.status());
  }
}

}  // namespace cairn
