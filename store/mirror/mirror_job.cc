#include "store/mirror/mirror_job.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// All steps of a job are read so often though nothing is known to have changed: somebody may have changed the mirror.
constexpr absl::Duration kLookEach = absl::Minutes(10);
// A step whose records could not be read is looked at again after so long.
constexpr absl::Duration kUnreadRetry = absl::Seconds(10);
// So long a look at the files of a copy counts.
constexpr absl::Duration kCheckedFor = absl::Minutes(1);
// So often it is looked at the files of a copy that only the mirror has.
constexpr absl::Duration kFilesEach = absl::Hours(6);

// If more steps have changed, all are read: that takes as long, because they are read at once.
constexpr size_t kMostRead = 64;

// Puts `read`, the records of `steps`, in the place of those that were known. All ascend.
void Replace(std::vector<StepRecord>& known, const std::vector<int64_t>& steps, std::vector<StepRecord> read) {
  std::erase_if(known, [&](const StepRecord& one) { return std::binary_search(steps.begin(), steps.end(), one.step); });
  const auto middle = static_cast<std::ptrdiff_t>(known.size());
  std::move(read.begin(), read.end(), std::back_inserter(known));
  std::inplace_merge(known.begin(), known.begin() + middle, known.end(),
                     [](const StepRecord& a, const StepRecord& b) { return a.step < b.step; });
}

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

}  // namespace

void MirrorJob::Note(MirrorReading reading, absl::Time now) {
  if (reading.began < began_) return;
  began_ = reading.began;
  const auto was_read = [&](int64_t step) {
    return !reading.steps.has_value() || std::binary_search(reading.steps->begin(), reading.steps->end(), step);
  };
  std::erase_if(changed_, [&](const auto& one) { return one.second < began_ && was_read(one.first); });
  std::erase_if(changes_, [&](const Change& change) { return change.time < began_ && was_read(change.step); });
  for (const Change& change : changes_) {
    if (was_read(change.step)) Apply(change, reading.records);
  }
  if (reading.steps.has_value()) {
    Replace(records_.root, *reading.steps, std::move(reading.records.root));
    Replace(records_.mirror, *reading.steps, std::move(reading.records.mirror));
  } else {
    records_ = std::move(reading.records);
    if (all_by_ <= began_) all_by_ = now + kLookEach;
  }
  // Whoever reads the job beside the looks does not put off the next one.
  next_look_ = std::min(next_look_ > now ? next_look_ : absl::InfiniteFuture(), std::max(now, all_by_));
  undone_ = absl::OkStatus();
  Join(now);
}

std::optional<std::vector<int64_t>> MirrorJob::ToRead(absl::Time now) const {
  if (all_by_ <= now || changed_.size() > kMostRead) return std::nullopt;
  std::vector<int64_t> steps;
  for (const auto& [step, time] : changed_) steps.push_back(step);
  return steps;
}

bool MirrorJob::Apply(const Change& change, MirrorRecords& records) {
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
    const bool directory = attempt->directory;
    *attempt = change.attempt;
    attempt->directory = directory;
  } else if (stands) {
    *attempt = change.attempt;
  } else {
    step->attempts.insert(attempt, change.attempt);
  }
  return true;
}

void MirrorJob::Take(Change change) {
  if (!Apply(change, records_)) return;
  const absl::Time now = change.time;
  changes_.push_back(std::move(change));
  Join(now);
}

void MirrorJob::NoteDeleted(const StoredAttempt& deleted, absl::Time now) {
  NoteChanged(deleted.step, now);
  Take({deleted.step, deleted, /*at_root=*/true, now});
}

void MirrorJob::NoteCopied(int64_t step, uint32_t attempt, absl::Time now) {
  damaged_.erase(step);
  NoteChanged(step, now);
  const StepRecord* root = FindStep(records_.root, step);
  const StoredAttempt* commit = root == nullptr ? nullptr : root->deciding();
  // The step may have been saved anew since the copy began.
  if (commit != nullptr && commit->stands() && commit->attempt == attempt)
    Take({step, *commit, /*at_root=*/false, now});
}

void MirrorJob::Join(absl::Time now) {
  std::vector<MirrorStep> steps = JoinSteps(records_.root, records_.mirror);
  lineage_ = LineageOf(steps);
  sequence_ = std::max(sequence_, LineageOf(records_.mirror).sequence());
  highest_attempt_.clear();
  only_there_.clear();
  useless_there_.clear();
  for (const StepRecord& step : records_.mirror) {
    if (!step.attempts.empty()) highest_attempt_[step.step] = step.attempts.back().attempt;
  }
  std::erase_if(damaged_, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || step->mirrored != entry.second.attempt;
  });
  std::erase_if(looked_, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || step->copy != MirrorStep::Copy::kOnlyThere;
  });
  std::erase_if(checked_, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || !step->has_copy() || now - entry.second > kCheckedFor;
  });
  for (MirrorStep& step : steps) step.copy_damaged = damaged_.contains(step.step);
  std::erase_if(failed_, [&](const auto& entry) {
    const MirrorStep* step = FindStep(steps, entry.first);
    return step == nullptr || step->attempt != entry.second.attempt || step->has_copy() || entry.second.is_closed;
  });
  for (MirrorStep& step : steps) {
    const auto failed = failed_.find(step.step);
    step.uncopyable = failed != failed_.end() && failed->second.for_good && failed->second.next_try > now;
    if (step.unread) {
      next_look_ = std::min(next_look_, now + kUnreadRetry);
      NoteChanged(step.step, now);
    }
    const StepRecord* mirror = FindStep(records_.mirror, step.step);
    if (step.copy == MirrorStep::Copy::kOnlyThere && !step.at_root) only_there_[step.step] = *mirror;
    if (step.damaged_there || step.other_there) useless_there_[step.step] = *mirror;
    if (!step.closed || step.attempt == 0) continue;
    absl::Status why = WhyClosed(step, *mirror, job_, address_);
    if (why.ok()) continue;
    failed_[step.step] = {.attempt = step.attempt,
                          .error = std::move(why),
                          .for_good = true,
                          .next_try = absl::InfiniteFuture(),
                          .rest = {},
                          .is_closed = true};
  }
  work_ = WorkOf(steps, rule_);
  steps_ = std::move(steps);
  for (const auto& [number, failed] : failed_) {
    // It is no work until then; NextCopyTime knows the others.
    if (failed.for_good && failed.next_try > now) next_look_ = std::min(next_look_, failed.next_try);
  }
}

