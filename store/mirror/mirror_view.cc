#include "store/mirror/mirror_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "store/read/listed_checkpoint.h"

namespace cairn {
namespace {

// A job is looked at so often though nothing is known to have changed: somebody may have changed the mirror.
constexpr absl::Duration kLookEach = absl::Minutes(10);
// A step whose records could not be read is looked at again after so long.
constexpr absl::Duration kUnreadRetry = absl::Seconds(10);
// So long a look at the files of a copy counts.
constexpr absl::Duration kCheckedFor = absl::Minutes(1);
// So often it is looked at the files of a copy that only the mirror has.
constexpr absl::Duration kFilesEach = absl::Hours(6);
constexpr size_t kMaxEmpty = 1000;

bool Contains(const std::vector<int64_t>& steps, int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

// Says why the mirror cannot take the attempt of a closed step; OK if its copy was deleted there.
absl::Status WhyClosed(const MirrorStep& step, const StepRecord& mirror, const std::string& job,
                       const std::string& address) {
  for (const StoredAttempt& attempt : mirror.attempts) {
    if (attempt.attempt != step.attempt) continue;
    if (attempt.deleted) return absl::OkStatus();
    if (attempt.damaged) return attempt.error;
  }
  return MakeError(
      Reason::kStepCommitted,
      absl::StrCat("the mirror ", address, " has another checkpoint of ", job, "@", step.step, ", attempt ",
                   step.mirrored, ", which stays there"),
      {{"job", job},
       {"step", absl::StrCat(step.step)},
       {"next", absl::StrCat("Compare the two: `cairn diff`. Then save under another job's name, or delete "
                             "the step at both: `cairn delete ",
                             job, "@", step.step, "`.")}});
}

// Says what a step is that the root has no more, and of which the mirror has a commit that the root never had.
absl::Status OtherThere(const std::string& job, int64_t step, const std::string& address) {
  const std::string name = absl::StrCat(job, "@", step);
  return MakeError(Reason::kStepCommitted,
                   absl::StrCat("the mirror ", address, " has another checkpoint than the one that was ", name,
                                " at the root, so no load takes it"),
                   {{"job", job},
                    {"step", absl::StrCat(step)},
                    {"next", absl::StrCat("To look at it, give --root ", address,
                                          ". To delete it there: `cairn delete ", name, "`.")}});
}

}  // namespace

const MirrorView::Seen* MirrorView::Of(const std::string& job) const {
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

MirrorWork MirrorView::Note(const std::string& job, MirrorRecords records, absl::Time began, absl::Time now) {
  MutexLock lock(mutex_);
  Seen& seen = seen_[job];
  seen.next_look = now + kLookEach;
  seen.undone = absl::OkStatus();
  std::erase_if(seen.changes, [&](const Change& change) { return change.time < began; });
  for (const Change& change : seen.changes) Apply(change, records);
  seen.records = std::move(records);
  Join(job, seen, now);
  MirrorWork work = seen.work;
  unlooked_.erase(job);
  empty_.erase(job);
  if (seen.steps.empty()) {  // anybody may name a job
    seen_.erase(job);
    if (empty_.size() >= kMaxEmpty) empty_.clear();
    empty_.insert(job);
  }
  changed_.NotifyAll();
  return work;
}

bool MirrorView::Apply(const Change& change, MirrorRecords& records) {
  std::vector<StepRecord>& steps = change.at_root ? records.root : records.mirror;
  auto step = std::lower_bound(steps.begin(), steps.end(), change.step,
                               [](const StepRecord& one, int64_t number) { return one.step < number; });
  if (step == steps.end() || step->step != change.step) {
    if (change.at_root) return false;
    step = steps.insert(step, StepRecord{.step = change.step});
  }
  auto attempt = std::lower_bound(step->attempts.begin(), step->attempts.end(), change.attempt.attempt,
                                  [](const StoredAttempt& one, uint32_t number) { return one.attempt < number; });
  const bool stands = attempt != step->attempts.end() && attempt->attempt == change.attempt.attempt;
  if (change.at_root) {
    if (!stands) return false;
    attempt->deleted = true;
    attempt->deleted_by_rules = change.attempt.deleted_by_rules;
  } else if (stands) {
    *attempt = change.attempt;
  } else {
    step->attempts.insert(attempt, change.attempt);
  }
  return true;
}

void MirrorView::Take(const std::string& job, Change change) {
  const auto seen = seen_.find(job);
  if (seen == seen_.end()) return;
  if (!Apply(change, seen->second.records)) return;
  const absl::Time now = change.time;
  seen->second.changes.push_back(std::move(change));
  Join(job, seen->second, now);
}

void MirrorView::NoteDeleted(const std::string& job, int64_t step, uint32_t attempt, bool by_rules, absl::Time now) {
  MutexLock lock(mutex_);
  StoredAttempt deleted;
  deleted.step = step;
  deleted.attempt = attempt;
  deleted.deleted_by_rules = by_rules;
  Take(job, {step, std::move(deleted), /*at_root=*/true, now});
}

void MirrorView::Join(const std::string& job, Seen& seen, absl::Time now) {
  const MirrorRecords& records = seen.records;
  std::vector<MirrorStep> steps = JoinSteps(records.root, records.mirror);
  seen.lineage = LineageOf(steps);
  seen.sequence = std::max(seen.sequence, LineageOf(records.mirror).sequence());
  seen.highest_attempt.clear();
  seen.only_there.clear();
  seen.useless_there.clear();
  for (const StepRecord& step : records.mirror) {
    if (!step.attempts.empty()) seen.highest_attempt[step.step] = step.attempts.back().attempt;
  }
  std::erase_if(seen.damaged, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || step->mirrored != entry.second.attempt;
  });
  std::erase_if(seen.looked, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || step->copy != MirrorStep::Copy::kOnlyThere;
  });
  std::erase_if(seen.checked, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || !step->has_copy() || now - entry.second > kCheckedFor;
  });
  for (MirrorStep& step : steps) step.copy_damaged = seen.damaged.contains(step.step);
  std::erase_if(seen.failed, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || step->attempt != entry.second.attempt || step->has_copy() || entry.second.is_closed;
  });
  for (MirrorStep& step : steps) {
    const auto failed = seen.failed.find(step.step);
    step.uncopyable = failed != seen.failed.end() && failed->second.for_good && failed->second.next_try > now;
    if (step.unread) seen.next_look = std::min(seen.next_look, now + kUnreadRetry);
    const StepRecord* mirror = FindStep(records.mirror, step.step);
    if (step.copy == MirrorStep::Copy::kOnlyThere && !step.at_root) seen.only_there[step.step] = *mirror;
    if (step.damaged_there || step.other_there) seen.useless_there[step.step] = *mirror;
    if (!step.closed || step.attempt == 0) continue;
    absl::Status why = WhyClosed(step, *mirror, job, address_);
    if (why.ok()) continue;
    seen.failed[step.step] = {.attempt = step.attempt,
                              .error = std::move(why),
                              .for_good = true,
                              .next_try = absl::InfiniteFuture(),
                              .rest = {},
                              .is_closed = true};
  }
  seen.work = WorkOf(steps, rule_);
  seen.steps = std::move(steps);
  for (const auto& [number, failed] : seen.failed) {
    // It is no work until then; NextCopyTime knows the others.
    if (failed.for_good && failed.next_try > now) seen.next_look = std::min(seen.next_look, failed.next_try);
  }
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
  const auto seen = seen_.find(job);
  if (seen == seen_.end()) return false;
  if (!error.ok()) ++counts_.failures;
  return std::exchange(seen->second.undone, error) != error;
}

