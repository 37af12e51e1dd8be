#include "store/read/step_record.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

bool IsProvenDamage(const absl::Status& status) {
  return HasReason(status, Reason::kManifestCorrupt) || HasReason(status, Reason::kFileMissing) ||
         HasReason(status, Reason::kFileTruncated);
}

bool IsReadFailure(const absl::Status& status) {
  if (status.ok() || IsProvenDamage(status)) return false;
  const auto reason = ReasonOf(status);
  if (reason == Reason::kFormatTooNew || reason == Reason::kPathEscape || reason == Reason::kMessageTooLarge) {
    return false;
  }
  return MetadataOf(status)["errno"] != absl::StrCat(EISDIR);
}

const StoredAttempt* StepRecord::deciding() const {
  const StoredAttempt* found = nullptr;
  for (const StoredAttempt& record : attempts) {
    // An unreadable outcome above a manifest may be the commit that has replaced it, unless its files are gone: the
    // files of an aborted attempt are removed soon.
    const bool hides = record.directory || found == nullptr || found->damaged;
    if (record.stands() || (record.damaged && hides)) found = &record;
  }
  return found;
}

StepRecord::State StepRecord::state() const {
  if (!unlisted.ok()) return State::kDamaged;
  const StoredAttempt* record = deciding();
  if (record == nullptr) return State::kNothing;
  return record->stands() ? State::kCommitted : State::kDamaged;
}

absl::Status StepRecord::damage() const {
  if (!unlisted.ok()) return unlisted;
  return state() == State::kDamaged ? deciding()->error : absl::OkStatus();
}

absl::Status StepRecord::unread() const {
  const absl::Status why = damage();
  return IsReadFailure(why) ? why : absl::OkStatus();
}

absl::Status StepRecord::Protection(std::string_view job) const {
  const std::string name = absl::StrCat(std::string(job), "@", step);
  if (pinned) {
    return MakeError(Reason::kCheckpointPinned, absl::StrCat(name, " is pinned"),
                     {{"job", std::string(job)}, {"step", absl::StrCat(step)}});
  }
  if (tags.empty()) return absl::OkStatus();
  return MakeError(
      Reason::kCheckpointPinned, absl::StrCat(name, " has the tag ", absl::StrJoin(tags, ", "), ", which keeps it"),
      {{"job", std::string(job)},
       {"step", absl::StrCat(step)},
       {"tag", tags.front()},
       {"next",
        absl::StrCat("If nobody needs the tag, run `cairn untag ", std::string(job), "@", tags.front(), "` first.")}});
}

JobLineage LineageOf(const std::vector<StepRecord>& steps) {
  std::vector<JobLineage::Commit> commits;
  for (const StepRecord& step : steps) {
    if (step.state() == StepRecord::State::kCommitted) commits.push_back({step.step, step.deciding()->lineage});
  }
  return JobLineage(std::move(commits));
}

}  // namespace cairn
