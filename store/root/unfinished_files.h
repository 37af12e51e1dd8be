// Removes what earlier holders of a root's lock have left in the root's own directories when they were killed. What is
// left of a step goes when that step is read.
#ifndef CAIRN_STORE_ROOT_UNFINISHED_FILES_H_
#define CAIRN_STORE_ROOT_UNFINISHED_FILES_H_

#include "absl/time/time.h"
#include "store/storage/storage.h"

namespace cairn {

// The caller has held the lock of `storage` since `began` (RootLock::began). A file that cannot be removed is no
// reason to fail: the next holder tries again.
void RemoveUnfinishedFiles(Storage& storage, absl::Time began);

}  // namespace cairn

#endif  // CAIRN_STORE_ROOT_UNFINISHED_FILES_H_
