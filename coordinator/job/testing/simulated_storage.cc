#include "coordinator/job/testing/simulated_storage.h"

#include <algorithm>
#include <variant>

#include "common/status/reason.h"

namespace cairn {

bool SimulatedStorage::HasFiles(AttemptKey attempt) const {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!HasFile(attempt, rank)) return false;
  }
  return true;
}

Recovered SimulatedStorage::ReadAll() const {
  Recovered recovered;
  for (const auto& [key, verdict] : verdicts_) recovered.verdict.push_back(verdict);
  for (const AttemptKey& key : directories_) {
    const VerdictSummary* verdict = Verdict(key);
    if (verdict != nullptr && verdict->stands()) continue;
    recovered.leftover.push_back({key.first, key.second, verdict != nullptr, verdict != nullptr && verdict->deleted});
  }
  return recovered;
}

Recovered SimulatedStorage::ReadStep(int64_t step) const {
  Recovered recovered;
  for (const auto& [key, verdict] : verdicts_) {
    if (key.first == step) recovered.verdict.push_back(verdict);
  }
  return recovered;
}

absl::StatusOr<Reserved> SimulatedStorage::Reserve(const ReserveAttempt& reserve, const absl::Status& failure) {
  const absl::Status committed = MakeError(Reason::kStepCommitted, "committed");
  uint32_t attempt = reserve.above + 1;
  for (const auto& [key, verdict] : verdicts_) {
    if (key.first != reserve.step) continue;
    if (verdict.stands() && !reserve.overwrite) return failure.ok() ? committed : failure;
    attempt = std::max(attempt, key.second + 1);
  }
  std::set<AttemptKey> here;
  for (const AttemptKey& key : directories_) {
    if (key.first == reserve.step) here.insert(key);
  }
  for (const AttemptKey& key : here) {
    attempt = std::max(attempt, key.second + 1);
    if (verdicts_.contains(key)) continue;
    PutIfAbsent(
        {.step = key.first, .attempt = key.second, .error = MakeError(Reason::kCoordinatorRestarted, "left behind")});
  }
  // What has a tombstone goes, as it does in the catalog.
  for (const AttemptKey& key : here) {
    if (!verdicts_.at(key).committed) Remove(key);
  }
  if (!failure.ok()) return failure;
  const AttemptKey taken{reserve.step, attempt};
  directories_.insert(taken);
  if (reserve.overwrite) overwrites_.insert(taken);
  return Reserved{attempt, attempt};
}

SimulatedStorage::Put SimulatedStorage::PutIfAbsent(const PutVerdict& put) {
  const AttemptKey key{put.step, put.attempt};
  if (verdicts_.contains(key) && !overwrites_verdicts_) return {verdicts_.at(key), false};
  VerdictSummary verdict;
  verdict.step = put.step;
  verdict.attempt = put.attempt;
  verdict.request_id = put.request_id;
  verdict.committed = put.manifest != nullptr;
  verdict.error = put.error;
  verdict.world_size = static_cast<uint32_t>(world_size_);
  verdicts_[key] = verdict;
  return {verdict, true};
}

void SimulatedStorage::Remove(AttemptKey attempt) {
  for (int rank = 0; rank < world_size_; ++rank) files_.erase({attempt, rank});
  directories_.erase(attempt);
}

ChangedSteps SimulatedStorage::Change(const ChangeSteps& change) {
  ChangedSteps changed;
  const auto standing = Standing();
  const auto* replaced = std::get_if<DeleteReplaced>(&change.change);
  const auto* deletion = std::get_if<DeleteStep>(&change.change);
  for (auto& [key, verdict] : verdicts_) {
    // A deletion that was done before counts as long as its files are there.
    const bool left =
        replaced != nullptr && key.first == replaced->step && verdict.deleted && directories_.contains(key);
    if (left) changed.deleted.push_back(verdict);
    if (!verdict.stands()) continue;
    const bool doomed = replaced != nullptr ? key.first == replaced->step && key.second < standing.at(key.first)
                                            : deletion != nullptr && key.first == deletion->step;
    if (!doomed || (deletion != nullptr && standing.size() == 1)) continue;
    verdict.deleted = true;
    verdict.error = MakeError(Reason::kNotCommitted, "deleted");
    changed.deleted.push_back(verdict);
    ++deletions_;
  }
  return changed;
}

const VerdictSummary* SimulatedStorage::Verdict(AttemptKey attempt) const {
  const auto found = verdicts_.find(attempt);
  return found == verdicts_.end() ? nullptr : &found->second;
}

std::map<int64_t, uint32_t> SimulatedStorage::Standing() const {
  std::map<int64_t, uint32_t> standing;
  for (const auto& [key, verdict] : verdicts_) {
    if (verdict.stands()) standing[key.first] = key.second;
  }
  return standing;
}

}  // namespace cairn
