#include "common/file/confined_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/retry.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A network file system takes a fraction of a millisecond per call and serves many calls at a time. On a local file
// system many threads only slow each other down.
constexpr size_t kStatsPerHelper = 256;
// The kernel frees a file's blocks after it has released the directory's lock, so helpers can do this part in parallel.
constexpr size_t kUnlinksPerHelper = 32;

absl::StatusOr<std::vector<ConfinedDirectory::Entry>> ListDirectory(UniqueFd fd, const std::string& path) {
  DIR* directory = fdopendir(fd.get());
  if (directory == nullptr) return ErrnoError(errno, "list", path);
  fd.release();
  std::vector<ConfinedDirectory::Entry> entries;
  int error = 0;
  while (error == 0) {
    errno = 0;  // readdir sets it after an error, and not at the end of the directory
    const dirent* entry = readdir(directory);
    if (entry == nullptr) {
      error = errno;
      break;
    }
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {  // the file system does not tell the type here
      struct stat info;
      if (StatIn(dirfd(directory), name, info) != 0) {
        if (errno != ENOENT) error = errno;  // else the entry was removed meanwhile
        continue;
      }
      is_directory = S_ISDIR(info.st_mode);
    }
    entries.push_back({name, is_directory});
  }
  closedir(directory);
  if (error != 0) return ErrnoError(error, "list", path);
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

std::string ConfinedDirectory::Full(std::string_view path) const { return absl::StrCat(root_, "/", std::string(path)); }

absl::StatusOr<std::unique_ptr<ConfinedDirectory>> ConfinedDirectory::Open(const std::string& root, bool create) {
  if (root.empty()) return MakeError(Reason::kBadRequest, "no root directory was given (--root)");
  const auto failed = [&](std::string_view operation) {
    if (errno != ENOENT && errno != ENOTDIR) return ErrnoError(errno, operation, root);
    return MakeError(Reason::kRootMissing, absl::StrCat(root, errno == ENOENT ? " does not exist" : " is no directory"),
                     {{"file", root}});
  };
  std::string clean = root;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  if (create) {
    const bool made = RetryInterrupted([&] { return mkdir(clean.c_str(), 0777); }) == 0;
    if (!made && errno != EEXIST) return failed("mkdir");
    // For an existing root an error does not matter, because its maker made it durable or it is a mount point.
    const UniqueFd parent(OpenNamedDirectory(absl::StrCat(clean, "/..")));
    if ((!parent.valid() || Fsync(parent.get()) != 0) && made) return failed("fsync");
  }
  UniqueFd fd(OpenNamedDirectory(root));
  if (!fd.valid()) return failed("open");
  return std::unique_ptr<ConfinedDirectory>(new ConfinedDirectory(std::move(clean), std::move(fd)));
}

std::shared_ptr<const UniqueFd> ConfinedDirectory::root_fd() {
  MutexLock lock(mutex_);
  return root_fd_;
}

absl::StatusOr<uint64_t> ConfinedDirectory::Refresh() {
  UniqueFd fd(OpenNamedDirectory(root_));
  struct stat now;
  if (!fd.valid() || StatOf(fd.get(), now) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return ErrnoError(errno, "open", root_);
    return MakeError(Reason::kRootMissing, absl::StrCat(root_, " does not exist any more"), {{"file", root_}});
  }
  const auto held = root_fd();
  struct stat before;
  const bool same = StatOf(held->get(), before) == 0 && before.st_dev == now.st_dev && before.st_ino == now.st_ino;
  MutexLock lock(mutex_);
  if (!same) {
    root_fd_ = std::make_shared<const UniqueFd>(std::move(fd));
    ++root_changes_;
  }
  return root_changes_;
}

absl::StatusOr<UniqueFd> ConfinedDirectory::OpenDirectory(std::string_view path) {
  UniqueFd current = OpenIn(root_fd()->get(), ".", O_RDONLY | O_DIRECTORY);
  if (!current.valid()) return ErrnoError(errno, "open", root_);
  if (path.empty()) return current;
  CAIRN_ASSIGN_OR_RETURN(const auto parts, ConfinedComponents(path));
  for (const std::string& part : parts) {
    CAIRN_ASSIGN_OR_RETURN(current, EnterDirectory(current.get(), part, Full(path)));
  }
  return current;
}

absl::StatusOr<UniqueFd> ConfinedDirectory::OpenParent(std::string_view path, std::string& leaf) {
  CAIRN_ASSIGN_OR_RETURN(auto parts, ConfinedComponents(path));
  leaf = parts.back();
  const size_t cut = path.size() - leaf.size();
  return OpenDirectory(path.substr(0, cut == 0 ? 0 : cut - 1));
}

absl::Status ConfinedDirectory::MakeDirectories(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(const auto parts, ConfinedComponents(path));
  CAIRN_ASSIGN_OR_RETURN(UniqueFd root, OpenDirectory(""));
  std::vector<DurableDirectories::Unsynced> unsynced;
  CAIRN_RETURN_IF_ERROR(durable_.OpenOrMake(std::move(root), parts, Full(path), unsynced).status());
  return durable_.Sync(unsynced, Full(path));
}

absl::StatusOr<Put> ConfinedDirectory::MakeDirectoryExclusive(std::string_view path, const std::string& file,
                                                              std::string_view bytes) {
  CAIRN_ASSIGN_OR_RETURN(auto parts, ConfinedComponents(path));
  const std::string leaf = parts.back();
  parts.pop_back();
  CAIRN_ASSIGN_OR_RETURN(UniqueFd root, OpenDirectory(""));
  std::vector<DurableDirectories::Unsynced> unsynced;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd parent, durable_.OpenOrMake(std::move(root), parts, Full(path), unsynced));
  if (RetryInterrupted([&] { return mkdirat(parent.get(), leaf.c_str(), 0777); }) != 0) {
    if (errno == EEXIST) return Put::kExists;
    return ErrnoError(errno, "mkdir", Full(path));
  }
  const UniqueFd directory = OpenIn(parent.get(), leaf, O_RDONLY | O_DIRECTORY);
  const auto write = [&]() -> absl::Status {
    if (!directory.valid()) return ErrnoError(errno, "open", Full(path));
    const UniqueFd fd = OpenIn(directory.get(), file, O_WRONLY | O_CREAT | O_EXCL);
    if (!fd.valid()) return ErrnoError(errno, "create", Full(path));
    if (const int error = WriteFully(fd.get(), bytes); error != 0) return ErrnoError(error, "write", Full(path));
    CAIRN_RETURN_IF_ERROR(durable_.Sync(unsynced, Full(path)));
    // The sync of the parents has usually written the journal already, so this one is cheap.
    if (Fsync(parent.get()) != 0) return ErrnoError(errno, "fsync", Full(path));
    return absl::OkStatus();
  };
  const absl::Status written = write();
  if (written.ok()) return Put::kCreated;
  if (directory.valid()) UnlinkIn(directory.get(), file);
  UnlinkIn(parent.get(), leaf, AT_REMOVEDIR);
  return written;
}

