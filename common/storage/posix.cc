#include "common/storage/posix.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/random_id.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/errno_error.h"

namespace cairn {
namespace {

absl::StatusOr<std::vector<std::string>> Components(std::string_view path) {
  std::vector<std::string> parts = absl::StrSplit(absl::string_view(path.data(), path.size()), '/');
  for (const std::string& part : parts) {
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos) {
      return MakeError(Reason::kPathEscape, absl::StrCat("the path \"", std::string(path), "\" is not below the root"));
    }
  }
  return parts;
}

// ENOTDIR is what O_NOFOLLOW|O_DIRECTORY says of a symbolic link; look once more to tell the two apart.
int LinkOrError(int directory, const std::string& name, int error) {
  struct stat info;
  if (error == ENOTDIR && fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode)) {
    return ELOOP;
  }
  return error;
}

int Retry(auto&& call) {
  int result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// Links `from` to `to` in one directory without replacing: 0, EEXIST, or another errno.
int LinkNoReplace(int directory, const std::string& from, const std::string& to) {
  if (linkat(directory, from.c_str(), directory, to.c_str(), 0) == 0) return 0;
  if (errno == EEXIST) return EEXIST;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) return errno;
  // No hard links here (FUSE, some network file systems).
  if (renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  return errno;
}

}  // namespace

int WriteFully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

absl::StatusOr<std::string> ReadWhole(int fd, const std::string& path, uint64_t max_bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoError(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) return ErrnoError(EISDIR, "read", path);
  if (static_cast<uint64_t>(info.st_size) > max_bytes) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat(path, " has ", info.st_size, " bytes, at most ", max_bytes, " are read"),
                     {{"file", path}});
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "read", path);
    if (got == 0) break;  // it became shorter meanwhile
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::string PosixStorage::Full(std::string_view path) const { return absl::StrCat(root_, "/", std::string(path)); }

absl::StatusOr<std::unique_ptr<PosixStorage>> PosixStorage::Open(const std::string& root, bool create) {
  if (root.empty()) return MakeError(Reason::kBadRequest, "no root directory was given (--root)");
  const auto failed = [&](std::string_view operation) {
    if (errno != ENOENT && errno != ENOTDIR) return ErrnoError(errno, operation, root);
    return MakeError(Reason::kRootMissing, absl::StrCat(root, errno == ENOENT ? " does not exist" : " is no directory"),
                     {{"file", root}});
  };
  if (create && mkdir(root.c_str(), 0777) != 0 && errno != EEXIST) return failed("mkdir");
  UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return failed("open");
  std::string clean = root;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  return std::unique_ptr<PosixStorage>(new PosixStorage(std::move(clean), std::move(fd)));
}

