#include "coordinator/job/testing/simulated_storage.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/status/reason.h"
#include "store/read/lineage.h"

namespace cairn {

bool SimulatedStorage::HasFiles(AttemptKey attempt) const {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!HasFile(attempt, rank)) return false;
  }
  return true;
}

bool SimulatedStorage::WrittenBy(AttemptKey attempt, const std::string& plan) const {
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto file = files_.find({attempt, rank});
    if (file == files_.end() || file->second != plan) return false;
  }
  return true;
}

StoredAttempts SimulatedStorage::ReadAll() const {
  StoredAttempts recovered;
  for (const auto& [key, outcome] : outcomes_) {
    recovered.push_back(outcome);
    recovered.back().directory = directories_.contains(key);
  }
  for (const auto& [step, attempt] : directories_) {
    if (outcomes_.contains({step, attempt})) continue;
    recovered.push_back({.step = step, .attempt = attempt, .unfinished = true, .directory = true});
  }
  return recovered;
}

StoredAttempts SimulatedStorage::ReadStep(int64_t step) const {
  StoredAttempts recovered;
  for (const auto& [key, outcome] : outcomes_) {
    if (key.first == step) recovered.push_back(outcome);
  }
  return recovered;
}

absl::StatusOr<Reserved> SimulatedStorage::Reserve(const ReserveAttempt& reserve, const absl::Status& failure) {
  const absl::Status committed = MakeError(Reason::kStepCommitted, "committed");
  uint32_t attempt = reserve.above + 1;
  for (const auto& [key, outcome] : outcomes_) {
    if (key.first != reserve.step) continue;
    if (outcome.stands() && !reserve.overwrite) return failure.ok() ? committed : failure;
    attempt = std::max(attempt, key.second + 1);
  }
  std::set<AttemptKey> here;
  for (const AttemptKey& key : directories_) {
    if (key.first == reserve.step) here.insert(key);
  }
  for (const AttemptKey& key : here) {
    attempt = std::max(attempt, key.second + 1);
    if (outcomes_.contains(key)) continue;
    PutIfAbsent(
        {.step = key.first, .attempt = key.second, .error = MakeError(Reason::kCoordinatorRestarted, "left behind")});
  }
  // An attempt that has an abort record goes, as it does in the catalog.
  for (const AttemptKey& key : here) {
    if (!outcomes_.at(key).committed) Remove(key);
  }
  if (!failure.ok()) return failure;
  const AttemptKey taken{reserve.step, attempt};
  directories_.insert(taken);
  if (reserve.overwrite) overwrites_.insert(taken);
  return Reserved{attempt, attempt};
}

SimulatedStorage::Put SimulatedStorage::PutIfAbsent(const PutOutcome& put) {
  const AttemptKey key{put.step, put.attempt};
  if (outcomes_.contains(key) && !overwrites_outcomes_) return {outcomes_.at(key), false};
  StoredAttempt outcome;
  outcome.step = put.step;
  outcome.attempt = put.attempt;
  outcome.request_id = put.request_id;
  outcome.committed = put.manifest != nullptr;
  outcome.error = put.error;
  outcome.world_size = static_cast<uint32_t>(world_size_);
  outcomes_[key] = outcome;
  return {outcome, true};
}

void SimulatedStorage::Remove(AttemptKey attempt) {
  for (int rank = 0; rank < world_size_; ++rank) files_.erase({attempt, rank});
  directories_.erase(attempt);
}

void SimulatedStorage::Delete(AttemptKey attempt, ChangedSteps& changed) {
  StoredAttempt& outcome = outcomes_.at(attempt);
  outcome.deleted = true;
  outcome.error = MakeError(Reason::kNotCommitted, "deleted");
  changed.deleted.push_back(outcome);
  ++deletions_;
}

ChangedSteps SimulatedStorage::Prune(const PruneSteps& prune) {
  ChangedSteps changed;
  if (!prune.policy.has_value()) return changed;
  changed.policy = *prune.policy;
  const auto standing = Standing();
  std::vector<JobLineage::Commit> commits;
  for (const auto& [step, attempt] : standing) commits.push_back({step, outcomes_.at({step, attempt}).lineage});
  const JobLineage lineage(std::move(commits));
  std::vector<PruneCandidate> candidates;
  for (const auto& [step, attempt] : standing) {
    PruneCandidate& candidate = candidates.emplace_back();
    candidate.step = step;
    candidate.superseded = lineage.superseded().contains(step);
    candidate.in_use = std::find(prune.in_use.begin(), prune.in_use.end(), step) != prune.in_use.end();
  }
  changed.choices = ChoosePruned(candidates, *prune.policy, [](int64_t) { return true; });
  std::optional<int64_t> deleted;
  for (const PruneChoice& choice : changed.choices) {
    if (!choice.prune || (prune.after.has_value() && choice.step <= *prune.after)) continue;
    if (deleted.has_value()) {
      changed.stopped_after = deleted;
      break;
    }
    for (uint32_t attempt = 1; attempt <= standing.at(choice.step); ++attempt) {
      const StoredAttempt* outcome = Outcome({choice.step, attempt});
      if (outcome != nullptr && outcome->stands()) Delete({choice.step, attempt}, changed);
    }
    deleted = choice.step;
  }
  return changed;
}

ChangedSteps SimulatedStorage::Change(const ChangeSteps& change) {
  if (const auto* prune = std::get_if<PruneSteps>(&change.change)) return Prune(*prune);
  ChangedSteps changed;
  const auto standing = Standing();
  const auto* replaced = std::get_if<DeleteReplaced>(&change.change);
  const auto* deletion = std::get_if<DeleteStep>(&change.change);
  for (auto& [key, outcome] : outcomes_) {
    // A deletion that was done before counts as long as its files are there.
    const bool left =
        replaced != nullptr && key.first == replaced->step && outcome.deleted && directories_.contains(key);
    if (left) changed.deleted.push_back(outcome);
    if (!outcome.stands()) continue;
    const bool doomed = replaced != nullptr ? key.first == replaced->step && key.second < standing.at(key.first)
                                            : deletion != nullptr && key.first == deletion->step;
    if (doomed && (deletion == nullptr || standing.size() > 1)) Delete(key, changed);
  }
  return changed;
}

const StoredAttempt* SimulatedStorage::Outcome(AttemptKey attempt) const {
  const auto found = outcomes_.find(attempt);
  return found == outcomes_.end() ? nullptr : &found->second;
}

std::map<int64_t, uint32_t> SimulatedStorage::Standing() const {
  std::map<int64_t, uint32_t> standing;
  for (const auto& [key, outcome] : outcomes_) {
    if (outcome.stands()) standing[key.first] = key.second;
  }
  return standing;
}

}  // namespace cairn
