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
  // Reserve and Put check `root` before they write. Reserve also raises the format of the root (RootLock::RaiseFormat)
  // before an attempt that leaves committed steps behind: earlier versions know no lineage and would take those steps
  // for the latest. All arguments must outlive the store.
  AttemptStore(Storage& storage, CheckpointStore& checkpoints, const Clock& clock, const RootLock& root)
      : storage_(storage), checkpoints_(checkpoints), clock_(clock), root_(root) {}

  // Takes a free number for an attempt: see ReserveAttempt. On success this call has made the attempt's directory, and
  // the directory holds the nonce (store/write/attempt_owner.h). The files of a commit that will be replaced stay.
  // ALREADY_EXISTS (STEP_COMMITTED), FAILED_PRECONDITION (ROOT_IN_USE; CHECKPOINT_PINNED: an overwrite of a pinned
  // step); an outcome of the step that cannot be read is an error, because it may be a commit. One that is proven to be
  // damaged is passed over.
  absl::StatusOr<Reserved> Reserve(const std::string& job, const ReserveAttempt& action);
  // Puts the record that ends an attempt, unless the attempt has one, and returns the record that it then has, durably.
  // If one call leaves in doubt whether the record exists (PutAnswer::in_doubt), the errors of later calls say so too,
  // until a call has read the record. RESOURCE_EXHAUSTED (MEMORY_LIMIT), always in doubt. FAILED_PRECONDITION
  // (ROOT_IN_USE); (ROOT_MISMATCH): the attempt's directory is another coordinator's, or a file of a manifest is not
  // there in its size.
  PutAnswer Put(const std::string& job, const PutOutcome& action);
  // Reserves room on disk for abort records and deletions, if the root has none yet and there is room.
  static void KeepReserve(Storage& storage);
  // Frees it, so that they can be put on a full disk.
  static void ReleaseReserve(Storage& storage);
  // Removes an attempt's directory, if the attempt is aborted: it reads the abort record anew. Without one it removes
  // nothing and fails.
  absl::Status Remove(const std::string& job, int64_t step, uint32_t attempt);

 private:
  // OK if the new attempt may take the place of this one, which is committed.
  absl::Status MayReplace(const std::string& job, const ReserveAttempt& action, uint32_t attempt);
  PutAnswer PutNow(const std::string& job, const PutOutcome& action);
  // OK if the directory of the attempt holds all bins.
  absl::Status CheckBins(const std::string& job, const PutOutcome& action);
  PutAnswer PutRecord(const std::string& job, int64_t step, uint32_t attempt, const std::string& bytes, bool manifest);
  PutAnswer PutAbortRecord(const std::string& job, int64_t step, uint32_t attempt, const absl::Status& error,
                           const std::string& request_id);
  // Returns the record that ends the attempt, made durable; nothing if there is none or it cannot be read.
  std::optional<StoredAttempt> Standing(const std::string& job, int64_t step, uint32_t attempt);
  // Returns the record that ends the attempt, even one that is proven to be damaged. DATA_LOSS (FILE_MISSING): there is
  // none. Else the error that keeps it from being read.
  absl::StatusOr<StoredAttempt> ReadBack(const std::string& job, int64_t step, uint32_t attempt);
  // Sets PutAnswer::in_doubt if an earlier call has left the record in doubt.
  PutAnswer WithDoubt(const std::string& path, PutAnswer outcome);

  Storage& storage_;
  CheckpointStore& checkpoints_;
  const Clock& clock_;
  const RootLock& root_;
  Mutex mutex_;
  // The paths of records that may exist although a call that put them has failed.
  std::set<std::string> doubted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_ATTEMPT_STORE_H_
