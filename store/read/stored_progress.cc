#include "store/read/stored_progress.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shell_word.h"
#include "common/status/status.h"
#include "store/read/checkpoint_store.h"
#include "store/read/stored_jobs.h"

namespace cairn {
namespace {

constexpr size_t kMaxJobs = 4;
constexpr size_t kMaxSteps = 16;

absl::StatusOr<bool> HasCheckpoint(CheckpointStore& store, const std::string& job, size_t most) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, store.Steps(job));
  for (size_t i = steps.size(); i-- > 0 && most-- > 0;) {
    if (store.ReadStep(job, steps[i]).state() != StepRecord::State::kNothing) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<StoredProgress> LookForProgress(Storage& storage, const std::string& job) {
  CheckpointStore store(storage);
  StoredProgress found;
  CAIRN_ASSIGN_OR_RETURN(found.has_checkpoint, HasCheckpoint(store, job, SIZE_MAX));
  if (found.has_checkpoint) return found;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, FindJobs(storage));
  for (const std::string& other : jobs) {
    if (other == job) continue;
    if (found.other_jobs.size() == kMaxJobs) {
      found.more_jobs = true;
      break;
    }
    CAIRN_ASSIGN_OR_RETURN(const bool has_checkpoint, HasCheckpoint(store, other, kMaxSteps));
    if (has_checkpoint) found.other_jobs.push_back(other);
  }
  return found;
}

std::string ProgressNote(const absl::StatusOr<StoredProgress>& found, const std::string& job, const std::string& root) {
  if (!found.ok()) {
    return absl::StrCat("whether job ", job, " has a checkpoint below ", root,
                        " could not be seen: ", found.status().message());
  }
  if (found->has_checkpoint || found->other_jobs.empty()) return "";
  return absl::StrCat("no checkpoint of job ", job, " below ", root,
                      ", so it starts from the beginning; jobs there: ", absl::StrJoin(found->other_jobs, ", "),
                      found->more_jobs ? absl::StrCat(" and others (`cairn jobs --root ", ForShell(root), "`)") : "");
}

}  // namespace cairn
