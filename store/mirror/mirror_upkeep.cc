#include "store/mirror/mirror_upkeep.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror_step.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

// So often it is looked whether a load still reads a deleted copy.
constexpr absl::Duration kCleanRetry = absl::Seconds(5);
// So many copies that nobody else has are looked at in one look at a job, and the next ones so much later.
constexpr size_t kCopiesAtOnce = 8;
constexpr absl::Duration kNextCopies = absl::Seconds(5);
// So many copies are deleted in one look: copies and people wait for their turn meanwhile.
constexpr size_t kDeletionsAtOnce = 8;

bool Contains(const std::vector<int64_t>& steps, int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

}  // namespace

absl::Status MirrorUpkeep::Delete(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                                  const MirrorWork& work) {
  absl::Status undone;
  size_t left = kDeletionsAtOnce;
  for (const int64_t step : work.unwanted) {
    if (left == 0) break;
    --left;
    undone.Update(DeleteCopy(held, job, {.step = step, .cause = "deleted at the root"}));
  }
  if (left > 0) undone.Update(DeleteOutdated(held, job, records, work, left));
  if (left == 0) look_(job, {});  // for the rest, when others have had the turn
  return undone;
}

absl::Status MirrorUpkeep::DeleteOutdated(const MirrorPlace::Held& held, const std::string& job,
                                          const MirrorRecords& records, const MirrorWork& work, size_t& left) {
  if (work.outdated.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const bool whole, NewestAreWhole(held, job, records));
  if (!whole) {  // which is known now
    look_(job, {});
    return absl::OkStatus();
  }
  absl::Status undone;
  for (const int64_t step : work.outdated) {
    if (left == 0) break;
    --left;
    const std::string cause = absl::StrCat("the mirror keeps the last ", keep_last_);
    undone.Update(DeleteCopy(held, job, {.step = step, .cause = cause, .by_rules = true}));
  }
  return undone;
}

absl::StatusOr<bool> MirrorUpkeep::NewestAreWhole(const MirrorPlace::Held& held, const std::string& job,
                                                  const MirrorRecords& records) {
  const std::vector<MirrorStep> steps = JoinSteps(records.root, records.mirror);
  int64_t looked = 0;
  bool whole = true;
  for (const bool superseded : {false, true}) {
    for (size_t i = steps.size(); i-- > 0 && looked < keep_last_;) {
      const MirrorStep& step = steps[i];
      const std::optional<MirrorStep> seen = view_.Find(job, step.step);
      if (step.superseded != superseded || !step.loadable() || (seen.has_value() && seen->copy_damaged)) continue;
      ++looked;
      const absl::Status valid = held.side->checkpoints.ReadValid(job, *FindStep(records.mirror, step.step)).status();
      if (!valid.ok() && !IsProvenDamage(valid)) return valid;
      view_.NoteChecked({job, step.step}, valid, clock_.SteadyNow());
      whole = whole && valid.ok();
    }
  }
  return whole;
}

absl::Status MirrorUpkeep::DeleteCopy(const MirrorPlace::Held& held, const std::string& job, DeleteStep action) {
  if (view_.IsCopyingNow(job, action.step)) return absl::OkStatus();  // a look follows its end
  view_.BeginAsking();
  DeletionStore deletions(*held.side->storage, held.side->checkpoints, clock_, *held.lock);
  // What a person deleted goes, if the root has a checkpoint that is left. Rules leave one at the mirror itself.
  if (!action.by_rules) action.left_elsewhere = root_.NewestValid(job, action.step);
  const absl::Status deleted = deletions.Delete(job, action, std::nullopt).status();
  // The last one goes when a newer one was copied.
  if (HasReason(deleted, Reason::kLastCheckpoint) || HasReason(deleted, Reason::kCheckpointPinned)) {
    return absl::OkStatus();
  }
  if (!deleted.ok() && !HasReason(deleted, Reason::kNotCommitted)) return deleted;
  Log(LogLevel::kInfo, "mirror_deleted", {{"job", job}, {"step", action.step}, {"cause", action.cause}});
  look_(job, {action.step});  // to remove the files
  return absl::OkStatus();
}

