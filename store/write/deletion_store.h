// Deletes committed checkpoints: it puts the record of a deletion, and later removes the files. It also says which pins
// and tags a step may get; mark_store.h stores them. docs/retention.md says in which order these records become
// durable, and what a crash between two of them leaves.
#ifndef CAIRN_STORE_WRITE_DELETION_STORE_H_
#define CAIRN_STORE_WRITE_DELETION_STORE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"
#include "store/write/mark_store.h"
#include "store/write/step_requests.h"

namespace cairn {

// Thread-safe, if deletions of one job come one after the other. Every method blocks on storage and may fail with its
// reasons.
class DeletionStore {
 public:
  // `root` is checked right before every record and every removal. All arguments must outlive the store.
  DeletionStore(Storage& storage, CheckpointStore& checkpoints, const Clock& clock, const RootLock& root)
      : storage_(storage), checkpoints_(checkpoints), clock_(clock), root_(root), marks_(storage, clock, root) {}

  // Deletes all attempts of a step that are committed, or whose outcome is proven to be damaged. On return the records
  // of the deletions are durable, and the files still exist. The result has all deleted attempts of the step, including
  // those deleted earlier. NOT_FOUND (NOT_COMMITTED): the step has no checkpoint and never had one that was deleted.
  // FAILED_PRECONDITION (CHECKPOINT_PINNED): the step has a pin or a tag; (LAST_CHECKPOINT): the job has no other valid
  // checkpoint; (ROOT_IN_USE). DATA_LOSS (MANIFEST_CORRUPT): the record of an earlier deletion is damaged. If a record
  // of the step cannot be read and is not proven to be damaged, its error is returned and nothing is deleted. After
  // other errors some attempts may be deleted, but not the highest one, which comes last. `latest`: see ChangeSteps.
  absl::StatusOr<ChangedSteps> Delete(const std::string& job, const DeleteStep& action, std::optional<int64_t> latest);

  // Deletes the commits of a step that a later commit of the same step has replaced; otherwise as above. The result
  // also has those that were deleted earlier and still have files. Does nothing if there are none, if the step has a
  // pin or a tag, or if a file of the later commit is missing.
  absl::StatusOr<ChangedSteps> Delete(const std::string& job, const DeleteReplaced& action);

  // Puts or removes a step's pin, durably. NOT_FOUND (NOT_COMMITTED): the step has no checkpoint. FAILED_PRECONDITION
  // (ROOT_IN_USE).
  absl::StatusOr<ChangedSteps> Pin(const std::string& job, const PinStep& action);

  // Gives a step the tag, or takes the tag away from whichever steps have it; durably. A tag that the step has stays as
  // it is. INVALID_ARGUMENT (BAD_REQUEST): the text is not a valid tag, or another step has the tag. NOT_FOUND
  // (NOT_COMMITTED): the step has no checkpoint. FAILED_PRECONDITION (ROOT_IN_USE).
  absl::StatusOr<ChangedSteps> Tag(const std::string& job, const TagStep& action);
  // Makes the error for a tag that `step` has.
  static absl::Status TagIsTaken(const std::string& job, const std::string& tag, int64_t step);

  // Deletes the valid checkpoints that the policy does not keep, oldest first. If one cannot be deleted, its choice
  // says why, and the next one follows. It tries at least one, and stops after kPruneTime. A dry run stops likewise,
  // and only looks whether each checkpoint is valid. If neither `action` nor the job has a policy, it does nothing.
  // DATA_LOSS (RETENTION_UNREADABLE): the job's policy cannot be read, so nothing is deleted. FAILED_PRECONDITION
  // (ROOT_IN_USE).
  absl::StatusOr<ChangedSteps> Prune(const std::string& job, const PruneSteps& action);
  static constexpr absl::Duration kPruneTime = absl::Milliseconds(500);

  // Sets the job's policy, durably.
  absl::StatusOr<ChangedSteps> SetPolicy(const std::string& job, const SetRetention& action);

  // Removes the files of a deleted attempt. The caller must know that nobody reads them any more. It first looks again
  // for another valid checkpoint of the job. FAILED_PRECONDITION (LAST_CHECKPOINT): there is none, so the files stay,
  // and a person can still rescue them. `latest`: see ChangeSteps.
  absl::Status Remove(const std::string& job, int64_t step, uint32_t attempt, std::optional<int64_t> latest);

 private:
  // NOT_FOUND (NOT_COMMITTED): the step has no checkpoint, whole or damaged.
  absl::Status CheckStands(const std::string& job, int64_t step);
  absl::StatusOr<ChangedSteps> Untag(const std::string& job, const std::string& tag);
  // Finds a valid checkpoint other than `except`: `latest` if that is one, else the newest; nothing if there is none.
  // If it is `latest`, a job with many checkpoints takes no longer than one with few.
  std::optional<int64_t> FindValid(const std::string& job, std::optional<int64_t> latest,
                                   std::optional<int64_t> except = std::nullopt);
  // Makes calls that do not depend on each other: at the same time where Storage::CallsAtOnce says so, else in this
  // order until one fails. Returns the first error in this order.
  absl::Status Together(std::initializer_list<std::function<absl::Status()>> calls);
  // As Delete. `remains` returns a valid checkpoint of another step, whose record is durable.
  using Remains = std::function<absl::StatusOr<std::optional<int64_t>>()>;
  absl::StatusOr<ChangedSteps> DeleteLeaving(const std::string& job, const DeleteStep& action, const Remains& remains);
  // Makes the record of the step `remaining` durable.
  absl::StatusOr<std::optional<int64_t>> Settled(const std::string& job, std::optional<int64_t> remaining);
  absl::StatusOr<StoredAttempt> PutDeletion(const std::string& job, const DeleteStep& action,
                                            const StoredAttempt& attempt, int64_t remaining);

  Storage& storage_;
  CheckpointStore& checkpoints_;
  const Clock& clock_;
  const RootLock& root_;
  MarkStore marks_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_DELETION_STORE_H_
