// Election without a standby: whoever holds the lock of `<root>/.cairn/epoch` is the coordinator of the root, and
// counts its coordinator epoch up there. The kernel gives the lock back when the process ends, however it ends; a
// process that is only frozen keeps it, and with it the root.
#ifndef CAIRN_COORDINATOR_ROOT_LOCK_EPOCH_FILE_H_
#define CAIRN_COORDINATOR_ROOT_LOCK_EPOCH_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/file/posix.h"
#include "common/file/unique_fd.h"

namespace cairn {

class EpochFile {
 public:
  // `storage` must outlive it. Takes the lock and counts up; durable when it returns. If another process holds the
  // lock, tells `waiting` who it is, once, and tries for `patience`. FAILED_PRECONDITION (ROOT_IN_USE): still held;
  // DATA_LOSS (FILE_TRUNCATED): the file does not hold an epoch; and the errors of storage.
  static absl::StatusOr<EpochFile> Acquire(PosixStorage& storage, absl::Duration patience, const Clock& clock,
                                           const std::function<void(const std::string& holder)>& waiting);

  uint64_t epoch() const { return epoch_; }
  // When the record was written, by the clock of the storage. What was last changed before is a predecessor's.
  absl::Time began() const { return began_; }

  // Whether the root is still this coordinator's: opens the file again by its path and compares what stands there with
  // what Acquire has written. The lock itself says nothing: on a network file system it may be local to each machine
  // (NFS with nolock, Lustre with localflock), or have been taken away. Thread-safe.
  // FAILED_PRECONDITION (ROOT_IN_USE): another one's record stands there, or none: this one must stop serving, as it is
  // never its own again. Others of storage: it could not be read this time.
  absl::Status Check() const;

 private:
  EpochFile(PosixStorage& storage, UniqueFd fd, uint64_t epoch, std::string record, absl::Time began)
      : storage_(&storage), fd_(std::move(fd)), epoch_(epoch), record_(std::move(record)), began_(began) {}

  PosixStorage* storage_;
  UniqueFd fd_;  // holds the lock
  uint64_t epoch_;
  std::string record_;
  absl::Time began_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ROOT_LOCK_EPOCH_FILE_H_
