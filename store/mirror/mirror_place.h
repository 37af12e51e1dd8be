// Where a mirror is: opens its storage, sees to it that it belongs to the root, and makes this process its writer.
#ifndef CAIRN_STORE_MIRROR_MIRROR_PLACE_H_
#define CAIRN_STORE_MIRROR_MIRROR_PLACE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"

namespace cairn {

// Thread-safe.
class MirrorPlace {
 public:
  // This file at a mirror names its root in one line, so that nobody's checkpoints are taken for copies.
  static constexpr char kOwnerPath[] = ".cairn/mirror-of";

  // The mirror's storage. What is done through it never gets to a directory that was mounted there since, nor to the
  // one below a mount that has gone: then there is a new Side.
  struct Side {
    explicit Side(std::unique_ptr<Storage> opened) : storage(std::move(opened)), checkpoints(*storage) {}
    const std::unique_ptr<Storage> storage;
    CheckpointStore checkpoints;
  };
  // What its one writer has.
  struct Held {
    std::shared_ptr<Side> side;
    std::unique_ptr<RootLock> lock;
  };
  // Opens the mirror; with `create` it makes it if there is none. It may be called by any thread, and again.
  using Open = std::function<absl::StatusOr<std::unique_ptr<Storage>>(bool create)>;

  // `address`: the mirror's canonical name; `root`: that of what is copied, and `root_storage` its storage, which must
  // outlive the place. A file at the root says that this mirror was made for it once. From then on it is not made anew:
  // an empty place is a mirror that is not mounted.
  MirrorPlace(std::string address, std::string root, Open open, Storage& root_storage)
      : address_(std::move(address)), root_(std::move(root)), open_(std::move(open)), root_storage_(root_storage) {}

  // The path of that file for the mirror of this name.
  static std::string MadePath(const std::string& address);

  const std::string& address() const { return address_; }

  // Returns whether the mirror was made for the root of that canonical name; false if nothing stands there yet.
  // FAILED_PRECONDITION (ROOT_IN_USE): it is another root's mirror, or no mirror and not empty. Else the errors of
  // storage.
  static absl::StatusOr<bool> BelongsTo(Storage& storage, const std::string& address, const std::string& root);

  // Returns the storage, to read from it. FAILED_PRECONDITION (ROOT_IN_USE): it is another root's mirror, or no mirror
  // and not empty; (ROOT_MISSING): it was made once, and nothing is there now. Else the errors of both storages.
  absl::StatusOr<std::shared_ptr<Side>> ToRead();
  // Takes the mirror's lock, or checks that it is still held. Fails as ToRead; also ROOT_IN_USE if another process is
  // its writer.
  absl::StatusOr<std::shared_ptr<const Held>> Hold();
  // Returns what Hold has returned last; null before that, and after the lock was lost.
  std::shared_ptr<const Held> held() const;
  void Release();

 private:
  absl::StatusOr<std::shared_ptr<Side>> Opened();
  // Returns what Opened does, after a look whether the name still leads there.
  absl::StatusOr<std::shared_ptr<Side>> OpenedNow();
  absl::StatusOr<std::unique_ptr<Storage>> OpenOnce();
  // Returns whether the mirror was made for this root once.
  absl::StatusOr<bool> WasMade();
  absl::Status NoteMade();
  // As BelongsTo. ROOT_MISSING: nothing is there, and the mirror was made once.
  absl::StatusOr<bool> IsOurs(Storage& storage);
  absl::StatusOr<std::shared_ptr<const Held>> Take();

  const std::string address_;
  const std::string root_;
  const Open open_;
  Storage& root_storage_;
  std::atomic<bool> made_ = false;
  Mutex open_mutex_;
  std::shared_ptr<Side> side_ ABSL_GUARDED_BY(open_mutex_);
  // Only for Storage::Refresh, which makes a storage use what is at its name now: whoever writes through a Side must
  // not be taken along.
  std::unique_ptr<Storage> watch_ ABSL_GUARDED_BY(open_mutex_);
  uint64_t refreshed_ ABSL_GUARDED_BY(open_mutex_) = 0;  // what Refresh has returned last
  mutable Mutex held_mutex_;
  std::shared_ptr<const Held> held_ ABSL_GUARDED_BY(held_mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_PLACE_H_
