#include "store/mirror/mirror_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "store/mirror/mirror_listing.h"

namespace cairn {
namespace {

constexpr size_t kMaxEmpty = 1000;

}  // namespace

const MirrorJob* MirrorView::Of(const std::string& job) const {
  const auto seen = seen_.find(job);
  return seen == seen_.end() ? nullptr : &seen->second;
}

MirrorJob* MirrorView::Of(const std::string& job) {
  const auto seen = seen_.find(job);
  return seen == seen_.end() ? nullptr : &seen->second;
}

bool MirrorView::IsCopying(const std::string& job, int64_t step) const {
  return copying_.has_value() && copying_->copy.job == job && copying_->copy.step == step;
}

void MirrorView::SetReachable(const absl::Status& error) {
  MutexLock lock(mutex_);
  reached_ = reached_ || error.ok();
  if (!error.ok()) ++counts_.failures;
  error_ = error;
  changed_.NotifyAll();
}

void MirrorView::BeginAsking() {
  MutexLock lock(mutex_);
  asked_since_ = Clock::Real().SteadyNow();
}

void MirrorView::EndAsking() {
  MutexLock lock(mutex_);
  asked_since_ = absl::InfiniteFuture();
}

absl::Status MirrorView::TroubleOf(const std::string& job) const {
  if (!error_.ok()) return error_;
  if (const absl::Duration lasts = Clock::Real().SteadyNow() - asked_since_; lasts > patience_) {
    return MakeError(Reason::kStorageStalled,
                     absl::StrCat("the mirror ", address_, " has not answered for ",
                                  absl::FormatDuration(absl::Trunc(lasts, absl::Seconds(1)))),
                     {{"next", absl::StrCat("It is asked again. See whether the storage of ", address_, " answers.")}});
  }
  const auto unlooked = unlooked_.find(job);
  return unlooked == unlooked_.end() ? absl::OkStatus() : unlooked->second.error;
}

absl::Status MirrorView::Trouble(const std::string& job) const {
  MutexLock lock(mutex_);
  return TroubleOf(job);
}

void MirrorView::AwaitSeen(const std::string& job, absl::Duration patience) const {
  MutexLock lock(mutex_);
  const absl::Time deadline = absl::Now() + patience;
  while (Of(job) == nullptr && !empty_.contains(job) && TroubleOf(job).ok()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(mutex_, left);
  }
}

std::optional<std::vector<int64_t>> MirrorView::ToRead(const std::string& job, absl::Time now) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? std::nullopt : seen->ToRead(now);
}

void MirrorView::NoteChanged(const std::string& job, int64_t step, absl::Time now) {
  MutexLock lock(mutex_);
  MirrorJob* seen = Of(job);
  if (seen == nullptr) changed_unseen_ = std::max(changed_unseen_, now);
  if (seen != nullptr) seen->NoteChanged(step, now);
}

void MirrorView::NoteAnyChanged(const std::string& job, absl::Time time) {
  MutexLock lock(mutex_);
  MirrorJob* seen = Of(job);
  if (seen == nullptr) changed_unseen_ = std::max(changed_unseen_, time);
  if (seen != nullptr) seen->NoteAnyChanged(time);
}

void MirrorView::NoteAnyJobChanged(absl::Time now) {
  MutexLock lock(mutex_);
  for (auto& [job, seen] : seen_) {
    seen.NoteAnyChanged(now);
    seen.ForgetChecks();
  }
  empty_.clear();
}

std::pair<MirrorRecords, MirrorWork> MirrorView::RecordsOf(const std::string& job) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? std::pair<MirrorRecords, MirrorWork>() : std::pair(seen->records(), seen->work());
}

void MirrorView::Note(const std::string& job, MirrorReading reading, absl::Time now) {
  MutexLock lock(mutex_);
  const bool is_new = Of(job) == nullptr;
  if (is_new && reading.steps.has_value()) return;
  const absl::Time began = reading.began;
  MirrorJob& seen = seen_.try_emplace(job, job, address_, rule_).first->second;
  seen.Note(std::move(reading), now);
  if (is_new && changed_unseen_ >= began) seen.NoteAnyChanged(now);
  unlooked_.erase(job);
  empty_.erase(job);
  if (seen.steps().empty()) {  // anybody may name a job
    seen_.erase(job);
    if (empty_.size() >= kMaxEmpty) empty_.clear();
    empty_.insert(job);
  }
  changed_.NotifyAll();
}

