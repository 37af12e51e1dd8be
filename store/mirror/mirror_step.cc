#include "store/mirror/mirror_step.h"

#include <optional>

namespace cairn {
namespace {

// Returns whether two records are of one commit. Attempts of two roots may have the same number.
bool IsSameCommit(const StoredAttempt& one, const StoredAttempt& other) {
  return one.time == other.time && one.request_id == other.request_id && one.bytes == other.bytes;
}

// Says what the commit at the mirror is. `standing` decides the root's step; null: nothing stands there.
MirrorStep::Copy CopyOf(const StepRecord& root, const StoredAttempt* standing, const StoredAttempt& mirrored) {
  using Copy = MirrorStep::Copy;
  const StoredAttempt* last = standing;  // the last commit that the root had
  uint32_t deleted = 0;                  // the last one that a person deleted
  for (const StoredAttempt& attempt : root.attempts) {
    if (!attempt.deleted) continue;
    if (!attempt.deleted_by_rules) deleted = std::max(deleted, attempt.attempt);
    if (standing == nullptr) last = &attempt;
  }
  if (mirrored.attempt <= deleted) return Copy::kDeleted;
  if (last == nullptr || (standing == nullptr && last->attempt < mirrored.attempt)) return Copy::kOnlyThere;
  if (last->attempt > mirrored.attempt) return Copy::kReplaced;
  // Of a damaged record, and of one that a repair has made, only the number is known.
  const bool same = last->attempt == mirrored.attempt &&
                    (last->damaged || last->repaired || !last->committed || IsSameCommit(*last, mirrored));
  if (!same) return Copy::kOther;
  return standing != nullptr ? Copy::kSame : Copy::kOnlyThere;
}

// Returns when the root's history of the job began; never, if its first commit is not there any more.
absl::Time BeginOf(const std::vector<MirrorStep>& steps) {
  absl::Time began = absl::InfinitePast();
  for (const MirrorStep& step : steps) {
    if (step.attempt != 0 && step.lineage.sequence == 1) began = std::max(began, step.time);
  }
  return began;
}

bool StandsAnywhere(const MirrorStep& step) { return step.attempt != 0 || step.loadable(); }

}  // namespace

MirrorStep MirrorStepOf(const StepRecord* root, const StepRecord* mirror) {
  static const StepRecord kNothing;
  MirrorStep found;
  found.step = root != nullptr ? root->step : mirror->step;
  const StoredAttempt* standing = nullptr;
  const StoredAttempt* commit = nullptr;
  if (root != nullptr) {
    standing = root->deciding();
    if (root->state() == StepRecord::State::kCommitted) commit = standing;
    found.at_root = root->state() != StepRecord::State::kNothing;
    found.known = !root->attempts.empty() || !root->unlisted.ok();
    found.kept = root->pinned || !root->tags.empty();
  }
  if (commit != nullptr) {
    found.attempt = commit->attempt;
    found.lineage = commit->lineage;
    found.time = commit->time;
  }
  if (mirror == nullptr) return found;
  found.kept = found.kept || mirror->pinned || !mirror->tags.empty();
  found.closed = !mirror->unlisted.ok();
  if (mirror->state() == StepRecord::State::kCommitted) {
    const StoredAttempt& mirrored = *mirror->deciding();
    found.mirrored = mirrored.attempt;
    found.copy = CopyOf(root == nullptr ? kNothing : *root, standing, mirrored);
    // A later attempt that another coordinator has made there would hide the root's.
    if (found.copy == MirrorStep::Copy::kOther) found.closed = true;
    if (commit == nullptr) {
      found.lineage = mirrored.lineage;
      found.time = mirrored.time;
    }
  }
  for (const StoredAttempt& attempt : mirror->attempts) {
    if (attempt.unfinished && attempt.directory) found.half.insert(attempt.attempt);
    if (commit == nullptr || attempt.attempt != commit->attempt || attempt.unfinished) continue;
    // What rules have deleted there may be copied again.
    if (!attempt.stands() && !attempt.deleted_by_rules) found.closed = true;
  }
  return found;
}

std::vector<MirrorStep> JoinSteps(const std::vector<StepRecord>& root, const std::vector<StepRecord>& mirror) {
  std::vector<MirrorStep> steps;
  auto one = root.begin();
  auto other = mirror.begin();
  while (one != root.end() || other != mirror.end()) {
    const bool at_root = one != root.end() && (other == mirror.end() || one->step <= other->step);
    const bool there = other != mirror.end() && (one == root.end() || other->step <= one->step);
    steps.push_back(MirrorStepOf(at_root ? &*one : nullptr, there ? &*other : nullptr));
    if (at_root) ++one;
    if (there) ++other;
  }
  const absl::Time began = BeginOf(steps);
  for (MirrorStep& step : steps) step.superseded = !step.known && step.time < began;
  const JobLineage lineage = LineageOf(steps);
  for (MirrorStep& step : steps) {
    step.superseded = step.superseded || (StandsAnywhere(step) && lineage.superseded().contains(step.step));
  }
  return steps;
}

JobLineage LineageOf(const std::vector<MirrorStep>& steps) {
  const absl::Time began = BeginOf(steps);
  std::vector<JobLineage::Commit> commits;
  for (const MirrorStep& step : steps) {
    const bool left = !step.known && step.time < began;
    if (StandsAnywhere(step) && !left) commits.push_back({step.step, step.lineage});
  }
  return JobLineage(std::move(commits));
}

}  // namespace cairn
