// Copies one committed step from a storage to another, and checks every byte on the way.
#ifndef CAIRN_STORE_MIRROR_STEP_COPY_H_
#define CAIRN_STORE_MIRROR_STEP_COPY_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage.h"

namespace cairn {

// Parts of so many bytes are read and written.
inline constexpr uint64_t kCopyPartBytes = uint64_t{8} << 20;
// At most so many parts are on their way at once. A thread has one part, and a writer into an object store another one
// of each file, with its header: so a copy takes at most 2 * 8 * 8 MiB = 128 MiB, and the headers of eight files.
inline constexpr int kMostPartsAtOnce = 8;

// All must outlive the copy.
struct CopyTarget {
  Storage& storage;
  CheckpointStore& checkpoints;  // of `storage`
  const RootLock& lock;          // of `storage`
  const Clock& clock;
};

// Copies the files of a committed attempt, and then puts its record `record`, which thus stands only over whole files.
// The directory is claimed as that of any attempt, but by a number that follows from the record. So what an earlier
// copy of the same record has left there is gone on with: a file that is there already is read and checked, and copied
// anew if it is not whole. If the record stands already, that is done only if a file is missing or has another length.
// `stop`: ends the copy soon. `bytes_done` grows to the bytes of all files.
//
// A fault of the step in `from` (see IsStepFault): CHECKSUM_MISMATCH, FILE_MISSING, FILE_TRUNCATED, MANIFEST_CORRUPT;
// nothing is committed then. FAILED_PRECONDITION (ROOT_IN_USE): `lock` is lost; (ROOT_MISMATCH): another process copies
// into the same directory. ALREADY_EXISTS (STEP_COMMITTED): another record ends the attempt there. CANCELLED
// (INTERRUPTED): `stop` was set. Else the errors of both storages; those of the target are never a fault of the step.
absl::Status CopyStep(CheckpointStore& from, const CheckpointStore::ManifestBytes& record, const CopyTarget& to,
                      const std::atomic<bool>& stop, std::atomic<uint64_t>& bytes_done);

// Returns true for an error that says that the step itself is damaged or gone, so that another try does not help.
bool IsStepFault(const absl::Status& status);

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_STEP_COPY_H_