absl::StatusOr<UniqueFd> ConfinedDirectory::OpenFile(std::string_view path, int flags, unsigned mode) {
  std::string leaf;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenParent(path, leaf));
  UniqueFd fd = OpenIn(directory.get(), leaf, flags, mode);
  if (!fd.valid()) return ErrnoError(errno, "open", Full(path));
  return fd;
}

PutResult ConfinedDirectory::Write(std::string_view path, std::span<const std::string_view> pieces,
                                   const AtomicWriteOptions& options) {
  std::string leaf;
  const auto directory = OpenParent(path, leaf);
  if (!directory.ok()) return {directory.status()};
  return WriteAtomically(directory->get(), leaf, pieces, options, Full(path));
}

absl::StatusOr<std::string> ConfinedDirectory::ReadFile(std::string_view path, uint64_t max_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  return ReadWhole(fd.get(), Full(path), max_bytes);
}

absl::StatusOr<std::vector<ConfinedDirectory::Entry>> ConfinedDirectory::List(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(path));
  return ListDirectory(std::move(fd), Full(path));
}

bool ConfinedDirectory::Exists(std::string_view path) {
  std::string leaf;
  const auto directory = OpenParent(path, leaf);
  struct stat info;
  return directory.ok() && StatIn(directory->get(), leaf, info) == 0;
}