void MirrorJob::NoteFailure(int64_t step, uint32_t attempt, const absl::Status& error, bool for_good, absl::Time now,
                            absl::Duration rest, absl::Duration longest) {
  Failed& failed = failed_[step];
  if (failed.attempt == attempt) rest = std::clamp(2 * failed.rest, rest, std::max(rest, longest));
  failed = {attempt, error, for_good, now + rest, rest};
}

bool MirrorJob::NoteChecked(int64_t number, const absl::Status& whole, absl::Time now) {
  const auto step =
      std::find_if(steps_.begin(), steps_.end(), [&](const MirrorStep& one) { return one.step == number; });
  if (step == steps_.end()) return false;
  step->copy_damaged = !whole.ok();
  if (step->copy == MirrorStep::Copy::kOnlyThere) looked_[number] = now;
  if (whole.ok()) {
    checked_[number] = now;
    if (damaged_.erase(number) > 0) Join(now);
    return false;
  }
  checked_.erase(number);
  const bool is_news = damaged_.insert_or_assign(number, Damaged{step->mirrored, whole}).second;
  // Rules must not delete the step at the root before the next look.
  if (is_news) Join(now);
  return is_news;
}

bool MirrorJob::NoteUndone(const absl::Status& error) { return std::exchange(undone_, error) != error; }

std::optional<int64_t> MirrorJob::NextCopy(absl::Time now) const {
  for (const int64_t step : work_.copy) {
    const auto failed = failed_.find(step);
    if (failed == failed_.end() || failed->second.next_try <= now) return step;
  }
  return std::nullopt;
}

absl::Time MirrorJob::NextCopyTime(absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  for (const int64_t step : work_.copy) {
    const auto failed = failed_.find(step);
    if (failed == failed_.end()) return now;
    next = std::min(next, std::max(now, failed->second.next_try));
  }
  return next;
}

std::vector<int64_t> MirrorJob::UncheckedOnlyThere(absl::Time now) const {
  std::vector<int64_t> steps;
  for (const auto& [step, record] : only_there_) {
    const auto looked = looked_.find(step);
    if (looked == looked_.end() || now - looked->second > kFilesEach) steps.push_back(step);
  }
  return steps;
}

bool MirrorJob::Awaits(int64_t step, bool is_told) const {
  const MirrorStep* found = Find(step);
  if (found == nullptr || found->attempt == 0) return true;
  // While nobody can look at a copy, the newest ones stay.
  return Contains(work_.lacking, step) || (!is_told && found->has_copy() && !checked_.contains(step));
}

bool MirrorJob::NeedsNoCheck(int64_t step, bool is_told, absl::Time now) const {
  const MirrorStep* found = Find(step);
  if (found == nullptr) return false;
  if (!found->has_copy() || !is_told) return !Contains(work_.lacking, step);
  const auto checked = checked_.find(step);
  return checked != checked_.end() && now - checked->second <= kCheckedFor;
}

std::optional<int64_t> MirrorJob::OnlyThereWithTag(const std::string& tag) const {
  for (const auto& [number, step] : only_there_) {
    if (std::find(step.tags.begin(), step.tags.end(), tag) != step.tags.end()) return number;
  }
  return std::nullopt;
}

bool MirrorJob::IsBuiltOnThere(int64_t step, const std::optional<ResumePoint>& resumed) const {
  return only_there_.contains(step) && !Find(step)->superseded && !lineage_.LeavesBehind(resumed, step);
}

bool MirrorJob::IsLatest(int64_t step) const {
  const MirrorStep* found = Find(step);
  if (found != nullptr && found->superseded) return false;
  return std::none_of(steps_.begin(), steps_.end(), [&](const MirrorStep& one) {
    return one.step > step && one.loadable() && !one.at_root && !one.superseded;
  });
}

uint32_t MirrorJob::HighestAttempt(int64_t step) const {
  const auto found = highest_attempt_.find(step);
  return found == highest_attempt_.end() ? 0 : found->second;
}

Lineage MirrorJob::Continue(Lineage lineage) const {
  lineage.sequence = std::max(lineage.sequence, sequence_ + 1);
  if (!lineage.continues_step.has_value()) return lineage;
  const MirrorStep* from = Find(*lineage.continues_step);
  if (from != nullptr && from->copy == MirrorStep::Copy::kOnlyThere && from->lineage.line != lineage.line) {
    lineage.parent_line = from->lineage.line;
  }
  return lineage;
}

absl::Status MirrorJob::DamageOf(int64_t step) const {
  const auto damaged = damaged_.find(step);
  return damaged == damaged_.end() ? absl::OkStatus() : damaged->second.error;
}

}  // namespace cairn
