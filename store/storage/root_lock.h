// The lock that makes one process the writer of a root: its coordinator, an import or a repair.
#ifndef CAIRN_STORE_STORAGE_ROOT_LOCK_H_
#define CAIRN_STORE_STORAGE_ROOT_LOCK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cairn {

// Describes the process that holds a root's lock.
struct RootHolder {
  std::string text;     // for people: "process 7 on node3 (epoch 12)"
  std::string host;     // the name of its machine; empty if the record does not say it
  std::string address;  // where it serves, host:port; empty if it has not said so
};

// A lock that is held; its end gives it back. Storage::TakeRoot makes it. Thread-safe. It helps processes not to get in
// each other's way. What makes a commit safe is that its record is put if absent.
class RootLock {
 public:
  virtual ~RootLock() = default;

  // Each holder's is above those of all before.
  virtual uint64_t epoch() const = 0;
  // Returns when the lock was taken, by the clock of the storage. Files that were last changed before belong to a
  // predecessor.
  virtual absl::Time began() const = 0;

  // Checks that the root still belongs to this process, by what stands in storage now: a lock may be taken away without
  // a word. FAILED_PRECONDITION (ROOT_IN_USE): it does not, and never will again, so the process must stop serving.
  // Errors of storage: nobody knows this time.
  absl::Status Check() const;
  // Is told each time when Check finds that the root is lost. Must be set before a second thread uses the lock.
  void OnLost(std::function<void(const absl::Status& lost)> on_lost) { on_lost_ = std::move(on_lost); }

  // Makes the root one that holds deletions and lineages, if it is not one yet. A process of an earlier version, which
  // would take a deleted checkpoint for a damaged one, refuses the root from then on. Durable when it returns. Fails as
  // Check, and with the errors of storage; then nothing may be deleted.
  virtual absl::Status RaiseFormat() const = 0;

  // Writes down, for Storage::HolderOfRoot, where this process serves. It counts for as long as the process holds the
  // root.
  virtual absl::Status TellAddress(const std::string& address) const = 0;

 private:
  // Does what Check does.
  virtual absl::Status Look() const = 0;

  std::function<void(const absl::Status& lost)> on_lost_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_ROOT_LOCK_H_
