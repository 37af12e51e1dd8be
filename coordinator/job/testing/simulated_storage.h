// The storage of one job in memory: what simulations of the coordinator's decisions commit to.
#ifndef CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_STORAGE_H_
#define CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_STORAGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/decision/core_action.h"

namespace cairn {

// A step, and the number of an attempt to save it.
using AttemptKey = std::pair<int64_t, uint32_t>;

// Carries out what the server's stores do with files, each action at once and whole. The caller makes actions fail,
// hang or come late. Not thread-safe.
class SimulatedStorage {
 public:
  explicit SimulatedStorage(int world_size) : world_size_(world_size) {}

  // Plants a fault: a later outcome takes the place of the one that stands.
  void PlantOverwrittenOutcomes() { overwrites_outcomes_ = true; }

  // A rank's agent has written its bin, by this plan.
  void Write(AttemptKey attempt, int rank, const std::string& plan = "") { files_[{attempt, rank}] = plan; }
  bool HasFile(AttemptKey attempt, int rank) const { return files_.contains({attempt, rank}); }
  bool HasFiles(AttemptKey attempt) const;
  // Returns whether all ranks have written by this plan.
  bool WrittenBy(AttemptKey attempt, const std::string& plan) const;

  // Returns what stands there of a step, or of all. Only the latter says what is left over.
  StoredAttempts ReadAll() const;
  StoredAttempts ReadStep(int64_t step) const;

  // Takes a number, as ReserveAttempt says. If it fails, what was left over is cleared all the same, but no directory
  // is made. STEP_COMMITTED: the step is committed, and the action does not overwrite.
  absl::StatusOr<Reserved> Reserve(const ReserveAttempt& reserve, const absl::Status& failure = absl::OkStatus());
  // Returns what stands now, and whether it is this record.
  struct Put {
    StoredAttempt standing;
    bool taken = false;
  };
  Put PutIfAbsent(const PutOutcome& put);
  void Remove(AttemptKey attempt);
  // DeleteStep, DeleteReplaced and PruneSteps, as the DeletionStore does them. The last checkpoint is not deleted. The
  // job has no rules of its own, and one action of a prune deletes one step.
  ChangedSteps Change(const ChangeSteps& change);

  const std::map<AttemptKey, StoredAttempt>& outcomes() const { return outcomes_; }
  // Null if none stands.
  const StoredAttempt* Outcome(AttemptKey attempt) const;
  // The attempts that readers find: the highest one of each step that stands.
  std::map<int64_t, uint32_t> Standing() const;
  // The attempts that have a directory.
  const std::set<AttemptKey>& directories() const { return directories_; }
  // Returns whether an attempt was reserved to take the place of a committed one.
  bool MayReplace(AttemptKey attempt) const { return overwrites_.contains(attempt); }
  // Returns how many attempts were deleted.
  int deletions() const { return deletions_; }

 private:
  ChangedSteps Prune(const PruneSteps& prune);
  void Delete(AttemptKey attempt, ChangedSteps& changed);

  const int world_size_;
  bool overwrites_outcomes_ = false;
  std::map<AttemptKey, StoredAttempt> outcomes_;
  std::set<AttemptKey> directories_;
  std::map<std::pair<AttemptKey, int>, std::string> files_;  // the plan by which each was written
  std::set<AttemptKey> overwrites_;
  int deletions_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_STORAGE_H_
