#include "store/open/open_storage.h"

#include "common/base/clock.h"
#include "common/status/status.h"
#include "store/posix/nested_root.h"
#include "store/posix/posix_storage.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_storage.h"

namespace cairn {

bool IsDirectoryRoot(std::string_view root) { return !IsObjectStoreRoot(root); }

absl::StatusOr<std::unique_ptr<Storage>> OpenStorage(const std::string& root, bool create, bool direct) {
  if (!IsDirectoryRoot(root)) return S3Storage::Open(root, create, Clock::Real());
  // A directory that may not become a root is not even made.
  if (create) CAIRN_RETURN_IF_ERROR(CheckStandsAlone(root));
  return PosixStorage::Open(root, create, {.direct = direct});
}

absl::StatusOr<std::unique_ptr<Storage>> OpenStorageOfJob(const std::string& root, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(auto storage, OpenStorage(root, /*create=*/false));
  if (IsDirectoryRoot(root)) CAIRN_RETURN_IF_ERROR(CheckJobOfRoot(root, job));
  return storage;
}

}  // namespace cairn