absl::StatusOr<std::vector<std::optional<uint64_t>>> ConfinedDirectory::SizesOf(std::string_view directory,
                                                                                const std::vector<std::string>& names) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, OpenDirectory(directory));
  std::vector<std::optional<uint64_t>> sizes(names.size());
  const auto look = [&](size_t i, int) {
    const auto path = [&] { return absl::StrCat(Full(directory), "/", names[i]); };
    struct stat info;
    if (StatIn(fd.get(), names[i], info) != 0) {
      return errno == ENOENT ? absl::OkStatus() : ErrnoError(errno, "stat", path());
    }
    if (!S_ISREG(info.st_mode)) return NoRegularFileError(info.st_mode, "stat", path());
    sizes[i] = static_cast<uint64_t>(info.st_size);
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to look at files", names.size(), kStatsPerHelper, helpers_, look));
  return sizes;
}

PutResult ConfinedDirectory::Rename(std::string_view from, std::string_view to) {
  std::string from_leaf, to_leaf;
  const auto directory = OpenParent(from, from_leaf);
  if (!directory.ok()) return {directory.status()};
  if (from.substr(0, from.size() - from_leaf.size()) != to.substr(0, to.rfind('/') + 1)) {
    return {ErrnoError(EXDEV, "rename", Full(to))};
  }
  to_leaf = std::string(to.substr(to.rfind('/') + 1));
  const int error = RenameNoReplace(directory->get(), from_leaf, to_leaf);
  if (error == EEXIST) return {Put::kExists};
  if (error != 0) return {ErrnoError(error, "rename", Full(to)), !IsRefusedName(error)};
  if (Fsync(directory->get()) != 0) return {ErrnoError(errno, "fsync", Full(to)), /*in_doubt=*/true};
  return {Put::kCreated};
}

absl::Status ConfinedDirectory::RemoveIn(int directory, const std::string& path, const std::vector<std::string>& names,
                                         int depth) {
  std::vector<char> is_directory(names.size(), 0);  // not bool: threads write to adjacent elements
  const auto remove = [&](size_t i, int) {
    const auto failed = [&](int error) { return ErrnoError(error, "remove", absl::StrCat(path, "/", names[i])); };
    if (UnlinkIn(directory, names[i]) == 0 || errno == ENOENT) return absl::OkStatus();
    const int error = errno;
    if (error != EISDIR && error != EPERM) return failed(error);
    struct stat info;
    if (StatIn(directory, names[i], info) != 0) return errno == ENOENT ? absl::OkStatus() : failed(errno);
    is_directory[i] = S_ISDIR(info.st_mode);
    return is_directory[i] ? absl::OkStatus() : failed(error);
  };
  const absl::Status removed = ForEachOnThreads("to remove files", names.size(), kUnlinksPerHelper, helpers_, remove);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!is_directory[i]) continue;
    const std::string below = absl::StrCat(path, "/", names[i]);
    if (depth == kMaxDepth) return ErrnoError(ENAMETOOLONG, "remove", below);
    auto entered = EnterDirectory(directory, names[i], below);
    if (HasReason(entered.status(), Reason::kFileMissing)) continue;  // another process removes it too
    if (!entered.ok()) return entered.status();
    UniqueFd listed = OpenIn(entered->get(), ".", O_RDONLY | O_DIRECTORY);
    if (!listed.valid()) return ErrnoError(errno, "open", below);
    CAIRN_ASSIGN_OR_RETURN(const auto entries, ListDirectory(std::move(listed), below));
    std::vector<std::string> inside;
    inside.reserve(entries.size());
    for (const Entry& entry : entries) inside.push_back(entry.name);
    CAIRN_RETURN_IF_ERROR(RemoveIn(entered->get(), below, inside, depth + 1));
    if (UnlinkIn(directory, names[i], AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return ErrnoError(errno, "remove", below);
    }
  }
  return removed;
}