void MirrorView::LookBy(const std::string& job, absl::Time time) {
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  if (seen != seen_.end()) seen->second.next_look = std::min(seen->second.next_look, time);
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
    if (!unlooked_.contains(job)) consider(job, seen.next_look);
  }
  for (const auto& [job, unlooked] : unlooked_) consider(job, unlooked.next_try);
  return due;
}

absl::Time MirrorView::NextLook() const {
  MutexLock lock(mutex_);
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [job, seen] : seen_) {
    if (!unlooked_.contains(job)) next = std::min(next, seen.next_look);
  }
  for (const auto& [job, unlooked] : unlooked_) next = std::min(next, unlooked.next_try);
  return next;
}

absl::Time MirrorView::NextCopyTime(absl::Time now) const {
  MutexLock lock(mutex_);
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [job, seen] : seen_) {
    if (seen.work.copy.empty() || !TroubleOf(job).ok()) continue;
    for (const int64_t step : seen.work.copy) {
      const auto failed = seen.failed.find(step);
      next = std::min(next, failed == seen.failed.end() ? now : std::max(now, failed->second.next_try));
    }
  }
  return next;
}

std::optional<MirrorView::Copy> MirrorView::NextCopy(absl::Time now) {
  MutexLock lock(mutex_);
  for (const bool later : {true, false}) {
    for (const auto& [job, seen] : seen_) {
      if ((job > last_copied_) != later || seen.work.copy.empty() || !TroubleOf(job).ok()) continue;
      for (const int64_t step : seen.work.copy) {
        const auto failed = seen.failed.find(step);
        if (failed != seen.failed.end() && failed->second.next_try > now) continue;
        last_copied_ = job;
        return Copy{job, step};
      }
    }
  }
  return std::nullopt;
}

