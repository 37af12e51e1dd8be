#include "common/file/errno_error.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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
    case EMFILE:
    case ENFILE:
      return Reason::kMemoryLimit;
    default:
      return operation == "fsync" ? Reason::kFsyncFailed : Reason::kStorageError;
  }
}

// Any call that opens something may fail in this way. The error says which limit was reached and how to raise it.
absl::Status NoDescriptor(int error, std::string_view operation, std::string_view path) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string who = error == ENFILE ? "the whole system has no file descriptor left"
                                          : absl::StrCat(program_invocation_short_name, " (process ", getpid(),
                                                         ") has no file descriptor left, of ", limit.rlim_cur);
  const std::string next =
      error == ENFILE ? "Raise fs.file-max, or end what keeps so many files open."
                      : absl::StrCat("Raise its limit of open files: now by prlimit --pid ", getpid(),
                                     " --nofile=65536, before its start by ulimit -n or systemd's LimitNOFILE.");
  return MakeError(Reason::kMemoryLimit, absl::StrCat(std::string(operation), " ", std::string(path), ": ", who),
                   {{"next", next}, {"file", std::string(path)}, {"errno", absl::StrCat(error)}});
}

}  // namespace

absl::Status ErrnoError(int error, std::string_view operation, std::string_view path) {
  return ErrnoError(ReasonFor(error, operation), error, operation, path);
}

absl::Status ErrnoError(Reason reason, int error, std::string_view operation, std::string_view path) {
  if (error == EMFILE || error == ENFILE) return NoDescriptor(error, operation, path);
  const std::string text = std::generic_category().message(error);
  return MakeError(reason, absl::StrCat(std::string(operation), " ", std::string(path), ": ", text),
                   {{"file", std::string(path)}, {"errno", absl::StrCat(error)}});
}

absl::Status NoRegularFileError(unsigned mode, std::string_view operation, std::string_view path) {
  if (S_ISLNK(mode)) return ErrnoError(ELOOP, operation, path);
  if (S_ISDIR(mode)) return ErrnoError(EISDIR, operation, path);
  return MakeError(Reason::kStorageError, absl::StrCat(std::string(path), " is no regular file"),
                   {{"file", std::string(path)}, {"errno", absl::StrCat(EISDIR)}});
}

}  // namespace cairn