void MirrorView::NoteDeleted(const std::string& job, const StoredAttempt& deleted, absl::Time now) {
  MutexLock lock(mutex_);
  if (MirrorJob* seen = Of(job)) seen->NoteDeleted(deleted, now);
}

bool MirrorView::NoteUnlooked(const std::string& job, const absl::Status& error, absl::Time now, absl::Duration rest,
                              absl::Duration longest) {
  MutexLock lock(mutex_);
  if (!unlooked_.contains(job) && unlooked_.size() >= kMaxEmpty) return false;  // its next commit asks for a look
  Unlooked& unlooked = unlooked_[job];
  const bool is_news = unlooked.error != error;
  rest = std::clamp(2 * unlooked.rest, rest, std::max(rest, longest));
  unlooked = {error, now + rest, rest};
  ++counts_.failures;
  changed_.NotifyAll();
  return is_news;
}

bool MirrorView::NoteUndone(const std::string& job, const absl::Status& error) {
  MutexLock lock(mutex_);
  MirrorJob* seen = Of(job);
  if (seen == nullptr) return false;
  if (!error.ok()) ++counts_.failures;
  return seen->NoteUndone(error);
}

void MirrorView::LookBy(const std::string& job, absl::Time time) {
  MutexLock lock(mutex_);
  if (MirrorJob* seen = Of(job)) seen->LookBy(time);
}

std::optional<std::string> MirrorView::Due(absl::Time now) const {
  MutexLock lock(mutex_);
  std::optional<std::string> due;
  absl::Time since = now;
  const auto consider = [&](const std::string& job, absl::Time time) {
    if (time > since || (due.has_value() && time == since)) return;
    due = job;
    since = time;
  };
  for (const auto& [job, seen] : seen_) {
    if (!unlooked_.contains(job)) consider(job, seen.next_look());
  }
  for (const auto& [job, unlooked] : unlooked_) consider(job, unlooked.next_try);
  return due;
}

absl::Time MirrorView::NextLook() const {
  MutexLock lock(mutex_);
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [job, seen] : seen_) {
    if (!unlooked_.contains(job)) next = std::min(next, seen.next_look());
  }
  for (const auto& [job, unlooked] : unlooked_) next = std::min(next, unlooked.next_try);
  return next;
}

absl::Time MirrorView::NextCopyTime(absl::Time now) const {
  MutexLock lock(mutex_);
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [job, seen] : seen_) {
    if (TroubleOf(job).ok()) next = std::min(next, seen.NextCopyTime(now));
  }
  return next;
}

std::optional<MirrorView::Copy> MirrorView::NextCopy(absl::Time now) {
  MutexLock lock(mutex_);
  for (const bool later : {true, false}) {
    for (const auto& [job, seen] : seen_) {
      if ((job > last_copied_) != later || !TroubleOf(job).ok()) continue;
      if (const std::optional<int64_t> step = seen.NextCopy(now); step.has_value()) {
        last_copied_ = job;
        return Copy{job, *step};
      }
    }
  }
  return std::nullopt;
}

void MirrorView::BeginCopy(const Copy& copy, uint32_t attempt, uint64_t bytes,
                           const std::atomic<uint64_t>& bytes_done) {
  MutexLock lock(mutex_);
  copying_ = {copy, attempt, bytes, &bytes_done};
}

void MirrorView::EndCopy(const absl::Status& status, absl::Time now) {
  MutexLock lock(mutex_);
  if (copying_.has_value()) {
    if (MirrorJob* seen = Of(copying_->copy.job)) seen->NoteChanged(copying_->copy.step, now);
  }
  if (status.ok() && copying_.has_value()) {
    ++counts_.steps_copied;
    counts_.bytes_copied += copying_->bytes;
    if (MirrorJob* seen = Of(copying_->copy.job)) seen->NoteCopied(copying_->copy.step, copying_->attempt, now);
  }
  copying_.reset();
}

bool MirrorView::IsCopyingNow(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  return IsCopying(job, step);
}

void MirrorView::NoteFailure(const Copy& copy, uint32_t attempt, const absl::Status& error, bool for_good,
                             absl::Time now, absl::Duration rest, absl::Duration longest) {
  MutexLock lock(mutex_);
  if (MirrorJob* seen = Of(copy.job)) seen->NoteFailure(copy.step, attempt, error, for_good, now, rest, longest);
  if (for_good) ++counts_.failures;
}

void MirrorView::NoteChecked(const Copy& copy, const absl::Status& whole, absl::Time now) {
  {
    MutexLock lock(mutex_);
    MirrorJob* seen = Of(copy.job);
    if (seen == nullptr || !seen->NoteChecked(copy.step, whole, now)) return;
  }
  Log(LogLevel::kError, "mirror_copy_damaged",
      {{"job", copy.job}, {"step", copy.step}, {"mirror", address_}, {"error", whole}});
}