void MirrorView::BeginCopy(const Copy& copy, uint64_t bytes, const std::atomic<uint64_t>& bytes_done) {
  MutexLock lock(mutex_);
  copying_ = {copy, bytes, &bytes_done};
}

void MirrorView::EndCopy(const absl::Status& status, absl::Time now) {
  MutexLock lock(mutex_);
  if (status.ok() && copying_.has_value()) {
    ++counts_.steps_copied;
    counts_.bytes_copied += copying_->bytes;
    const auto& [job, step] = copying_->copy;
    if (const auto seen = seen_.find(job); seen != seen_.end()) {
      seen->second.damaged.erase(step);
      const StepRecord* root = FindStep(seen->second.records.root, step);
      const StoredAttempt* commit = root == nullptr ? nullptr : root->deciding();
      if (commit != nullptr && commit->stands()) Take(job, {step, *commit, /*at_root=*/false, now});
    }
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
  Failed& failed = seen_[copy.job].failed[copy.step];
  if (failed.attempt == attempt) rest = std::clamp(2 * failed.rest, rest, std::max(rest, longest));
  failed = {attempt, error, for_good, now + rest, rest};
  if (for_good) ++counts_.failures;
}

bool MirrorView::NoteChecked(const Copy& copy, const absl::Status& whole, absl::Time now) {
  MutexLock lock(mutex_);
  const auto found = seen_.find(copy.job);
  if (found == seen_.end()) return false;
  Seen& seen = found->second;
  const auto step =
      std::find_if(seen.steps.begin(), seen.steps.end(), [&](const MirrorStep& one) { return one.step == copy.step; });
  if (step == seen.steps.end()) return false;
  step->copy_damaged = !whole.ok();
  if (step->copy == MirrorStep::Copy::kOnlyThere) seen.looked[copy.step] = now;
  if (whole.ok()) {
    seen.checked[copy.step] = now;
    if (seen.damaged.erase(copy.step) > 0) Join(copy.job, seen, now);
    return false;
  }
  seen.checked.erase(copy.step);
  const bool is_news = seen.damaged.insert_or_assign(copy.step, Damaged{step->mirrored, whole}).second;
  // Rules must not delete the step at the root before the next look.
  if (is_news) Join(copy.job, seen, now);
  return is_news;
}

void MirrorView::NoteLooked(const Copy& copy, absl::Time now) {
  MutexLock lock(mutex_);
  if (const auto seen = seen_.find(copy.job); seen != seen_.end()) seen->second.looked[copy.step] = now;
}

std::vector<int64_t> MirrorView::UncheckedOnlyThere(const std::string& job, absl::Time now) const {
  std::vector<int64_t> steps;
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return steps;
  for (const auto& [step, record] : seen->only_there) {
    const auto looked = seen->looked.find(step);
    if (looked == seen->looked.end() || now - looked->second > kFilesEach) steps.push_back(step);
  }
  return steps;
}

bool MirrorView::Awaits(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  if (IsCopying(job, step)) return true;
  if (!rule_.Wants(step)) return false;
  const Seen* seen = Of(job);
  const MirrorStep* found = seen == nullptr ? nullptr : FindStep(seen->steps, step);
  if (found == nullptr || found->attempt == 0) return true;
  // While nobody can look at a copy, the newest ones stay.
  return Contains(seen->work.lacking, step) ||
         (!TroubleOf(job).ok() && found->has_copy() && !seen->checked.contains(step));
}

bool MirrorView::NeedsNoCheck(const std::string& job, int64_t step, absl::Time now) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  const MirrorStep* found = seen == nullptr ? nullptr : FindStep(seen->steps, step);
  if (!rule_.Wants(step)) return true;
  if (found == nullptr) return false;
  if (!found->has_copy() || !TroubleOf(job).ok()) return !Contains(seen->work.lacking, step);
  const auto checked = seen->checked.find(step);
  return checked != seen->checked.end() && now - checked->second <= kCheckedFor;
}

