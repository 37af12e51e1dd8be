#include "common/file/errno_error.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

Reason ReasonFor(int error, std::string_view operation) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return Reason::kNoSpace;
    case EROFS:
    case EACCES:
    case EPERM:
      return Reason::kStorageReadOnly;
    case ENOENT:
      return Reason::kFileMissing;
    case ELOOP:
      return Reason::kPathEscape;
    default:
      return operation == "fsync" ? Reason::kFsyncFailed : Reason::kStorageError;
  }
}

}  // namespace

absl::Status ErrnoError(int error, std::string_view operation, std::string_view path) {
  return ErrnoError(ReasonFor(error, operation), error, operation, path);
}

absl::Status ErrnoError(Reason reason, int error, std::string_view operation, std::string_view path) {
  const std::string text = std::generic_category().message(error);
  return MakeError(reason, absl::StrCat(std::string(operation), " ", std::string(path), ": ", text),
                   {{"file", std::string(path)}, {"errno", absl::StrCat(error)}});
}

}  // namespace cairn
