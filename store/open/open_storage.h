// The one place where the text of a --root becomes a storage.
#ifndef CAIRN_STORE_OPEN_OPEN_STORAGE_H_
#define CAIRN_STORE_OPEN_OPEN_STORAGE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/storage/storage.h"

namespace cairn {

// Returns whether a root is a directory, and not an object store as "s3://bucket/prefix" is.
bool IsDirectoryRoot(std::string_view root);

// Opens a root. With `create` it may be made, unless it lies within another root or around one. `direct` = false: files
// of a directory never bypass the page cache. Fails as S3Storage::Open or PosixStorage::Open, and with `create` also as
// CheckStandsAlone.
absl::StatusOr<std::unique_ptr<Storage>> OpenStorage(const std::string& root, bool create, bool direct = true);

// Opens a root to read a job of it. Fails as OpenStorage and CheckJobOfRoot.
absl::StatusOr<std::unique_ptr<Storage>> OpenStorageOfJob(const std::string& root, const std::string& job);

}  // namespace cairn

#endif  // CAIRN_STORE_OPEN_OPEN_STORAGE_H_