absl::StatusOr<UniqueFd> PosixStorage::OpenDirectory(std::string_view path) {
  UniqueFd current(Retry([&] { return openat(root_fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!current.valid()) return ErrnoError(errno, "open", root_);
  if (path.empty()) return current;
  CAIRN_ASSIGN_OR_RETURN(const auto parts, Components(path));
  for (const std::string& part : parts) {
    UniqueFd next(
        Retry([&] { return openat(current.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
    if (!next.valid()) return ErrnoError(LinkOrError(current.get(), part, errno), "open", Full(path));
    current = std::move(next);
  }
  return current;
}

absl::StatusOr<UniqueFd> PosixStorage::OpenParent(std::string_view path, std::string& leaf) {
  CAIRN_ASSIGN_OR_RETURN(auto parts, Components(path));
  leaf = parts.back();
  const size_t cut = path.size() - leaf.size();
  return OpenDirectory(path.substr(0, cut == 0 ? 0 : cut - 1));
}

absl::Status PosixStorage::MakeDirectories(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(const auto parts, Components(path));
  CAIRN_ASSIGN_OR_RETURN(UniqueFd current, OpenDirectory(""));
  for (const std::string& part : parts) {
    if (mkdirat(current.get(), part.c_str(), 0777) != 0) {
      if (errno != EEXIST) return ErrnoError(errno, "mkdir", Full(path));
    } else if (fsync(current.get()) != 0) {
      return ErrnoError(errno, "fsync", Full(path));
    }
    UniqueFd next(
        Retry([&] { return openat(current.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
    if (!next.valid()) return ErrnoError(LinkOrError(current.get(), part, errno), "open", Full(path));
    current = std::move(next);
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> PosixStorage::OpenFile(std::string_view path, int flags, unsigned mode) {
  std::string leaf;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenParent(path, leaf));
  UniqueFd fd(Retry([&] { return openat(directory.get(), leaf.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode); }));
  if (!fd.valid()) return ErrnoError(errno, "open", Full(path));
  return fd;
}

absl::StatusOr<std::string> PosixStorage::WriteTemporary(int directory, std::string_view path, std::string_view bytes) {
  const std::string name = absl::StrCat(".tmp-", RandomToken(8));
  UniqueFd fd(openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return ErrnoError(errno, "create", Full(path));
  const int error = WriteFully(fd.get(), bytes);
  if (error != 0 || fsync(fd.get()) != 0) {
    const absl::Status status = ErrnoError(error != 0 ? error : errno, error != 0 ? "write" : "fsync", Full(path));
    unlinkat(directory, name.c_str(), 0);
    return status;
  }
  return name;
}

absl::StatusOr<PosixStorage::Put> PosixStorage::PutIfAbsent(std::string_view path, std::string_view bytes) {
  std::string leaf;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenParent(path, leaf));
  CAIRN_ASSIGN_OR_RETURN(const std::string temporary, WriteTemporary(directory.get(), path, bytes));
  const int error = LinkNoReplace(directory.get(), temporary, leaf);
  unlinkat(directory.get(), temporary.c_str(), 0);  // gone already where the rename was used
  if (error == EEXIST) return Put::kExists;
  if (error != 0) return ErrnoError(error, "link", Full(path));
  if (fsync(directory.get()) != 0) return ErrnoError(errno, "fsync", Full(path));
  return Put::kCreated;
}

absl::Status PosixStorage::PutReplacing(std::string_view path, std::string_view bytes) {
  std::string leaf;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenParent(path, leaf));
  CAIRN_ASSIGN_OR_RETURN(const std::string temporary, WriteTemporary(directory.get(), path, bytes));
  if (renameat(directory.get(), temporary.c_str(), directory.get(), leaf.c_str()) != 0) {
    const absl::Status status = ErrnoError(errno, "rename", Full(path));
    unlinkat(directory.get(), temporary.c_str(), 0);
    return status;
  }
  if (fsync(directory.get()) != 0) return ErrnoError(errno, "fsync", Full(path));
  return absl::OkStatus();
}

absl::Status PosixStorage::ProbeAtomicCreate() {
  CAIRN_RETURN_IF_ERROR(MakeDirectories(".cairn"));
  const std::string path = absl::StrCat(".cairn/probe-", RandomToken(8));
  const auto first = PutIfAbsent(path, "1");
  const auto second = first.ok() ? PutIfAbsent(path, "2") : first;
  const auto content = first.ok() ? ReadFile(path, 16) : absl::StatusOr<std::string>("");
  CAIRN_RETURN_IF_ERROR(RemoveAll(path));
  if (first.ok() && second.ok() && *first == Put::kCreated && *second == Put::kExists && content.ok() &&
      *content == "1") {
    return absl::OkStatus();
  }
  // A full or read-only file system has its own reason.
  if (!first.ok() && !HasReason(first.status(), Reason::kStorageError)) return first.status();
  return MakeError(Reason::kNoAtomicCreate,
                   absl::StrCat(root_, ": files cannot be created here without replacing others"), {{"file", root_}});
}

absl::StatusOr<std::string> PosixStorage::ReadFile(std::string_view path, uint64_t max_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  return ReadWhole(fd.get(), Full(path), max_bytes);
}

absl::StatusOr<std::vector<PosixStorage::Entry>> PosixStorage::List(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(path));
  DIR* directory = fdopendir(fd.get());
  if (directory == nullptr) return ErrnoError(errno, "list", Full(path));
  fd.release();
  std::vector<Entry> entries;
  errno = 0;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    struct stat info;
    if (entry->d_type == DT_UNKNOWN && fstatat(dirfd(directory), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      is_directory = S_ISDIR(info.st_mode);
    }
    entries.push_back({name, is_directory});
  }
  const int error = errno;
  closedir(directory);
  if (error != 0) return ErrnoError(error, "list", Full(path));
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool PosixStorage::Exists(std::string_view path) {
  std::string leaf;
  const auto directory = OpenParent(path, leaf);
  struct stat info;
  return directory.ok() && fstatat(directory->get(), leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

absl::Status PosixStorage::Rename(std::string_view from, std::string_view to) {
  std::string from_leaf, to_leaf;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenParent(from, from_leaf));
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd target, OpenParent(to, to_leaf));
  const int error = LinkNoReplace(directory.get(), from_leaf, to_leaf);
  if (error != 0) return ErrnoError(error, "rename", Full(to));
  unlinkat(directory.get(), from_leaf.c_str(), 0);
  if (fsync(directory.get()) != 0) return ErrnoError(errno, "fsync", Full(to));
  return absl::OkStatus();
}

absl::Status PosixStorage::RemoveAll(std::string_view path) {
  std::string leaf;
  const auto parent = OpenParent(path, leaf);
  if (!parent.ok()) {
    return HasReason(parent.status(), Reason::kFileMissing) ? absl::OkStatus() : parent.status();
  }
  if (unlinkat(parent->get(), leaf.c_str(), 0) != 0 && errno != ENOENT) {
    if (errno != EISDIR && errno != EPERM) return ErrnoError(errno, "remove", Full(path));
    CAIRN_ASSIGN_OR_RETURN(const auto entries, List(path));
    for (const Entry& entry : entries) {
      CAIRN_RETURN_IF_ERROR(RemoveAll(absl::StrCat(std::string(path), "/", entry.name)));
    }
    if (unlinkat(parent->get(), leaf.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return ErrnoError(errno, "remove", Full(path));
    }
  }
  if (fsync(parent->get()) != 0) return ErrnoError(errno, "fsync", Full(path));
  return absl::OkStatus();
}

absl::Status PosixStorage::SyncDirectory(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenDirectory(path));
  if (fsync(directory.get()) != 0) return ErrnoError(errno, "fsync", Full(path));
  return absl::OkStatus();
}

}  // namespace cairn