void MirrorView::NoteLooked(const Copy& copy, absl::Time now) {
  MutexLock lock(mutex_);
  if (MirrorJob* seen = Of(copy.job)) seen->NoteLooked(copy.step, now);
}

std::vector<int64_t> MirrorView::UncheckedOnlyThere(const std::string& job, absl::Time now) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? std::vector<int64_t>() : seen->UncheckedOnlyThere(now);
}

bool MirrorView::Awaits(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  if (IsCopying(job, step)) return true;
  if (!rule_.Wants(step)) return false;
  const MirrorJob* seen = Of(job);
  return seen == nullptr || seen->Awaits(step, TroubleOf(job).ok());
}

bool MirrorView::NeedsNoCheck(const std::string& job, int64_t step, absl::Time now) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  const MirrorStep* found = seen == nullptr ? nullptr : seen->Find(step);
  if (found != nullptr && found->by_number) return false;
  return !rule_.Wants(step) || (seen != nullptr && seen->NeedsNoCheck(step, TroubleOf(job).ok(), now));
}

std::optional<MirrorStep> MirrorView::Find(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  const MirrorStep* found = seen == nullptr ? nullptr : seen->Find(step);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

bool MirrorView::IsKnown(const std::string& job) const {
  MutexLock lock(mutex_);
  return Of(job) != nullptr || empty_.contains(job);
}

std::optional<int64_t> MirrorView::OnlyThereWithTag(const std::string& job, const std::string& tag) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? std::nullopt : seen->OnlyThereWithTag(tag);
}

bool MirrorView::IsBuiltOnThere(const std::string& job, int64_t step, const std::optional<ResumePoint>& resumed) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen != nullptr && seen->IsBuiltOnThere(step, resumed);
}

bool MirrorView::IsLatest(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr || seen->IsLatest(step);
}

std::optional<JobLineage> MirrorView::LineageOfBoth(const std::string& job) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? std::nullopt : std::optional(seen->lineage());
}

uint32_t MirrorView::HighestAttempt(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? 0 : seen->HighestAttempt(step);
}

Lineage MirrorView::Continue(const std::string& job, Lineage lineage) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? lineage : seen->Continue(std::move(lineage));
}

v1::MirroredCheckpoint MirrorView::Describe(const std::string& job, int64_t step) const {
  v1::MirroredCheckpoint made;
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  if (seen == nullptr) return made;
  if (!IsCopying(job, step)) return DescribeCopy(*seen, rule_, step);
  made.set_state(v1::MirroredCheckpoint::COPYING);
  return made;
}

v1::Mirror MirrorView::DescribeMirror(const std::string& job) const {
  v1::Mirror made;
  made.set_address(address_);
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  if (const absl::Status trouble = TroubleOf(job); !trouble.ok()) {
    *made.mutable_error() = StatusToProto(trouble);
  } else if (const absl::Status undone = seen == nullptr ? absl::OkStatus() : DescribeUndone(*seen, address_);
             !undone.ok()) {
    *made.mutable_error() = StatusToProto(undone);
  } else if (seen == nullptr && !empty_.contains(job)) {
    *made.mutable_error() = StatusToProto(MakeError(Reason::kStorageStalled,
                                                    absl::StrCat("the mirror ", address_, " was not looked at yet"),
                                                    {{"job", job}, {"next", "Ask again in a moment."}}));
  }
  if (seen != nullptr) made.set_steps_waiting(static_cast<uint32_t>(seen->work().copy.size()));
  if (copying_.has_value() && copying_->copy.job == job) {
    made.set_copying_step(copying_->copy.step);
    made.set_bytes_done(*copying_->bytes_done);
    made.set_bytes_total(copying_->bytes);
  }
  return made;
}

std::vector<v1::Checkpoint> MirrorView::OnlyThere(const std::string& job) const {
  MutexLock lock(mutex_);
  const MirrorJob* seen = Of(job);
  return seen == nullptr ? std::vector<v1::Checkpoint>() : ListOnlyThere(*seen, job, address_);
}

MirrorCounts MirrorView::counts() const {
  MutexLock lock(mutex_);
  MirrorCounts counts = counts_;
  counts.reachable = reached_ && TroubleOf("").ok();
  for (const auto& [job, seen] : seen_) counts.steps_waiting += seen.work().copy.size();
  return counts;
}

}  // namespace cairn
