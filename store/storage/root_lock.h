// The lock that makes one process the writer of a root: its coordinator, an import or a repair.
#ifndef CAIRN_STORE_STORAGE_ROOT_LOCK_H_
#define CAIRN_STORE_STORAGE_ROOT_LOCK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace cairn {

struct RootHolder {
  std::string text;     // for people: "process 7 on node3 (epoch 12)"
  std::string host;     // the name of its machine; empty if the record does not say it
  std::string address;  // where it serves, host:port; empty if it has not said so
};

// A lock that is held. Storage::TakeRoot makes it, and its destructor releases it. Thread-safe. The lock keeps
// processes from disturbing each other. No commit depends on it: a commit is safe because its record is put only where
// none exists.
class RootLock {
 public:
  virtual ~RootLock() = default;

  // Returns the epoch of this holder, which is higher than that of every earlier holder.
  virtual uint64_t epoch() const = 0;
  // Returns when the lock was taken, by the clock of the storage. An unfinished file that was last changed before that
  // time was left by an earlier holder.
  virtual absl::Time began() const = 0;

  // Reads storage anew, and checks that the root still belongs to this process: a lock may be lost without notice.
  // FAILED_PRECONDITION (ROOT_IN_USE): the root is lost for good, so the process must stop serving. Errors of storage:
  // this call could not find out.
  absl::Status Check() const;
  // Sets a function that Check calls each time it finds that the root is lost, from any thread.
  void OnLost(std::function<void(const absl::Status& lost)> on_lost);

  // Marks the root as one that holds deletions and lineages, if it is not marked yet. A process of an earlier version
  // would take a deleted checkpoint for a damaged one, so it refuses a marked root. The mark is durable on return.
  // Fails as Check, and with the errors of storage; after an error nothing may be deleted.
  virtual absl::Status RaiseFormat() const = 0;

  // Records the address at which this process serves (host:port), for Storage::HolderOfRoot. The record is valid while
  // the process holds the root.
  virtual absl::Status TellAddress(const std::string& address) const = 0;

 private:
  // Does the work of Check, but does not call the function of OnLost.
  virtual absl::Status Look() const = 0;

  mutable Mutex on_lost_mutex_;
  std::function<void(const absl::Status& lost)> on_lost_ ABSL_GUARDED_BY(on_lost_mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_ROOT_LOCK_H_
