// The lock of a root in an object store. Each holder puts a record ".cairn/epochs/N" that did not stand, with an N
// above all before: so only one process has each epoch, and whoever finds a higher one than its own has lost the root.
// The record is also the holder's lease: it writes the record anew every five seconds. A record that was not written
// for fifteen, by the clock of the store, belongs to a process that is gone.
#ifndef CAIRN_STORE_S3_S3_ROOT_LOCK_H_
#define CAIRN_STORE_S3_S3_ROOT_LOCK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/s3/s3_client.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"

namespace cairn {

class S3RootLock : public RootLock {
 public:
  static constexpr absl::Duration kLease = absl::Seconds(15);
  static constexpr absl::Duration kRenewal = absl::Seconds(5);

  // Takes the lock, as Storage::TakeRoot says. `client` is that of `storage`; both must outlive the lock.
  static absl::StatusOr<std::unique_ptr<S3RootLock>> Acquire(Storage& storage, S3Client& client);
  // As Storage::HolderOfRoot.
  static absl::StatusOr<std::optional<RootHolder>> HolderOf(Storage& storage, S3Client& client);

  ~S3RootLock() override;

  uint64_t epoch() const override { return epoch_; }
  absl::Time began() const override { return began_; }
  // A root in an object store always was one that holds deletions and lineages, so nothing is asked of the store.
  absl::Status RaiseFormat() const override { return absl::OkStatus(); }
  absl::Status TellAddress(const std::string& address) const override;

 private:
  S3RootLock(Storage& storage, S3Client& client, uint64_t epoch, std::string token, absl::Time began)
      : storage_(storage), client_(client), epoch_(epoch), token_(std::move(token)), began_(began) {}

  absl::Status Look() const override;
  // Writes the record anew, or says in it that the root was given back, unless the root is lost. Returns whether it is
  // written.
  bool WriteRecord(bool held);
  // Writes the record anew until the lock goes.
  void Renew();

  Storage& storage_;
  S3Client& client_;
  const uint64_t epoch_;
  const std::string token_;
  const absl::Time began_;
  mutable Mutex mutex_;
  mutable std::string own_etag_ ABSL_GUARDED_BY(mutex_);  // of this lock's record when it was last read
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool renewed_ ABSL_GUARDED_BY(mutex_) = true;  // when it was last tried
  std::thread renewal_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_ROOT_LOCK_H_
