// The attempts of a job, as they are in storage.
#ifndef CAIRN_STORE_READ_STORED_ATTEMPT_H_
#define CAIRN_STORE_READ_STORED_ATTEMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/format/manifest.h"

namespace cairn {

// One attempt. If none of `unfinished`, `committed`, `damaged` and `deleted` is set, it was aborted.
struct StoredAttempt {
  int64_t step = 0;
  uint32_t attempt = 0;
  // It has no record that ends it: it still runs, or its coordinator has ended before it.
  bool unfinished = false;
  // Its record is a commit record. It stays true if the attempt is deleted later.
  bool committed = false;
  // It has a record that cannot be read or that is wrong: `error` says why. Nobody may load the attempt, and none of
  // its files is removed.
  bool damaged = false;
  // It was deleted: nobody may load it, whatever its record was. `error` says when and why.
  bool deleted = false;
  // No person asked for the deletion: rules did not keep it, or a later attempt took its place.
  bool deleted_by_rules = false;
  bool directory = false;
  // A repair has made its commit record from the bins; the original commit record is damaged.
  bool repaired = false;
  std::string request_id;
  // Why it was aborted, what is wrong with a damaged record, or when and why it was deleted.
  absl::Status error;
  // The time that the record names; of a deleted attempt: the time of its commit.
  absl::Time time = absl::UnixEpoch();
  // These are set for a commit, also of a deleted attempt. `bytes` is the sum of the lengths of the files, headers
  // included.
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  // These are set for a commit that was not deleted.
  std::string plan_digest;
  Lineage lineage;
  std::vector<Metric> metrics;
  std::vector<Alarm> alarms;
  // This is the StoredFile::identity of the file that was read; it is empty if the record is damaged.
  std::string identity;

  // Returns whether the attempt may be loaded, so that its step counts as committed.
  bool stands() const { return committed && !deleted; }
  bool aborted() const { return !unfinished && !committed && !damaged && !deleted; }
  // Returns whether files are left that nobody will want. The files of a deleted attempt may go as soon as no load
  // reads them, those of an unfinished attempt as soon as it has an abort record.
  bool left_over() const { return directory && !stands() && !damaged; }
};

// Ascending by (step, attempt).
using StoredAttempts = std::vector<StoredAttempt>;

// The steps of a job that a caller knows without asking storage.
struct KnownSteps {
  std::vector<int64_t> all;        // steps that have an outcome of any kind, ascending
  std::vector<int64_t> current;    // of these, the committed and not superseded, or damaged ones, ascending
  std::vector<int64_t> committed;  // of these, the committed ones
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STORED_ATTEMPT_H_
