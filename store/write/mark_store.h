// Stores what people say of checkpoints: pins, tags, and the rules of retention of a job.
//
// In a directory each is a file that comes and goes. Where Storage::ListsExactly, in an object store, each change is a
// record with a number (store/read/change_number.h), because there a request may have effect after later ones were
// answered. A step or a job that has such records, because it was copied from a store, goes on with them.
#ifndef CAIRN_STORE_WRITE_MARK_STORE_H_
#define CAIRN_STORE_WRITE_MARK_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "store/read/change_number.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"
#include "store/write/prune_policy.h"

namespace cairn {

// Thread-safe, if changes of one job come one after the other. Every method blocks on storage and may fail with its
// reasons; if nobody knows whether a change was made, the error is one of UnknownOutcome (changed_record.h).
// FAILED_PRECONDITION (ROOT_IN_USE): another process has the root.
class MarkStore {
 public:
  // `root` is checked right before every change. All arguments must outlive the store.
  MarkStore(Storage& storage, const Clock& clock, const RootLock& root)
      : storage_(storage), clock_(clock), root_(root) {}

  // Gives a step, which has a directory, the tag, or the pin if `tag` is empty; durably. A mark that is set keeps its
  // text.
  absl::Status Set(const std::string& job, int64_t step, const std::string& tag, const std::string& text);
  // Takes it away, durably.
  absl::Status Clear(const std::string& job, int64_t step, const std::string& tag);

  // Sets the rules of a job, durably; an empty policy removes them.
  absl::Status SetPolicy(const std::string& job, const PrunePolicy& policy);
  // Returns the rules of a job; an empty policy if there are none. DATA_LOSS (RETENTION_UNREADABLE): the record that
  // counts cannot be read.
  absl::StatusOr<PrunePolicy> ReadPolicy(const std::string& job);

 private:
  absl::Status Change(const std::string& job, int64_t step, const std::string& tag, bool set, const std::string& text);
  // Returns the number of a change that follows `last`, of a record in `directory`. STORAGE_ERROR: none can follow.
  absl::StatusOr<ChangeNumber> NumberAfter(const ChangeNumber& last, const std::string& directory);
  // Puts a record of a change that has a number.
  absl::Status PutChange(const std::string& path, const std::string& bytes);
  // Returns the numbers of the changes of a job's rules, ascending.
  absl::StatusOr<std::vector<ChangeNumber>> RulesOf(const std::string& job);

  Storage& storage_;
  const Clock& clock_;
  const RootLock& root_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_MARK_STORE_H_
