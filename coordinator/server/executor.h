// Carries out the actions that need planning or storage. Its methods block, so they run on workers.
#ifndef CAIRN_COORDINATOR_SERVER_EXECUTOR_H_
#define CAIRN_COORDINATOR_SERVER_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "coordinator/decision/core_action.h"
#include "coordinator/server/plan_store.h"
#include "coordinator/server/state_watch.h"
#include "coordinator/server/transfer_secret.h"
#include "store/mirror/mirror.h"
#include "store/read/checkpoint_store.h"
#include "store/write/attempt_store.h"
#include "store/write/deletion_store.h"

namespace cairn {

// Thread-safe. Each method is one action; its errors become the action's result.
class Executor {
 public:
  // `mirror`: null if there is none.
  Executor(CheckpointStore& checkpoints, AttemptStore& attempts, DeletionStore& deletions, PlanStore& plans,
           TransferSecret secret, const Clock& clock, Mirror* mirror = nullptr)
      : checkpoints_(checkpoints),
        attempts_(attempts),
        deletions_(deletions),
        plans_(plans),
        secret_(std::move(secret)),
        clock_(clock),
        mirror_(mirror),
        watch_(checkpoints) {}

  absl::StatusOr<StoredAttempts> Run(const std::string& job, const RecoverJob& action);
  absl::StatusOr<StoredAttempts> Run(const std::string& job, const ReadStep& action);
  // Touches no storage.
  absl::StatusOr<PlannedSave> Run(const std::string& job, const PlanSave& action);
  // Keeps what a restarted coordinator needs to make the plan of this action again.
  void Keep(const PlanSave& action, const PlannedSave& plan);
  // FAILED_PRECONDITION (NAMES_DROPPED), ALREADY_EXISTS (STEP_COMMITTED).
  absl::StatusOr<Reserved> Run(const std::string& job, const ReserveAttempt& action);
  // FAILED_PRECONDITION (REPLICA_MISMATCH, OBJECT_MISMATCH), INVALID_ARGUMENT (BAD_REQUEST).
  absl::StatusOr<MadeManifest> Run(const std::string& job, const MakeManifest& action);
  PutAnswer Run(const std::string& job, const PutOutcome& action);
  absl::Status Run(const std::string& job, const RemoveFiles& action);
  // NOT_FOUND (NOT_COMMITTED, MISSING_NAMES), FAILED_PRECONDITION (UNEXPECTED_NAMES), DATA_LOSS (MANIFEST_CORRUPT).
  // BAD_REQUEST: fingerprints are to be compared, and the source has none.
  absl::StatusOr<PlannedLoad> Run(const std::string& job, const PlanLoad& action);
  // Touches no storage. DATA_LOSS (FINGERPRINT_MISMATCH), INVALID_ARGUMENT (BAD_REQUEST).
  absl::StatusOr<uint64_t> Run(const std::string& job, const VerifyLoad& action);
  absl::StatusOr<ChangedSteps> Run(const std::string& job, const ChangeSteps& action);
  absl::StatusOr<PlannedLoad> Plan(const std::string& job, const PlanLoad& action);

 private:
  struct Source {
    CheckpointStore::ManifestPtr manifest;
    std::vector<std::pair<int64_t, absl::Status>> passed_over;
    std::string directory;             // at the mirror; empty: below the root
    std::shared_ptr<const void> hold;  // of a step at the mirror
  };
  // Returns what a load reads at the mirror in the place of `at_root`, which the root has, or has not. Nothing: the
  // load takes what the root has. An error: nobody knows whether the mirror has what the root has not.
  absl::StatusOr<std::optional<Source>> FindAtMirror(const std::string& job, const PlanLoad& action,
                                                     const absl::StatusOr<Source>& at_root);
  // Finds the checkpoint that a load reads: at the root, or else at the mirror.
  absl::StatusOr<Source> FindSource(const std::string& job, const PlanLoad& action);
  absl::StatusOr<Source> FindAtRoot(const std::string& job, const PlanLoad& action);
  absl::Status CheckNames(const std::string& job, const ReserveAttempt& action, const SavePlan& plan);
  absl::StatusOr<ChangedSteps> Change(const std::string& job, const ChangeSteps& action);
  // Logs, once for each job, that it has no checkpoint although other jobs have some.
  void NoteFirstStart(const std::string& job);

  CheckpointStore& checkpoints_;
  AttemptStore& attempts_;
  DeletionStore& deletions_;
  PlanStore& plans_;
  const TransferSecret secret_;
  const Clock& clock_;
  Mirror* const mirror_;
  StateWatch watch_;
  Mutex mutex_;
  std::set<std::string> first_starts_ ABSL_GUARDED_BY(mutex_);  // jobs that NoteFirstStart has looked at
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_EXECUTOR_H_
