#include "store/read/lineage.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace cairn {

JobLineage::JobLineage(std::vector<Commit> commits) : commits_(std::move(commits)) {
  if (const Commit* newest = Newest(); newest != nullptr) superseded_ = NotBelow(newest->lineage);
  for (const Commit& commit : commits_) {
    if (!superseded_.contains(commit.step)) latest_ = std::max(latest_.value_or(commit.step), commit.step);
  }
}

const JobLineage::Commit* JobLineage::Newest() const {
  const auto newest = std::max_element(commits_.begin(), commits_.end(), [](const Commit& a, const Commit& b) {
    return std::tuple(a.lineage.sequence, a.step) < std::tuple(b.lineage.sequence, b.step);
  });
  return newest == commits_.end() ? nullptr : &*newest;
}

uint64_t JobLineage::sequence() const {
  const Commit* newest = Newest();
  return newest == nullptr ? 0 : newest->lineage.sequence;
}

Lineage JobLineage::Next(const std::optional<ResumePoint>& resumed) const {
  const Commit* newest = Newest();
  Lineage next = newest == nullptr ? Lineage() : newest->lineage;
  ++next.sequence;
  if (!resumed.has_value()) return next;
  const uint64_t newest_line = next.line;
  next.line = resumed->line;
  next.continues_step = resumed->step;
  // If the step was removed after it was loaded, it most likely belonged to the newest line.
  next.parent_line = newest_line;
  for (const Commit& commit : commits_) {
    if (commit.step == resumed->step && commit.lineage.line != resumed->line) next.parent_line = commit.lineage.line;
  }
  for (const Commit& commit : commits_) {
    if (commit.lineage.line == resumed->line) next.parent_line = commit.lineage.parent_line;
  }
  return next;
}

std::set<int64_t> JobLineage::NotBelow(const Lineage& lineage) const {
  struct Origin {
    std::optional<int64_t> step;
    uint64_t line = 0;
  };
  std::map<uint64_t, Origin> origins;
  for (const Commit& commit : commits_) {
    origins.try_emplace(commit.lineage.line, Origin{commit.lineage.continues_step, commit.lineage.parent_line});
  }
  origins.try_emplace(lineage.line, Origin{lineage.continues_step, lineage.parent_line});
  // For each line, the highest step on which the commit builds. A line that names itself as an ancestor is damage, and
  // ends the walk.
  std::map<uint64_t, int64_t> reach;
  uint64_t line = lineage.line;
  int64_t limit = INT64_MAX;
  // True: the walk has ended at a line of which no checkpoint is left, so that nobody knows the line before it.
  bool lost = false;
  while (reach.try_emplace(line, limit).second) {
    const auto origin = origins.find(line);
    lost = origin == origins.end() && line != 0;
    if (origin == origins.end() || !origin->second.step.has_value()) break;
    limit = std::min(limit, *origin->second.step);
    line = origin->second.line;
  }
  std::set<int64_t> steps;
  for (const Commit& commit : commits_) {
    const auto found = reach.find(commit.lineage.line);
    const bool below = found != reach.end() ? commit.step <= found->second : lost && commit.step <= limit;
    if (!below) steps.insert(commit.step);
  }
  return steps;
}

std::set<int64_t> JobLineage::LeftBehindBy(const std::optional<ResumePoint>& resumed) const {
  return NotBelow(Next(resumed));
}

std::optional<Lineage> JobLineage::Recover(int64_t step) const {
  const Commit* newest = Newest();
  if (newest == nullptr) return std::nullopt;
  std::map<uint64_t, const Commit*> first;
  for (const Commit& commit : commits_) {
    const Commit*& known = first.try_emplace(commit.lineage.line, &commit).first->second;
    if (commit.lineage.sequence < known->lineage.sequence) known = &commit;
  }
  if (step > latest_) {
    if (first.size() > 1) return std::nullopt;
    Lineage last = newest->lineage;
    ++last.sequence;
    return last;
  }
  uint64_t line = newest->lineage.line;
  std::set<uint64_t> seen;
  while (seen.insert(line).second) {
    const auto known = first.find(line);
    if (known == first.end()) return std::nullopt;
    const Lineage& lineage = known->second->lineage;
    if (!lineage.continues_step.has_value() || step > *lineage.continues_step) return lineage;
    line = lineage.parent_line;
  }
  return std::nullopt;
}

bool JobLineage::LeavesBehind(const std::optional<ResumePoint>& resumed, int64_t step) const {
  return LeftBehindBy(resumed).contains(step);
}

}  // namespace cairn
