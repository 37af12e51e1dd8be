#include "common/file/atomic_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/retry.h"
#include "common/file/unique_fd.h"

namespace cairn {
namespace {

using Durable = AtomicWriteOptions::Durable;

constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr size_t kTemporaryDigits = 16;

// Writes the file under a temporary name. After an error no file remains.
absl::Status WriteTemporary(int directory, const std::string& temporary, std::span<const std::string_view> pieces,
                            const AtomicWriteOptions& options, const std::string& path) {
  const UniqueFd fd = OpenIn(directory, temporary, O_WRONLY | O_CREAT | O_EXCL, options.mode);
  if (!fd.valid()) return ErrnoError(errno, "create", path);
  absl::Status written;
  if (const int error = WriteFully(fd.get(), pieces); error != 0) {
    written = ErrnoError(error, "write", path);
  } else if (options.durable != Durable::kNothing && Fsync(fd.get()) != 0) {
    written = ErrnoError(errno, "fsync", path);
  }
  if (!written.ok()) UnlinkIn(directory, temporary);
  return written;
}

// Calls `rename_file`, which renames a file over another one. Returns the errno, or 0. EINTR: the call was interrupted
// and the old name is gone, so it is not known whether the file has its new name.
int Replace(auto&& rename_file) {
  bool interrupted = false;
  while (rename_file() != 0) {
    if (errno != EINTR) return errno == ENOENT && interrupted ? EINTR : errno;
    interrupted = true;
  }
  return 0;
}

// FILE_MISSING is only for files of checkpoints, so a missing file is STORAGE_ERROR here.
absl::Status PublishError(int error, std::string_view operation, const std::string& path) {
  if (error == ENOENT || error == ELOOP) return ErrnoError(Reason::kStorageError, error, operation, path);
  return ErrnoError(error, operation, path);
}

bool HasName(int directory, const std::string& name, const struct stat& file) {
  struct stat named;
  return StatIn(directory, name, named) == 0 && named.st_dev == file.st_dev && named.st_ino == file.st_ino;
}

// Calls renameat2(RENAME_NOREPLACE). Returns the errno, or 0. An interrupted call that did its work counts as success.
int TryRename(int directory, const std::string& from, const std::string& to) {
  struct stat file;
  if (StatIn(directory, from, file) != 0) return errno;
  const auto renamed = [&] { return renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE); };
  if (renamed() == 0) return 0;
  if (errno != EINTR) return errno;
  if (RetryInterrupted(renamed) == 0) return 0;
  const int error = errno;
  return (error == EEXIST || error == ENOENT) && HasName(directory, to, file) ? 0 : error;
}

}  // namespace

PutResult WriteAtomically(int directory, const std::string& name, std::string_view bytes,
                          const AtomicWriteOptions& options, const std::string& path) {
  return WriteAtomically(directory, name, std::span(&bytes, 1), options, path);
}

PutResult WriteAtomically(int directory, const std::string& name, std::span<const std::string_view> pieces,
                          const AtomicWriteOptions& options, const std::string& path) {
  const std::string temporary = NewTemporaryName();
  if (absl::Status written = WriteTemporary(directory, temporary, pieces, options, path); !written.ok()) {
    return {std::move(written)};
  }
  int error = 0;
  if (!options.replace) {
    error = LinkNoReplace(directory, temporary, name);
  } else {
    error = Replace([&] { return renameat(directory, temporary.c_str(), directory, name.c_str()); });
  }
  UnlinkIn(directory, temporary);  // after a rename this finds nothing
  if (error != 0 && (options.replace || error != EEXIST)) {
    return {ErrnoError(error, options.replace ? "rename" : "link", path), !IsRefusedName(error)};
  }
  // Syncs also if the file existed before, because its maker may have ended before its own fsync, or that fsync may
  // have failed. The temporary name has just changed the directory, so this fsync has something to write and can fail:
  // see ConfinedDirectory::SettleDirectory.
  if (options.durable == Durable::kAll && Fsync(directory) != 0) {
    return {ErrnoError(errno, "fsync", path), /*in_doubt=*/true};
  }
  return {error == 0 ? Put::kCreated : Put::kExists};
}

PutResult WriteAtomically(const std::string& path, std::string_view bytes, const AtomicWriteOptions& options) {
  const std::string directory = DirectoryOf(path);
  const UniqueFd fd(OpenNamedDirectory(directory));
  if (!fd.valid()) return {ErrnoError(errno, "open", directory)};
  return WriteAtomically(fd.get(), path.substr(path.rfind('/') + 1), bytes, options, path);
}

absl::Status PublishFile(const std::string& from, const std::string& to, Durable durable) {
  const int error = Replace([&] { return rename(from.c_str(), to.c_str()); });
  if (error != 0) return PublishError(error, "rename", to);
  return durable == Durable::kAll ? SyncDirectoryOf(to) : absl::OkStatus();
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = DirectoryOf(path);
  const UniqueFd fd(OpenNamedDirectory(directory));
  if (!fd.valid()) return PublishError(errno, "open", directory);
  if (Fsync(fd.get()) == 0 || errno == EINVAL || errno == EROFS) return absl::OkStatus();
  return PublishError(errno, "fsync", directory);
}

int LinkNoReplace(int directory, const std::string& from, const std::string& to) {
  // A call that was interrupted by a signal may have done its work. Then the repeated call finds that this same file
  // already has the new name, or that there is no file under the old name.
  struct stat file;
  const auto linked = [&] { return linkat(directory, from.c_str(), directory, to.c_str(), 0); };
  if (linked() == 0) return 0;
  if (errno == EINTR) {
    if (StatIn(directory, from, file) != 0) return errno;
    if (RetryInterrupted(linked) == 0) return 0;
    if (errno == EEXIST) return HasName(directory, to, file) ? 0 : EEXIST;
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) return errno;
  // This file system has no hard links (FUSE, some network file systems).
  return TryRename(directory, from, to);
}

int RenameNoReplace(int directory, const std::string& from, const std::string& to) {
  const int error = TryRename(directory, from, to);
  if (error != EINVAL && error != ENOSYS && error != EOPNOTSUPP) return error;
  const int linked = LinkNoReplace(directory, from, to);
  if (linked == 0) UnlinkIn(directory, from);
  return linked;
}

bool IsRefusedName(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EACCES:
    case EPERM:
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EMLINK:
    case ENAMETOOLONG:
    case EINVAL:
    case EOPNOTSUPP:
    case ENOSYS:
      return true;
    default:
      return false;
  }
}

std::string NewTemporaryName() {
  return absl::StrCat(std::string(kTemporaryPrefix), RandomToken(kTemporaryDigits / 2));
}

bool IsTemporaryName(std::string_view name) {
  return name.size() == kTemporaryPrefix.size() + kTemporaryDigits && name.starts_with(kTemporaryPrefix) &&
         name.find_first_not_of("0123456789abcdef", kTemporaryPrefix.size()) == std::string_view::npos;
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace cairn
