#include "store/mirror/mirror_copier.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/format/checkpoint_path.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror_step.h"
#include "store/mirror/step_copy.h"
#include "store/write/attempt_store.h"

namespace cairn {

bool MirrorCopier::CopyNext(absl::Time& next) {
  // The place is held by the thread that looks.
  const std::shared_ptr<const MirrorPlace::Held> held = place_->held();
  const std::optional<MirrorView::Copy> copy = held == nullptr ? std::nullopt : view_.NextCopy(clock_.SteadyNow());
  if (!copy.has_value()) {
    next = held == nullptr ? absl::InfiniteFuture() : view_.NextCopyTime(clock_.SteadyNow());
    return false;
  }
  interrupted_ = false;
  if (stopped_) interrupted_ = true;
  const absl::Status copied = WithMemory("to copy a step", [&] { return Copy(*held, *copy); });
  if (!copied.ok()) view_.EndCopy(copied, clock_.SteadyNow());
  look_(copy->job, {copy->step});
  next = clock_.SteadyNow();
  if (copied.ok()) {
    if (!told_.empty()) Log(LogLevel::kInfo, "mirror_resumed", {{"mirror", place_->address()}});
    told_.clear();
    retry_ = absl::ZeroDuration();
    return true;
  }
  if (told_ != copied.message() && !stopped_) {
    told_ = std::string(copied.message());
    Log(LogLevel::kWarn, "mirror_failed",
        {{"mirror", place_->address()}, {"job", copy->job}, {"step", copy->step}, {"error", copied}});
  }
  retry_ = std::clamp(2 * retry_, rests_.first, rests_.longest);
  next += retry_;
  return true;
}

absl::Status MirrorCopier::Copy(const MirrorPlace::Held& held, const MirrorView::Copy& copy) {
  const auto& [job, step] = copy;
  const absl::Time begun = clock_.SteadyNow();
  uint32_t attempt = 0;
  uint64_t bytes = 0;
  absl::StatusOr<CheckpointStore::ManifestBytes> record;
  absl::Status copied;
  {
    const Turns::Turn turn(turns_, "");
    const StepRecord standing = root_.ReadStep(job, step);
    if (standing.state() != StepRecord::State::kCommitted) return standing.unread();  // it has gone meanwhile
    const StepRecord there = held.side->checkpoints.ReadStep(job, step);
    CAIRN_RETURN_IF_ERROR(there.unlisted);
    const MirrorStep joined = MirrorStepOf(&standing, &there);
    const std::optional<MirrorStep> seen = view_.Find(job, step);
    const bool is_damaged = seen.has_value() && seen->copy_damaged;
    if (!joined.unread && (joined.closed || (joined.has_copy() && !is_damaged))) return absl::OkStatus();
    attempt = standing.deciding()->attempt;
    bytes = standing.deciding()->bytes;
    // Rules leave the step alone from here on; see MirrorView::Awaits. So do looks.
    view_.BeginCopy(copy, attempt, bytes, bytes_done_);
    record = root_.ReadManifestBytes(job, step);
    copied = record.status();
    if (record.ok()) copied = ForgetDeleted(held, job, step, attempt);
  }
  if (copied.ok()) {
    const CopyTarget to = {*held.side->storage, held.side->checkpoints, *held.lock, clock_};
    copied = CopyStep(root_, *record, to, interrupted_, bytes_done_);
  }
  view_.EndCopy(copied, clock_.SteadyNow());
  if (copied.ok()) {
    AttemptStore::KeepReserve(*held.side->storage);
    Log(LogLevel::kInfo, "mirrored",
        {{"job", job},
         {"step", step},
         {"attempt", attempt},
         {"bytes", bytes},
         {"took", DurationText(clock_.SteadyNow() - begun)}});
    return copied;
  }
  if (interrupted_ || HasReason(record.status(), Reason::kNotCommitted)) return absl::OkStatus();
  const bool for_good = IsStepFault(copied) || HasReason(copied, Reason::kStepCommitted);
  if (for_good) {
    // Its files go when the step is deleted, which may be now.
    const StepRecord after = root_.ReadStep(job, step);
    if (after.state() != StepRecord::State::kCommitted || after.deciding()->attempt != attempt) return absl::OkStatus();
    Log(LogLevel::kError, "not_mirrored",
        {{"job", job},
         {"step", step},
         {"attempt", attempt},
         {"error", copied},
         {"next", absl::StrCat("Run `cairn verify ", job, "@", step, "`. The mirror has no copy of this step.")}});
  }
  view_.NoteFailure(copy, attempt, copied, for_good, clock_.SteadyNow(), rests_.longest,
                    for_good ? rests_.damaged_step : rests_.longest);
  return for_good ? absl::OkStatus() : copied;
}

absl::Status MirrorCopier::ForgetDeleted(const MirrorPlace::Held& held, const std::string& job, int64_t step,
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

}  // namespace cairn
