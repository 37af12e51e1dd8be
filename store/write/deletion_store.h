// Deletes committed checkpoints: it puts the record of a deletion, and later removes the files. It also keeps what
// decides about that: pins, and the policy of a job. docs/retention.md says in which order these become durable, and
// what a crash between them leaves.
#ifndef CAIRN_STORE_WRITE_DELETION_STORE_H_
#define CAIRN_STORE_WRITE_DELETION_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"
#include "store/write/step_requests.h"

namespace cairn {

// Thread-safe, if deletions of one job come one after the other. Every method blocks on storage and may fail with its
// reasons.
class DeletionStore {
 public:
  // `root` is checked right before every record and every removal. All arguments must outlive the store.
  DeletionStore(Storage& storage, CheckpointStore& checkpoints, const Clock& clock, const RootLock& root)
      : storage_(storage), checkpoints_(checkpoints), clock_(clock), root_(root) {}

  // Deletes all attempts of a step that are committed, or whose outcome is proven to be damaged. When it returns, their
  // deletions are durable, and their files are there still. It tells the attempts that are deleted now, also those that
  // were before.
  // NOT_FOUND (NOT_COMMITTED): the step has no checkpoint and never had one that was deleted. FAILED_PRECONDITION
  // (CHECKPOINT_PINNED): the step has a pin or a tag; (LAST_CHECKPOINT): the job has no other valid checkpoint;
  // (ROOT_IN_USE). DATA_LOSS (MANIFEST_CORRUPT): the record of an earlier deletion is damaged. Else why something of
  // the step cannot be read: if that is not proven damage, nothing is deleted. After other errors some attempts may be
  // deleted; the highest one is the last.
  // `latest`: see ChangeSteps.
  absl::StatusOr<ChangedSteps> Delete(const std::string& job, const DeleteStep& action, std::optional<int64_t> latest);

  // Deletes the commits of a step in whose place a later one stands, as Delete does. It also tells those that were
  // deleted before and have their files still. Does nothing if there are none, if the step has a pin or a tag, or if
  // the files of the later one are not all there.
  absl::StatusOr<ChangedSteps> Delete(const std::string& job, const DeleteReplaced& action);

  // Puts or removes a step's pin, durably. NOT_FOUND (NOT_COMMITTED): the step has no checkpoint. FAILED_PRECONDITION
  // (ROOT_IN_USE).
  absl::StatusOr<ChangedSteps> Pin(const std::string& job, const PinStep& action);

  // Gives a step the tag, or takes the tag away from whichever steps have it; durably. A tag that the step has stays as
  // it is. INVALID_ARGUMENT (BAD_REQUEST): the tag is none, or another step has it. NOT_FOUND (NOT_COMMITTED): the step
  // has no checkpoint. FAILED_PRECONDITION (ROOT_IN_USE).
  absl::StatusOr<ChangedSteps> Tag(const std::string& job, const TagStep& action);

  // Deletes, oldest first, what the policy does not keep and is valid. It goes on after one that cannot be deleted,
  // whose choice says why. It tries at least one, and stops when kPruneTime is over; so does a dry run, which only
  // looks whether each is valid. Without a policy in `action` and without one of the job, it does nothing. DATA_LOSS
  // (RETENTION_UNREADABLE): the job's policy cannot be read, so nothing is deleted. FAILED_PRECONDITION (ROOT_IN_USE).
  absl::StatusOr<ChangedSteps> Prune(const std::string& job, const PruneSteps& action);
  static constexpr absl::Duration kPruneTime = absl::Milliseconds(500);

  // Sets the job's policy, durably.
  absl::StatusOr<ChangedSteps> SetPolicy(const std::string& job, const SetRetention& action);

  // Removes the files of a deleted attempt. Nobody may read them any more. It looks once more whether the job has a
  // valid checkpoint, because one that was deleted too much must be found again: FAILED_PRECONDITION (LAST_CHECKPOINT).
  // `latest`: see ChangeSteps.
  absl::Status Remove(const std::string& job, int64_t step, uint32_t attempt, std::optional<int64_t> latest);

 private:
  absl::StatusOr<ChangedSteps> Untag(const std::string& job, const std::string& tag);
  // Finds a valid checkpoint other than `except`: `latest` if that is one, else the newest; nothing if there is none.
  // If it is `latest`, a job with many checkpoints takes no longer than one with few.
  std::optional<int64_t> FindValid(const std::string& job, std::optional<int64_t> latest,
                                   std::optional<int64_t> except = std::nullopt);
  // As Delete. `remains` is asked for a valid checkpoint of another step, whose record is durable.
  using Remains = std::function<absl::StatusOr<std::optional<int64_t>>()>;
  absl::StatusOr<ChangedSteps> DeleteLeaving(const std::string& job, const DeleteStep& action, const Remains& remains);
  // Makes the record of what remains durable.
  absl::StatusOr<std::optional<int64_t>> Settled(const std::string& job, std::optional<int64_t> remaining);
  // These change a record. If storage fails, they look at what stands there: a change that was made is made durable,
  // and is no error. If that cannot be known, the error's metadata has "outcome": "unknown".
  absl::Status PutRecord(const std::string& path, const std::string& bytes, bool replace);
  absl::Status RemoveRecord(const std::string& path);
  // Makes a change durable that stands although `failed` was said of it.
  absl::Status SettleChange(const std::string& path, const absl::Status& failed);
  // The job's policy; an empty one if there is none.
  absl::StatusOr<PrunePolicy> ReadPolicy(const std::string& job);
  absl::StatusOr<StoredAttempt> PutDeletion(const std::string& job, int64_t step, const StoredAttempt& attempt,
                                            int64_t remaining, const std::string& cause);

  Storage& storage_;
  CheckpointStore& checkpoints_;
  const Clock& clock_;
  const RootLock& root_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_DELETION_STORE_H_
