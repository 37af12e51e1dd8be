// Says whether a commit at a mirror has the same files as one at the root of which the record does not tell that.
#ifndef CAIRN_STORE_MIRROR_SAME_FILES_H_
#define CAIRN_STORE_MIRROR_SAME_FILES_H_

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "store/read/checkpoint_store.h"
#include "store/read/step_record.h"

namespace cairn {

enum class SameFiles {
  kYes,
  kNo,
  kUnknown,  // the root has no file any more by which that could be told
};

// Compares the step's commit at `root` with `copy`, the manifest of a commit of the same number. A file's header holds
// the checksums of all that is in the file; the manifest has the header's own. If the root's record can be read, the
// two manifests are compared; else the headers of all files that the root still has. One that differs makes it another
// commit: several commits may have some files in common. Errors of storage: nobody knows.
absl::StatusOr<SameFiles> CompareFiles(CheckpointStore& root, const StepRecord& step, const Manifest& copy);

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_SAME_FILES_H_
