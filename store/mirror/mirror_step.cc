#include "store/mirror/mirror_step.h"

#include <map>
#include <optional>
#include <utility>

namespace cairn {
namespace {

bool IsReadable(const StoredAttempt& record) { return record.committed && !record.damaged; }

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
  const Namesake namesake = NamesakeOf(root, mirrored);
  if (namesake == Namesake::kForeign) return Copy::kOther;
  if (mirrored.attempt <= deleted) {
    if (namesake != Namesake::kUnknown || mirrored.damaged) return Copy::kDeleted;
    // Nobody has said that this commit may go.
    return standing != nullptr && standing->attempt > mirrored.attempt ? Copy::kReplaced : Copy::kOther;
  }
  if (last == nullptr || (standing == nullptr && last->attempt < mirrored.attempt)) return Copy::kOnlyThere;
  if (last->attempt > mirrored.attempt) return Copy::kReplaced;
  if (last->attempt != mirrored.attempt) return Copy::kOther;
  return standing != nullptr ? Copy::kSame : Copy::kOnlyThere;
}

bool StandsAnywhere(const MirrorStep& step) { return step.attempt != 0 || step.loadable(); }

// Where the lines of a job come from.
class Histories {
 public:
  explicit Histories(const std::vector<MirrorStep>& steps) {
    const MirrorStep* newest = nullptr;
    for (const MirrorStep& step : steps) {
      if (StandsAnywhere(step)) lines_.emplace(step.lineage.line, step.lineage);
      if (step.attempt != 0 && (newest == nullptr || newest->lineage.sequence < step.lineage.sequence)) newest = &step;
    }
    if (newest != nullptr) roots_ = FirstOf(newest->lineage.line);
  }

  // Returns whether the step is of a root that was lost, and the present one has begun anew: it does not know the step,
  // and the two go back to different first lines. If a line between them is not known, they count as one history.
  bool IsOfAnother(const MirrorStep& step) const {
    if (step.known || !roots_.has_value()) return false;
    const std::optional<uint64_t> first = FirstOf(step.lineage.line);
    return first.has_value() && first != roots_;
  }

 private:
  // Returns the line that went on from no other one, and from which this line goes back to it; nothing if a line on the
  // way is not known, or if the lines go round in a circle.
  std::optional<uint64_t> FirstOf(uint64_t line) const {
    for (size_t steps = 0; steps <= lines_.size(); ++steps) {
      const auto found = lines_.find(line);
      if (found == lines_.end()) return std::nullopt;
      if (!found->second.continues_step.has_value()) return line;
      line = found->second.parent_line;
    }
    return std::nullopt;
  }

  std::map<uint64_t, Lineage> lines_;
  std::optional<uint64_t> roots_;  // the first line of the root's newest commit
};

bool IsUnread(const StepRecord& step) {
  return !step.unlisted.ok() || std::any_of(step.attempts.begin(), step.attempts.end(), [](const StoredAttempt& one) {
    return one.damaged && IsReadFailure(one.error);
  });
}

}  // namespace

Namesake NamesakeOf(const StepRecord& root, const StoredAttempt& mirrored) {
  const auto namesake = std::find_if(root.attempts.begin(), root.attempts.end(),
                                     [&](const StoredAttempt& attempt) { return attempt.attempt == mirrored.attempt; });
  if (namesake == root.attempts.end()) return Namesake::kNone;
  if (namesake->aborted() || namesake->unfinished) return Namesake::kForeign;
  if (!IsReadable(*namesake) || !IsReadable(mirrored)) return Namesake::kUnknown;
  if (IsSameCommit(*namesake, mirrored)) return Namesake::kSame;
  // A repair knows neither the request nor the time of the commit.
  return namesake->repaired || mirrored.repaired ? Namesake::kUnknown : Namesake::kForeign;
}

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
    found.unread = IsUnread(*root);
  }
  if (commit != nullptr) {
    found.attempt = commit->attempt;
    found.lineage = commit->lineage;
    found.time = commit->time;
  }
  if (mirror == nullptr) return found;
  found.kept = found.kept || mirror->pinned || !mirror->tags.empty();
  found.unread = found.unread || IsUnread(*mirror);
  if (mirror->state() == StepRecord::State::kCommitted) {
    const StoredAttempt& mirrored = *mirror->deciding();
    found.mirrored = mirrored.attempt;
    found.copy = CopyOf(root == nullptr ? kNothing : *root, standing, mirrored);
    found.by_number = root != nullptr && NamesakeOf(*root, mirrored) == Namesake::kUnknown;
    // A later attempt that another coordinator has made there would hide the root's.
    if (found.copy == MirrorStep::Copy::kOther) found.closed = true;
    found.other_there = found.copy == MirrorStep::Copy::kOther && !found.at_root && !found.unread;
    if (commit == nullptr) {
      found.lineage = mirrored.lineage;
      found.time = mirrored.time;
    }
  }
  if (mirror->state() == StepRecord::State::kDamaged && !found.at_root && !found.unread) {
    const MirrorStep::Copy copy = CopyOf(root == nullptr ? kNothing : *root, standing, *mirror->deciding());
    found.damaged_there = copy != MirrorStep::Copy::kDeleted && copy != MirrorStep::Copy::kReplaced;
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
  const Histories histories(steps);
  for (MirrorStep& step : steps) step.superseded = histories.IsOfAnother(step);
  const JobLineage lineage = LineageOf(steps);
  for (MirrorStep& step : steps) {
    step.superseded = step.superseded || (StandsAnywhere(step) && lineage.superseded().contains(step.step));
  }
  return steps;
}

JobLineage LineageOf(const std::vector<MirrorStep>& steps) {
  const Histories histories(steps);
  std::vector<JobLineage::Commit> commits;
  for (const MirrorStep& step : steps) {
    if (StandsAnywhere(step) && !histories.IsOfAnother(step)) commits.push_back({step.step, step.lineage});
  }
  return JobLineage(std::move(commits));
}

}  // namespace cairn
