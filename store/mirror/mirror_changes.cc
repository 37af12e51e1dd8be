#include "store/mirror/mirror_changes.h"

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror_step.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

// So long a change that a person asked for waits for the mirror's thread, and for its storage.
constexpr absl::Duration kChangePatience = absl::Seconds(5);

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

absl::Status MirrorChanges::MayReplace(const std::string& job, const ReserveAttempt& save) const {
  if (!view_.IsBuiltOnThere(job, save.step, save.resumed)) return absl::OkStatus();
  const ErrorMetadata metadata = {{"job", job}, {"step", absl::StrCat(save.step)}};
  const std::string name = absl::StrCat(job, "@", save.step);
  if (!save.overwrite) {
    return MakeError(Reason::kStepCommitted,
                     absl::StrCat(name, " is committed already: only the mirror ", place_->address(), " has it"),
                     metadata);
  }
  const std::optional<MirrorStep> step = view_.Find(job, save.step);
  if (!step.has_value() || !step->kept) return absl::OkStatus();
  return MakeError(Reason::kCheckpointPinned,
                   absl::StrCat("not overwritten: a pin or a tag keeps ", name, " at the mirror ", place_->address()),
                   metadata);
}

absl::StatusOr<std::optional<ChangedSteps>> MirrorChanges::Change(const std::string& job, const ChangeSteps& change) {
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
  const Turns::Turn turn(turns_, "", kChangePatience);
  if (!turn.mine()) {
    return MakeError(Reason::kStorageStalled,
                     absl::StrCat("the mirror ", place_->address(), " is busy: its storage has not answered for ",
                                  absl::FormatDuration(kChangePatience)),
                     {{"job", job},
                      {"step", absl::StrCat(*step)},
                      {"next", absl::StrCat("Try again, or look at the storage of ", place_->address(), ".")}});
  }
  const auto opened = reader_.ToRead(job, std::min(patience_, kChangePatience));
  const StepRecord root = root_.ReadStep(job, *step);
  const StepRecord there =
      opened.ok() ? (*opened)->checkpoints.ReadStep(job, *step) : StepRecord{.unlisted = opened.status()};
  if (!there.unlisted.ok()) {
    return WithMetadata(
        Annotate(there.unlisted, absl::StrCat("the root has no such checkpoint of ", job, ", and the mirror ",
                                              place_->address(), " does not say whether it has one")),
        {{"next", absl::StrCat("Try again. Look at the storage of ", place_->address(), ".")}});
  }
  const MirrorStep joined = MirrorStepOf(&root, &there);
  if (joined.at_root || there.state() == StepRecord::State::kNothing || joined.copy == MirrorStep::Copy::kDeleted) {
    return std::nullopt;
  }
  const std::shared_ptr<const MirrorPlace::Held> held = place_->held();
  if (held == nullptr) {
    return MakeError(Reason::kRootInUse,
                     absl::StrCat("only the mirror ", place_->address(), " has ", job, "@", *step,
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
    if (pin->pinned) marks_.Remark(job, *step, "");
    changed = deletions.Pin(job, *pin);
  } else {
    if (tag->step.has_value()) marks_.Remark(job, *step, tag->tag);
    changed = deletions.Tag(job, *tag);
  }
  if (!changed.ok()) return Annotate(changed.status(), absl::StrCat("at the mirror ", place_->address()));
  std::vector<int64_t> steps = changed->untagged;
  steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  // Whoever asks now is to see it.
  CAIRN_ASSIGN_OR_RETURN(MirrorReading reading, reader_.ReadBoth(**opened, job, steps));
  view_.Note(job, std::move(reading), clock_.SteadyNow());
  look_(job, steps);
  changed->only_at_mirror = true;
  return *std::move(changed);
}

}  // namespace cairn
