#include "store/storage/storage.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

std::string Storage::FullPath(std::string_view path) const {
  return absl::StrCat(root_ == "/" ? "" : root_, "/", std::string(path));
}

absl::StatusOr<std::string> Storage::Read(std::string_view path, uint64_t max_bytes, Cache cache) {
  CAIRN_ASSIGN_OR_RETURN(const auto file, Open(path, {.cache = cache}));
  return ReadAll(*file, max_bytes);
}

absl::StatusOr<std::unique_ptr<RootLock>> Storage::TakeRoot(absl::Duration patience, const Clock& clock,
                                                            const Waiting& waiting) {
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<RootLock> lock, LockRoot(patience, clock, waiting));
  for (const char* directory : {"", ".cairn", ".cairn/plans"}) {
    // What cannot be removed is no reason to fail: the next holder tries again.
    RemoveUnfinished(directory, lock->began()).IgnoreError();
  }
  return lock;
}

absl::Status GaveOtherBytes(const std::string& file, std::string_view question) {
  return MakeError(Reason::kStorageError,
                   absl::StrCat(file, " gave other bytes when it was read a second time, so it is not known ",
                                std::string(question)),
                   {{"file", file}});
}

}  // namespace cairn
