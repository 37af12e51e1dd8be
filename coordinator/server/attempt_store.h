// Attempts in storage: their directories, and the one record that ends each. The only part of the coordinator that
// writes below a job's directory; catalog.h reads.
#ifndef CAIRN_COORDINATOR_SERVER_ATTEMPT_STORE_H_
#define CAIRN_COORDINATOR_SERVER_ATTEMPT_STORE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/storage/posix.h"
#include "coordinator/job/action.h"
#include "coordinator/server/catalog.h"

namespace cairn {

// Thread-safe; every method blocks on storage and may fail with its reasons.
class AttemptStore {
 public:
  // All must outlive it.
  AttemptStore(PosixStorage& storage, Catalog& catalog, const Clock& clock)
      : storage_(storage), catalog_(catalog), clock_(clock) {}

  // A free number for an attempt: see ReserveAttempt. Its directory stands when this returns, made by this call.
  // ALREADY_EXISTS (STEP_COMMITTED).
  absl::StatusOr<Reserved> Reserve(const std::string& job, int64_t step, uint32_t above);
  // Puts the record that ends an attempt, if none stands there, and says what stands there then, durably.
  PutOutcome Put(const std::string& job, const PutVerdict& action);
  // Removes an attempt's directory. Only when a tombstone stands.
  absl::Status Remove(const std::string& job, int64_t step, uint32_t attempt);

 private:
  PutOutcome PutRecord(const std::string& job, int64_t step, uint32_t attempt, const std::string& bytes);
  PutOutcome PutTombstone(const std::string& job, int64_t step, uint32_t attempt, const absl::Status& error,
                          const std::string& request_id);
  // Frees the room that is kept for tombstones on a full disk.
  void ReleaseReserve();
  void KeepReserve();

  PosixStorage& storage_;
  Catalog& catalog_;
  const Clock& clock_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_ATTEMPT_STORE_H_
