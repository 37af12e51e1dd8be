// The process that holds the lock of `<root>/.cairn/epoch` is the coordinator of the root, and counts the coordinator
// epoch up in that file. The kernel gives the lock back when the process ends, however it ends. A process that is only
// frozen keeps the lock, and with it the root.
#ifndef CAIRN_STORE_ROOT_EPOCH_FILE_H_
#define CAIRN_STORE_ROOT_EPOCH_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/file/posix.h"
#include "common/file/unique_fd.h"

namespace cairn {

class EpochFile {
 public:
  // `storage` must outlive it. Takes the lock and counts up; this is durable when it returns. If another process holds
  // the lock, it tells `waiting` once who that is, and tries for `patience`. FAILED_PRECONDITION (ROOT_IN_USE): still
  // held; the metadata's "address" says where its holder serves, if that is known; (FORMAT_TOO_NEW): the root holds
  // what this version does not know; INVALID_ARGUMENT (BAD_REQUEST): the root lies within another one, or around one
  // (store/root/nested_root.h), and nothing was written; DATA_LOSS (FILE_TRUNCATED): the file does not hold an
  // epoch; UNAVAILABLE (STORAGE_ERROR): it gave different bytes when it was read twice; and the other errors of
  // storage.
  static absl::StatusOr<EpochFile> Acquire(PosixStorage& storage, absl::Duration patience, const Clock& clock,
                                           const std::function<void(const std::string& holder)>& waiting);

  // Describes the process that holds a root's lock.
  struct Holder {
    std::string text;     // for people: "process 7 on node3 (epoch 12)"
    std::string host;     // the name of its machine; empty if the record does not say it
    std::string address;  // where it serves, host:port; empty if it has not said so
  };
  // Returns who holds the lock of a root now; nothing if nobody does. The errors of storage.
  static absl::StatusOr<std::optional<Holder>> HolderOf(PosixStorage& storage);

  // Writes down, for HolderOf, where this process serves. It counts for as long as the process holds the root.
  absl::Status TellAddress(const std::string& address) const;

  uint64_t epoch() const { return epoch_; }
  // Returns when the record was written, by the clock of the storage. Files that were last changed before belong to a
  // predecessor.
  absl::Time began() const { return began_; }

  // Checks that the root still belongs to this coordinator: opens the file again by its path, and compares what stands
  // there with what Acquire has written. The lock itself proves nothing. On a network file system it may be local to
  // each machine (NFS with nolock, Lustre with localflock), or it may have been taken away. Thread-safe.
  // FAILED_PRECONDITION (ROOT_IN_USE): the record of another coordinator stands there, or none. This coordinator must
  // stop serving, because the root will never be its own again. That is only believed of a record that gave the same
  // bytes twice, the second time past the page cache. Errors of storage: the file could not be read this time.
  absl::Status Check() const;

  // Makes the root one that holds deletions, if it is not one yet. The record says so from then on, and a coordinator
  // or a repair of an earlier version, which would take a deleted checkpoint for a damaged one, refuses the root.
  // Durable when it returns. Thread-safe. Fails as Check, and with the errors of storage; then nothing may be deleted.
  absl::Status RaiseFormat();

 private:
  // The record, which RaiseFormat changes while Check reads it.
  struct Record {
    explicit Record(std::string written) : text(std::move(written)) {}

    Mutex mutex;
    std::string text ABSL_GUARDED_BY(mutex);
    // The record that was to replace it when storage failed: all of it, or its first part, may stand there.
    std::string tried ABSL_GUARDED_BY(mutex);
    bool durable ABSL_GUARDED_BY(mutex) = true;
  };

  EpochFile(PosixStorage& storage, UniqueFd fd, uint64_t epoch, std::string record, absl::Time began)
      : storage_(&storage),
        fd_(std::move(fd)),
        epoch_(epoch),
        record_(std::make_unique<Record>(std::move(record))),
        began_(began) {}

  // Looks at what stands there, which must be the record or what this process may have made of it.
  absl::Status CheckRecord() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(record_->mutex);
  bool IsOwn(const std::string& text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(record_->mutex);

  PosixStorage* storage_;
  UniqueFd fd_;  // holds the lock
  uint64_t epoch_;
  std::unique_ptr<Record> record_;
  absl::Time began_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_ROOT_EPOCH_FILE_H_