std::optional<MirrorStep> MirrorView::Find(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  const MirrorStep* found = seen == nullptr ? nullptr : FindStep(seen->steps, step);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

bool MirrorView::IsKnown(const std::string& job) const {
  MutexLock lock(mutex_);
  return Of(job) != nullptr || empty_.contains(job);
}

std::optional<int64_t> MirrorView::OnlyThereWithTag(const std::string& job, const std::string& tag) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return std::nullopt;
  for (const auto& [number, step] : seen->only_there) {
    if (std::find(step.tags.begin(), step.tags.end(), tag) != step.tags.end()) return number;
  }
  return std::nullopt;
}

bool MirrorView::IsBuiltOnThere(const std::string& job, int64_t step, const std::optional<ResumePoint>& resumed) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr || !seen->only_there.contains(step)) return false;
  return !FindStep(seen->steps, step)->superseded && !seen->lineage.LeavesBehind(resumed, step);
}

bool MirrorView::IsLatest(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return true;
  const MirrorStep* found = FindStep(seen->steps, step);
  if (found != nullptr && found->superseded) return false;
  return std::none_of(seen->steps.begin(), seen->steps.end(), [&](const MirrorStep& one) {
    return one.step > step && one.loadable() && !one.at_root && !one.superseded;
  });
}

std::optional<JobLineage> MirrorView::LineageOfBoth(const std::string& job) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  return seen == nullptr ? std::nullopt : std::optional(seen->lineage);
}

uint32_t MirrorView::HighestAttempt(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return 0;
  const auto found = seen->highest_attempt.find(step);
  return found == seen->highest_attempt.end() ? 0 : found->second;
}

Lineage MirrorView::Continue(const std::string& job, Lineage lineage) const {
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return lineage;
  lineage.sequence = std::max(lineage.sequence, seen->sequence + 1);
  if (!lineage.continues_step.has_value()) return lineage;
  const MirrorStep* from = FindStep(seen->steps, *lineage.continues_step);
  if (from != nullptr && from->copy == MirrorStep::Copy::kOnlyThere && from->lineage.line != lineage.line) {
    lineage.parent_line = from->lineage.line;
  }
  return lineage;
}

v1::MirroredCheckpoint MirrorView::Describe(const std::string& job, int64_t step) const {
  v1::MirroredCheckpoint made;
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return made;
  const MirrorStep* known = FindStep(seen->steps, step);
  const auto failed = seen->failed.find(step);
  if (IsCopying(job, step)) {
    made.set_state(v1::MirroredCheckpoint::COPYING);
  } else if (failed != seen->failed.end()) {
    made.set_state(failed->second.for_good ? v1::MirroredCheckpoint::FAILED : v1::MirroredCheckpoint::WAITING);
    *made.mutable_error() = StatusToProto(failed->second.error);
  } else if (known == nullptr || !known->at_root) {  // it was committed after the last look
    const bool passed_over = rule_.waits_for_each() && !rule_.Wants(step);
    made.set_state(passed_over ? v1::MirroredCheckpoint::LEFT_OUT : v1::MirroredCheckpoint::WAITING);
  } else if (known->copy == MirrorStep::Copy::kSame && !known->copy_damaged) {
    made.set_state(v1::MirroredCheckpoint::MIRRORED);
  } else {
    made.set_state(Contains(seen->work.copy, step) ? v1::MirroredCheckpoint::WAITING
                                                   : v1::MirroredCheckpoint::LEFT_OUT);
  }
  return made;
}

