// A step of a job, as its records in storage say it: pure, made from what CheckpointStore has read.
#ifndef CAIRN_STORE_READ_STEP_RECORD_H_
#define CAIRN_STORE_READ_STEP_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "store/read/lineage.h"
#include "store/read/stored_attempt.h"

namespace cairn {

// Returns true for a proof that a checkpoint is damaged: MANIFEST_CORRUPT, FILE_MISSING, FILE_TRUNCATED. An error of
// storage proves nothing, and neither does a record that this version is too old to read.
bool IsProvenDamage(const absl::Status& status);

// Returns true if storage failed to read (EIO, ESTALE, EACCES, EMFILE ...), so that the next try may find a checkpoint.
// False for an error that every try gives, such as a link in the place of a record, or a record of a version that is
// too new.
bool IsReadFailure(const absl::Status& status);

struct StepRecord {
  enum class State {
    kNothing,    // nothing was ever committed
    kCommitted,  // a manifest of this step can be read; of several the highest attempt counts
    kDamaged,    // an outcome cannot be read, and no later attempt has a manifest; see deciding()
  };
  int64_t step = 0;
  std::vector<StoredAttempt> attempts;  // ascending
  // True if the step's directory has unfinished files: see Storage::RemoveUnfinished.
  bool unfinished = false;
  // StepMarks::pinned. A mark counts by its name, readable or not.
  bool pinned = false;
  // StepMarks::tags.
  std::vector<std::string> tags;
  // Says why the step's directory cannot be listed, so that nothing is known of its attempts; OK if it can.
  absl::Status unlisted;
  // True if storage says that there is no such directory.
  bool gone = false;

  State state() const;
  // FAILED_PRECONDITION (CHECKPOINT_PINNED): a pin or a tag keeps the step from being deleted; the message names it.
  // Else OK.
  absl::Status Protection(std::string_view job) const;
  // Returns the attempt that decides the state: the committed one, or a damaged one that may be a commit; null if there
  // is neither. A damaged attempt above a readable manifest decides if its directory exists: it may have replaced that
  // manifest, and nobody may get the older bytes without notice. Without a directory it was an aborted attempt.
  const StoredAttempt* deciding() const;
  // Says why the step is damaged; OK if it is not.
  absl::Status damage() const;
  // Returns damage() if it is a failure to read (IsReadFailure), so that nobody knows whether the step is committed;
  // else OK.
  absl::Status unread() const;
};

// Returns the lineage of a job's committed steps. `steps` must have all steps of the job.
JobLineage LineageOf(const std::vector<StepRecord>& steps);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STEP_RECORD_H_