absl::Status ConfinedDirectory::RemoveAll(std::string_view path) {
  std::string leaf;
  const auto parent = OpenParent(path, leaf);
  if (!parent.ok()) {
    return HasReason(parent.status(), Reason::kFileMissing) ? absl::OkStatus() : parent.status();
  }
  const std::string full = Full(path);
  CAIRN_RETURN_IF_ERROR(RemoveIn(parent->get(), full.substr(0, full.size() - leaf.size() - 1), {leaf}, 0));
  if (Fsync(parent->get()) != 0) return ErrnoError(errno, "fsync", full);
  return absl::OkStatus();
}

absl::Status ConfinedDirectory::RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    CAIRN_ASSIGN_OR_RETURN(const auto parts, ConfinedComponents(name));
    if (parts.size() != 1) return ErrnoError(EXDEV, "remove", absl::StrCat(Full(directory), "/", name));
  }
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, OpenDirectory(directory));
  CAIRN_RETURN_IF_ERROR(RemoveIn(fd.get(), Full(directory), names, 0));
  if (Fsync(fd.get()) != 0) return ErrnoError(errno, "fsync", Full(directory));
  return absl::OkStatus();
}

absl::StatusOr<int> ConfinedDirectory::RemoveTemporaries(std::string_view path, absl::Time before,
                                                         bool (*is_temporary)(std::string_view name)) {
  CAIRN_ASSIGN_OR_RETURN(const auto entries, List(path));
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, OpenDirectory(path));
  // All are examined first: two may be names of one file, whose time of change is set by each removal.
  std::vector<std::string> left;
  for (const Entry& entry : entries) {
    struct stat info;
    if (is_temporary(entry.name) && StatIn(directory.get(), entry.name, info) == 0 && S_ISREG(info.st_mode) &&
        info.st_uid == geteuid() && absl::TimeFromTimespec(info.st_ctim) < before) {
      left.push_back(entry.name);
    }
  }
  int removed = 0;
  absl::Status error;
  for (const std::string& name : left) {
    if (UnlinkIn(directory.get(), name) == 0) {
      ++removed;
    } else if (errno != ENOENT && error.ok()) {
      error = ErrnoError(errno, "remove", absl::StrCat(Full(path), "/", name));
    }
  }
  if (!error.ok()) return error;
  return removed;
}

std::vector<absl::Status> ConfinedDirectory::SettleDirectories(const std::vector<std::string>& paths) {
  constexpr size_t kOpen = 256;  // directories that are open at a time
  std::vector<absl::Status> settled(paths.size());
  for (size_t begin = 0; begin < paths.size(); begin += kOpen) {
    const size_t end = std::min(begin + kOpen, paths.size());
    std::vector<UniqueFd> directories(end - begin);
    for (size_t i = begin; i < end; ++i) {
      auto directory = OpenDirectory(paths[i]);
      if (!directory.ok()) {
        settled[i] = directory.status();
      } else if (const int error = DirtyDirectory(directory->get()); error != 0) {
        settled[i] = ErrnoError(error, "create", Full(paths[i]));
      } else {
        directories[i - begin] = *std::move(directory);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      const UniqueFd& directory = directories[i - begin];
      if (directory.valid() && Fsync(directory.get()) != 0) settled[i] = ErrnoError(errno, "fsync", Full(paths[i]));
    }
  }
  return settled;
}

absl::Status ConfinedDirectory::SettleDirectory(std::string_view path) {
  return SettleDirectories({std::string(path)}).front();
}

}  // namespace cairn
