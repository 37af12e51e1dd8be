// Writes attempts in storage: their directories, and the one record that ends each. No other part of the coordinator
// writes below a job's directory; checkpoint_store.h reads.
#ifndef CAIRN_STORE_WRITE_ATTEMPT_STORE_H_
#define CAIRN_STORE_WRITE_ATTEMPT_STORE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"
#include "store/write/attempt_requests.h"

namespace cairn {

// Thread-safe; every method blocks on storage and may fail with its reasons.
class AttemptStore {
 public:
  // `root` is checked before everything that another coordinator would do too. The format is raised before the first
  // attempt at a step while others are left behind: coordinators that know no lineage would take those for the latest.
  // All arguments must outlive the store.
  AttemptStore(Storage& storage, CheckpointStore& checkpoints, const Clock& clock, const RootLock& root)
      : storage_(storage), checkpoints_(checkpoints), clock_(clock), root_(root) {}

  // Takes a free number for an attempt: see ReserveAttempt. When this returns, the attempt's directory was made by this
  // call, and holds the nonce (store/write/attempt_owner.h). The files of a commit that will be replaced stay.
  // ALREADY_EXISTS (STEP_COMMITTED), FAILED_PRECONDITION (ROOT_IN_USE; CHECKPOINT_PINNED: an overwrite of a pinned
  // step); an outcome of the step that cannot be read is an error, because it may be a commit. One that is proven to be
  // damaged is passed over.
  absl::StatusOr<Reserved> Reserve(const std::string& job, const ReserveAttempt& action);
  // Puts the record that ends an attempt, if none stands there, and says what stands there then, durably. An error in
  // doubt stays in doubt until a later call has found out: see PutAnswer.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT), always in doubt. FAILED_PRECONDITION (ROOT_IN_USE); (ROOT_MISMATCH): the
  // attempt's directory is another coordinator's, or a file of a manifest is not there in its size.
  PutAnswer Put(const std::string& job, const PutOutcome& action);
  // Frees the room that is kept for abort records on a full disk. It is the root's, whoever serves it.
  static void ReleaseReserve(Storage& storage);
  // Removes an attempt's directory: its files several at a time, then one sync. Only where an abort record is read now;
  // else an error, and nothing is removed.
  absl::Status Remove(const std::string& job, int64_t step, uint32_t attempt);

 private:
  // OK if the new attempt may take the place of this one, which is committed.
  absl::Status MayReplace(const std::string& job, const ReserveAttempt& action, uint32_t attempt);
  PutAnswer PutNow(const std::string& job, const PutOutcome& action);
  // OK if the attempt may be committed: its directory is ours, and holds all files.
  absl::Status CheckComplete(const std::string& job, const PutOutcome& action);
  PutAnswer PutRecord(const std::string& job, int64_t step, uint32_t attempt, const std::string& bytes, bool manifest);
  PutAnswer PutAbortRecord(const std::string& job, int64_t step, uint32_t attempt, const absl::Status& error,
                           const std::string& request_id);
  // The record that stands there durably; nothing if there is none, or if nobody can tell.
  std::optional<StoredAttempt> Standing(const std::string& job, int64_t step, uint32_t attempt);
  // The record that ends the attempt, also one that is proven to be damaged. DATA_LOSS (FILE_MISSING): none does. Else
  // why it cannot be read.
  absl::StatusOr<StoredAttempt> ReadBack(const std::string& job, int64_t step, uint32_t attempt);
  // Adds the doubt of earlier calls to `outcome`.
  PutAnswer WithDoubt(const std::string& path, PutAnswer outcome);
  void KeepReserve();

  Storage& storage_;
  CheckpointStore& checkpoints_;
  const Clock& clock_;
  const RootLock& root_;
  Mutex mutex_;
  // The paths of records that may stand there although putting them has failed.
  std::set<std::string> doubted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_ATTEMPT_STORE_H_