void MirrorUpkeep::CheckOnlyThere(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records) {
  std::vector<int64_t> steps = view_.UncheckedOnlyThere(job, clock_.SteadyNow());
  // Each costs a request or two, and others wait for their turn.
  if (steps.size() > kCopiesAtOnce) {
    steps.resize(kCopiesAtOnce);
    view_.LookBy(job, clock_.SteadyNow() + kNextCopies);
  }
  for (const int64_t step : steps) {
    const absl::Status whole = held.side->checkpoints.ReadValid(job, *FindStep(records.mirror, step)).status();
    if (whole.ok() || IsProvenDamage(whole)) {
      view_.NoteChecked({job, step}, whole, clock_.SteadyNow());
    } else {
      // What cannot be read now must not keep other steps from being copied.
      view_.NoteLooked({job, step}, clock_.SteadyNow());
    }
  }
}

absl::Status MirrorUpkeep::Clean(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                                 const MirrorWork& work) {
  absl::Status undone;
  for (const StepRecord& step : records.mirror) {
    // No copy of it begins while this thread has the turn, and a look follows the end of this one.
    if (view_.IsCopyingNow(job, step.step)) continue;
    const StoredAttempt* standing = step.state() == StepRecord::State::kCommitted ? step.deciding() : nullptr;
    const StepRecord* root = FindStep(records.root, step.step);
    bool replaced = false;
    bool foreign = false;
    for (const StoredAttempt& attempt : step.attempts) {
      undone.Update(CleanAttempt(held, job, step, attempt, work));
      if (!attempt.stands() || standing == nullptr || attempt.attempt >= standing->attempt) continue;
      replaced = true;
      const Namesake namesake = root == nullptr ? Namesake::kNone : NamesakeOf(*root, attempt);
      foreign = foreign || namesake == Namesake::kForeign || namesake == Namesake::kUnknown;
    }
    if (!replaced || foreign) continue;
    DeletionStore deletions(*held.side->storage, held.side->checkpoints, clock_, *held.lock);
    const auto changed = deletions.Delete(job, DeleteReplaced{step.step});
    undone.Update(changed.status());
    if (changed.ok() && !changed->deleted.empty()) look_(job, {step.step});
  }
  return undone;
}

absl::Status MirrorUpkeep::CleanAttempt(const MirrorPlace::Held& held, const std::string& job, const StepRecord& step,
                                        const StoredAttempt& attempt, const MirrorWork& work) {
  Storage& storage = *held.side->storage;
  const std::string directory = AttemptDirectory(job, step.step, attempt.attempt);
  if (attempt.deleted && attempt.directory) {
    const bool settled = clock_.SteadyNow() >= removes_from_;
    if (!settled || reader_.InUse(job, step.step)) {
      view_.LookBy(job, clock_.SteadyNow() + kCleanRetry);
      return absl::OkStatus();
    }
    DeletionStore deletions(storage, held.side->checkpoints, clock_, *held.lock);
    const absl::Status removed = deletions.Remove(job, step.step, attempt.attempt, std::nullopt);
    if (removed.ok()) look_(job, {step.step});
    return HasReason(removed, Reason::kLastCheckpoint) ? absl::OkStatus() : removed;
  }
  if (!attempt.unfinished || !attempt.directory || !Contains(work.clean, step.step)) return absl::OkStatus();
  const std::optional<MirrorStep> seen = view_.Find(job, step.step);
  if (Contains(work.copy, step.step) && seen.has_value() && seen->attempt == attempt.attempt) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(held.lock->Check());
  // A copy that was under way when the records were read may have ended since.
  if (!held.side->checkpoints.ReadAttempt(job, step.step, attempt.attempt).unfinished) return absl::OkStatus();
  view_.NoteChanged(job, step.step, clock_.SteadyNow());
  CAIRN_RETURN_IF_ERROR(storage.RemoveUnfinished({directory, StepDirectory(job, step.step)}, held.lock->began()));
  return storage.RemoveAll(directory);
}

}  // namespace cairn
