// The part of Mirror that follows the root: pins and tags, deletions, and what is left of copies.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror.h"
#include "store/read/step_marks.h"
#include "store/write/deletion_store.h"
#include "store/write/mark_store.h"

namespace cairn {
namespace {

// So often it is looked whether a load still reads a deleted copy.
constexpr absl::Duration kCleanRetry = absl::Seconds(5);
// So many copies that nobody else has are looked at in one look at a job, and the next ones so much later.
constexpr size_t kCopiesAtOnce = 8;
constexpr absl::Duration kNextCopies = absl::Seconds(5);
// So long a change that a person asked for waits for the thread's own.
constexpr absl::Duration kChangePatience = absl::Seconds(5);

bool Contains(const std::vector<int64_t>& steps, int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

bool HasTag(const StepRecord& step, const std::string& tag) {
  return std::find(step.tags.begin(), step.tags.end(), tag) != step.tags.end();
}

// Returns the step that a change is about; nothing if it names none.
std::optional<int64_t> StepOf(const ChangeSteps& change) {
  if (const auto* deletion = std::get_if<DeleteStep>(&change.change)) return deletion->step;
  if (const auto* pin = std::get_if<PinStep>(&change.change)) return pin->step;
  if (const auto* tag = std::get_if<TagStep>(&change.change)) return tag->step;
  return std::nullopt;
}

}  // namespace

Mirror::Turn::Turn(Mirror& mirror, absl::Duration patience) : mirror_(mirror) {
  const absl::Time deadline = mirror.clock_.SteadyNow() + patience;
  MutexLock lock(mirror.mutex_);
  while (mirror.changing_ && mirror.clock_.SteadyNow() < deadline) {
    mirror.changed_.WaitFor(mirror.mutex_, std::min(deadline - mirror.clock_.SteadyNow(), kChangePatience));
  }
  mine_ = !mirror.changing_;
  if (mine_) mirror.changing_ = true;
}

Mirror::Turn::~Turn() {
  if (!mine_) return;
  MutexLock lock(mirror_.mutex_);
  mirror_.changing_ = false;
  mirror_.changed_.NotifyAll();
}

absl::Status Mirror::LookAt(const MirrorPlace::Held& held, const std::string& job) {
  const Turn turn(*this, absl::InfiniteDuration());
  const absl::Time began = clock_.SteadyNow();
  CAIRN_ASSIGN_OR_RETURN(const MirrorRecords records, ReadBoth(*held.side, job));
  const MirrorWork work = view_.Note(job, records, began, clock_.SteadyNow());
  view_.BeginAsking();
  // Deletions come before marks that are to be set, because they make room.
  Marks taken;
  absl::Status undone = TakeMarks(held, job, records, taken);
  for (const int64_t step : work.unwanted) {
    undone.Update(DeleteCopy(held, job, {.step = step, .cause = "deleted at the root"}));
  }
  undone.Update(DeleteOutdated(held, job, records, work));
  CheckOnlyThere(held, job, records);
  undone.Update(Clean(held, job, records, work));
  undone.Update(CopyMarks(held, job, records, taken));
  if (undone.ok() || stop_) return absl::OkStatus();
  view_.LookBy(job, clock_.SteadyNow() + options_.longest_retry);
  if (view_.NoteUndone(job, OfMirror(undone))) {
    Log(LogLevel::kWarn, "mirror_failed", {{"mirror", options_.address}, {"job", job}, {"error", undone}});
  }
  return absl::OkStatus();
}

absl::Status Mirror::DeleteOutdated(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                                    const MirrorWork& work) {
  if (work.outdated.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const bool whole, NewestAreWhole(held, job, records));
  if (!whole) {  // which is known now
    Look(job);
    return absl::OkStatus();
  }
  absl::Status undone;
  for (const int64_t step : work.outdated) {
    const std::string cause = absl::StrCat("the mirror keeps the last ", options_.rule.keep_last);
    undone.Update(DeleteCopy(held, job, {.step = step, .cause = cause, .by_rules = true}));
  }
  return undone;
}

void Mirror::CheckOnlyThere(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records) {
  std::vector<int64_t> steps = view_.UncheckedOnlyThere(job, clock_.SteadyNow());
  // Each costs a request or two, and others wait for their turn.
  if (steps.size() > kCopiesAtOnce) {
    steps.resize(kCopiesAtOnce);
    view_.LookBy(job, clock_.SteadyNow() + kNextCopies);
  }
  for (const int64_t step : steps) {
    const absl::Status whole = held.side->checkpoints.ReadValid(job, *FindStep(records.mirror, step)).status();
    if (whole.ok() || IsProvenDamage(whole)) {
      NoteChecked(job, step, whole);
    } else {
      // What cannot be read now must not keep other steps from being copied.
      view_.NoteLooked({job, step}, clock_.SteadyNow());
    }
  }
}

absl::Status Mirror::TakeMarks(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                               Marks& taken) {
  std::set<std::tuple<std::string, int64_t, std::string>> unmarked;
  {
    MutexLock lock(mutex_);
    unmarked = unmarked_;
  }
  MarkStore marks(*held.side->storage, clock_, *held.lock);
  absl::Status undone;
  for (const auto& one : unmarked) {
    const auto& [of, step, tag] = one;
    if (of != job) continue;
    taken.emplace(step, tag);
    // Somebody may have set the mark anew.
    const auto set = ReadMark(root_.storage(), job, step, tag);
    const StepRecord* copy = FindStep(records.mirror, step);
    absl::Status cleared = set.status();
    if (set.ok() && !set->has_value() && copy != nullptr && (tag.empty() ? copy->pinned : HasTag(*copy, tag))) {
      cleared = marks.Clear(job, step, tag);
      if (cleared.ok()) Look(job);  // for a copy that the mark had kept
    }
    undone.Update(cleared);
    if (!cleared.ok()) continue;
    MutexLock lock(mutex_);
    unmarked_.erase(one);
  }
  for (const StepRecord& mirror : records.mirror) {
    const StepRecord* root = FindStep(records.root, mirror.step);
    if (root == nullptr || !MirrorStepOf(root, &mirror).unwanted()) continue;
    if (mirror.pinned) undone.Update(marks.Clear(job, mirror.step, ""));
    for (const std::string& tag : mirror.tags) undone.Update(marks.Clear(job, mirror.step, tag));
  }
  return undone;
}

absl::Status Mirror::MarkRoot(const std::string& job, int64_t step, const std::string& tag) {
  if (options_.mark_root == nullptr) return absl::OkStatus();
  const JobOrder order(*this, job);
  {
    MutexLock lock(mutex_);
    if (unmarked_.contains({job, step, tag})) return absl::OkStatus();
  }
  return tag.empty() ? options_.mark_root(job, {PinStep{step, true, "pinned at the mirror"}})
                     : options_.mark_root(job, {TagStep{tag, step}});
}

absl::Status Mirror::CopyMarks(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                               const Marks& taken) {
  absl::Status undone;
  const auto has_tag = [&](const std::vector<StepRecord>& steps, const std::string& tag) {
    return std::any_of(steps.begin(), steps.end(), [&](const StepRecord& step) { return HasTag(step, tag); });
  };
  for (const StepRecord& mirror : records.mirror) {
    const StepRecord* root = FindStep(records.root, mirror.step);
    // What only the mirror has, has its own.
    if (root == nullptr || mirror.state() != StepRecord::State::kCommitted) continue;
    const MirrorStep step = MirrorStepOf(root, &mirror);
    if (step.unread || !step.at_root) continue;
    if (root->pinned && !mirror.pinned) undone.Update(CopyMark(held, job, mirror.step, ""));
    for (const std::string& tag : root->tags) {
      // A tag names one step. The one that has it at the mirror keeps it, and is protected by it.
      if (!has_tag(records.mirror, tag)) undone.Update(CopyMark(held, job, mirror.step, tag));
    }
    // A step that only the mirror had was saved anew. Its marks are the step's, and not the copy's.
    if (step.copy != MirrorStep::Copy::kReplaced) continue;
    if (mirror.pinned && !root->pinned && !taken.contains({mirror.step, ""})) {
      undone.Update(MarkRoot(job, mirror.step, ""));
    }
    for (const std::string& tag : mirror.tags) {
      if (has_tag(records.root, tag) || taken.contains({mirror.step, tag})) continue;
      undone.Update(MarkRoot(job, mirror.step, tag));
    }
  }
  return undone;
}

absl::Status Mirror::CopyMark(const MirrorPlace::Held& held, const std::string& job, int64_t step,
                              const std::string& tag) {
  const auto text = ReadMark(root_.storage(), job, step, tag);
  if (!text.ok()) {
    const std::string what = tag.empty() ? "the pin" : absl::StrCat("the tag ", tag);
    return WithMetadata(
        Annotate(text.status(), absl::StrCat(what, " of ", job, "@", step, " is not copied")),
        {{"next", "The file is at the root: correct it, or take the mark away and set it again. It is tried again."}});
  }
  if (!text->has_value()) return absl::OkStatus();  // it was taken away meanwhile
  return MarkStore(*held.side->storage, clock_, *held.lock).Set(job, step, tag, **text);
}

absl::StatusOr<bool> Mirror::NewestAreWhole(const MirrorPlace::Held& held, const std::string& job,
                                            const MirrorRecords& records) {
  const std::vector<MirrorStep> steps = JoinSteps(records.root, records.mirror);
  int64_t looked = 0;
  bool whole = true;
  for (const bool superseded : {false, true}) {
    for (size_t i = steps.size(); i-- > 0 && looked < options_.rule.keep_last;) {
      const MirrorStep& step = steps[i];
      const std::optional<MirrorStep> seen = view_.Find(job, step.step);
      if (step.superseded != superseded || !step.loadable() || (seen.has_value() && seen->copy_damaged)) continue;
      ++looked;
      const absl::Status valid = held.side->checkpoints.ReadValid(job, *FindStep(records.mirror, step.step)).status();
      if (!valid.ok() && !IsProvenDamage(valid)) return valid;
      NoteChecked(job, step.step, valid);
      whole = whole && valid.ok();
    }
  }
  return whole;
}

absl::Status Mirror::DeleteCopy(const MirrorPlace::Held& held, const std::string& job, DeleteStep action) {
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
  Look(job);  // to remove the files
  return absl::OkStatus();
}

absl::Status Mirror::CleanAttempt(const MirrorPlace::Held& held, const std::string& job, const StepRecord& step,
                                  const StoredAttempt& attempt, const MirrorWork& work) {
  Storage& storage = *held.side->storage;
  const std::string directory = AttemptDirectory(job, step.step, attempt.attempt);
  if (attempt.deleted && attempt.directory) {
    const bool settled = clock_.SteadyNow() - started_ >= options_.settle;
    if (!settled || InUse(job, step.step)) {
      view_.LookBy(job, clock_.SteadyNow() + kCleanRetry);
      return absl::OkStatus();
    }
    DeletionStore deletions(storage, held.side->checkpoints, clock_, *held.lock);
    const absl::Status removed = deletions.Remove(job, step.step, attempt.attempt, std::nullopt);
    if (removed.ok()) Look(job);
    return HasReason(removed, Reason::kLastCheckpoint) ? absl::OkStatus() : removed;
  }
  if (!attempt.unfinished || !attempt.directory || !Contains(work.clean, step.step)) return absl::OkStatus();
  const std::optional<MirrorStep> seen = view_.Find(job, step.step);
  if (Contains(work.copy, step.step) && seen.has_value() && seen->attempt == attempt.attempt) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(held.lock->Check());
  // A copy that was under way when the records were read may have ended since.
  if (!held.side->checkpoints.ReadAttempt(job, step.step, attempt.attempt).unfinished) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(storage.RemoveUnfinished({directory, StepDirectory(job, step.step)}, held.lock->began()));
  return storage.RemoveAll(directory);
}

absl::Status Mirror::ForgetDeleted(const MirrorPlace::Held& held, const std::string& job, int64_t step,
                                   uint32_t attempt) {
  const StoredAttempt there = held.side->checkpoints.ReadAttempt(job, step, attempt);
  if (!there.deleted || !there.deleted_by_rules) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(held.lock->Check());
  // The deletion goes last: until then nobody takes what is left of the files for a checkpoint.
  for (const std::string& path :
       {OutcomePath(job, step, attempt), RepairedPath(job, step, attempt), DeletionPath(job, step, attempt)}) {
    CAIRN_RETURN_IF_ERROR(held.side->storage->RemoveAll(path));
  }
  return absl::OkStatus();
}

absl::Status Mirror::Clean(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
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
      foreign = foreign || (root != nullptr && IsForeign(*root, attempt));
    }
    if (!replaced || foreign) continue;
    DeletionStore deletions(*held.side->storage, held.side->checkpoints, clock_, *held.lock);
    const auto changed = deletions.Delete(job, DeleteReplaced{step.step});
    undone.Update(changed.status());
    if (changed.ok() && !changed->deleted.empty()) Look(job);
  }
  return undone;
}

