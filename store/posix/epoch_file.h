// The lock of a root on a file system, and its epoch. The process that holds the lock of `<root>/.cairn/epoch` is the
// coordinator of the root. When it takes the lock, it
// increases the coordinator epoch in that file by one. The kernel gives the lock back when the process ends, however it
// ends. A process that is only frozen keeps the lock, and with it the root.
#ifndef CAIRN_STORE_POSIX_EPOCH_FILE_H_
#define CAIRN_STORE_POSIX_EPOCH_FILE_H_

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
#include "common/file/confined_directory.h"
#include "common/file/unique_fd.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"

namespace cairn {

// The lock itself proves nothing. On a network file system it may be local to each machine (NFS with nolock, Lustre
// with localflock), or it may have been taken away. So Check opens the file again by its path, and compares its content
// with the record that Acquire has written. If the file is gone or holds another record, Check reads it once more, past
// the page cache, and believes it only if both readings agree.
class EpochFile : public RootLock {
 public:
  // Takes the lock and increases the epoch: see Storage::TakeRoot. `directory` is the root directory of `storage`; both
  // must outlive the object.
  static absl::StatusOr<std::unique_ptr<EpochFile>> Acquire(Storage& storage, ConfinedDirectory& directory);

  // As Storage::HolderOfRoot.
  static absl::StatusOr<std::optional<RootHolder>> HolderOf(Storage& storage, ConfinedDirectory& directory);

  uint64_t epoch() const override { return epoch_; }
  absl::Time began() const override { return began_; }
  absl::Status RaiseFormat() const override;
  absl::Status TellAddress(const std::string& address) const override;

 private:
  EpochFile(Storage& storage, UniqueFd fd, uint64_t epoch, std::string record, absl::Time began)
      : storage_(storage), fd_(std::move(fd)), epoch_(epoch), began_(began), text_(std::move(record)) {}

  absl::Status Look() const override;
  // Checks that the file holds this process's record, or the result of a write of this process that failed.
  absl::Status CheckRecord() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOwn(const std::string& text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Storage& storage_;
  const UniqueFd fd_;  // holds the lock
  const uint64_t epoch_;
  const absl::Time began_;
  mutable Mutex mutex_;
  // The record, which RaiseFormat changes.
  mutable std::string text_ ABSL_GUARDED_BY(mutex_);
  // The record that RaiseFormat writes in place of `text_`. If the write fails, the file may hold all of it, or only
  // its first part.
  mutable std::string tried_ ABSL_GUARDED_BY(mutex_);
  mutable bool durable_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_EPOCH_FILE_H_