absl::Status MirrorView::UndoneOf(const Seen& seen) const {
  if (!seen.undone.ok()) return seen.undone;
  for (const auto& [step, failed] : seen.failed) {
    if (failed.for_good) continue;
    return WithMetadata(
        Annotate(failed.error, absl::StrCat("the mirror ", address_)),
        {{"next", absl::StrCat("The coordinator tries again. Look at the storage of ", address_, ".")}});
  }
  return absl::OkStatus();
}

v1::Mirror MirrorView::DescribeMirror(const std::string& job) const {
  v1::Mirror made;
  made.set_address(address_);
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (const absl::Status trouble = TroubleOf(job); !trouble.ok()) {
    *made.mutable_error() = StatusToProto(trouble);
  } else if (const absl::Status undone = seen == nullptr ? absl::OkStatus() : UndoneOf(*seen); !undone.ok()) {
    *made.mutable_error() = StatusToProto(undone);
  } else if (seen == nullptr && !empty_.contains(job)) {
    *made.mutable_error() = StatusToProto(MakeError(Reason::kStorageStalled,
                                                    absl::StrCat("the mirror ", address_, " was not looked at yet"),
                                                    {{"job", job}, {"next", "Ask again in a moment."}}));
  }
  if (seen != nullptr) made.set_steps_waiting(static_cast<uint32_t>(seen->work.copy.size()));
  if (copying_.has_value() && copying_->copy.job == job) {
    made.set_copying_step(copying_->copy.step);
    made.set_bytes_done(*copying_->bytes_done);
    made.set_bytes_total(copying_->bytes);
  }
  return made;
}

std::vector<v1::Checkpoint> MirrorView::OnlyThere(const std::string& job) const {
  std::vector<v1::Checkpoint> made;
  MutexLock lock(mutex_);
  const Seen* seen = Of(job);
  if (seen == nullptr) return made;
  for (const auto& [number, step] : seen->only_there) {
    v1::Checkpoint& entry = made.emplace_back(ListedCheckpoint(job, step, seen->lineage));
    if (FindStep(seen->steps, number)->superseded) entry.set_state(v1::Phase::SUPERSEDED);
    if (const auto damaged = seen->damaged.find(number); damaged != seen->damaged.end()) {
      entry.set_state(v1::Phase::DAMAGED);
      *entry.mutable_error() = StatusToProto(damaged->second.error);
    }
  }
  for (const auto& [number, step] : seen->useless_there) {
    v1::Checkpoint& entry = made.emplace_back(ListedCheckpoint(job, step, seen->lineage));
    if (!FindStep(seen->steps, number)->other_there) continue;
    entry.set_state(v1::Phase::SUPERSEDED);
    *entry.mutable_error() = StatusToProto(OtherThere(job, number, address_));
  }
  for (v1::Checkpoint& entry : made) entry.mutable_mirror()->set_state(v1::MirroredCheckpoint::ONLY_THERE);
  std::sort(made.begin(), made.end(),
            [](const v1::Checkpoint& a, const v1::Checkpoint& b) { return a.step() < b.step(); });
  return made;
}

MirrorCounts MirrorView::counts() const {
  MutexLock lock(mutex_);
  MirrorCounts counts = counts_;
  counts.reachable = reached_ && TroubleOf("").ok();
  for (const auto& [job, seen] : seen_) counts.steps_waiting += seen.work.copy.size();
  return counts;
}

}  // namespace cairn