absl::StatusOr<std::optional<ChangedSteps>> Mirror::Change(const std::string& job, const ChangeSteps& change) {
  std::optional<int64_t> step = StepOf(change);
  const auto* tag = std::get_if<TagStep>(&change.change);
  if (tag != nullptr && !step.has_value()) step = view_.OnlyThereWithTag(job, tag->tag);
  if (!step.has_value()) return std::nullopt;
  // A coordinator that has just begun will soon know. What is known needs no look, which storage may hold.
  if (place_->held() == nullptr) view_.AwaitSeen(job, kChangePatience);
  const std::optional<MirrorStep> seen = view_.Find(job, *step);
  // What this process has copied is known there at once. Whether the step stands at the root says the root.
  const bool lacks = !seen.has_value() || (seen->mirrored == 0 && !seen->damaged_there);
  if (view_.IsKnown(job) && view_.Trouble(job).ok() && lacks) return std::nullopt;
  const Turn turn(*this, kChangePatience);
  if (!turn.mine()) {
    return MakeError(Reason::kStorageStalled,
                     absl::StrCat("the mirror ", options_.address, " is busy: its storage has not answered for ",
                                  absl::FormatDuration(kChangePatience)),
                     {{"job", job},
                      {"step", absl::StrCat(*step)},
                      {"next", absl::StrCat("Try again, or look at the storage of ", options_.address, ".")}});
  }
  const auto opened = ToRead(job, std::min(options_.patience, kChangePatience));
  const StepRecord root = root_.ReadStep(job, *step);
  const StepRecord there =
      opened.ok() ? (*opened)->checkpoints.ReadStep(job, *step) : StepRecord{.unlisted = opened.status()};
  if (!there.unlisted.ok()) {
    return WithMetadata(
        Annotate(there.unlisted, absl::StrCat("the root has no such checkpoint of ", job, ", and the mirror ",
                                              options_.address, " does not say whether it has one")),
        {{"next", absl::StrCat("Try again. Look at the storage of ", options_.address, ".")}});
  }
  const MirrorStep joined = MirrorStepOf(&root, &there);
  if (joined.at_root || there.state() == StepRecord::State::kNothing || joined.copy == MirrorStep::Copy::kDeleted) {
    return std::nullopt;
  }
  const std::shared_ptr<const MirrorPlace::Held> held = place_->held();
  if (held == nullptr) {
    return MakeError(Reason::kRootInUse,
                     absl::StrCat("only the mirror ", options_.address, " has ", job, "@", *step,
                                  ", and this coordinator cannot write there now"),
                     {{"job", job},
                      {"step", absl::StrCat(*step)},
                      {"next", "See what `cairn status` says of the mirror, and try again."}});
  }
  if (tag != nullptr && tag->step.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, root_.ReadCheckpoints(job));
    for (const StepRecord& one : steps) {
      if (HasTag(one, tag->tag)) return DeletionStore::TagIsTaken(job, tag->tag, one.step);
    }
  }
  DeletionStore deletions(*held->side->storage, held->side->checkpoints, clock_, *held->lock);
  absl::StatusOr<ChangedSteps> changed;
  if (const auto* deletion = std::get_if<DeleteStep>(&change.change)) {
    DeleteStep action = *deletion;
    action.left_elsewhere = root_.NewestValid(job);
    changed = deletions.Delete(job, action, std::nullopt);
  } else if (const auto* pin = std::get_if<PinStep>(&change.change)) {
    changed = deletions.Pin(job, *pin);
  } else {
    changed = deletions.Tag(job, *tag);
  }
  if (!changed.ok()) return Annotate(changed.status(), absl::StrCat("at the mirror ", options_.address));
  const absl::Time changed_at = clock_.SteadyNow();
  CAIRN_ASSIGN_OR_RETURN(MirrorRecords records, ReadBoth(**opened, job));
  view_.Note(job, std::move(records), changed_at, clock_.SteadyNow());
  Look(job);
  changed->only_at_mirror = true;
  return *std::move(changed);
}

}  // namespace cairn
