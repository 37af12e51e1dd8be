#include "common/file/durable_directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/file/atomic_write.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<UniqueFd> DurableDirectories::OpenOrMake(UniqueFd current, const std::vector<std::string>& parts,
                                                        std::string_view path, std::vector<Unsynced>& unsynced) {
  for (const std::string& part : parts) {
    const bool made = RetryInterrupted([&] { return mkdirat(current.get(), part.c_str(), 0777); }) == 0;
    if (!made && errno != EEXIST) return ErrnoError(errno, "mkdir", path);
    CAIRN_ASSIGN_OR_RETURN(UniqueFd next, EnterDirectory(current.get(), part, path));
    struct statx info = {};
    if (RetryInterrupted([&] { return statx(next.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info); }) != 0) {
      return ErrnoError(errno, "stat", path);
    }
    const Identity child = {(uint64_t{info.stx_dev_major} << 32) | info.stx_dev_minor, info.stx_ino,
                            info.stx_btime.tv_sec * 1'000'000'000 + info.stx_btime.tv_nsec};
    const bool durable = !made && [&] {
      MutexLock lock(mutex_);
      return durable_.contains(child);
    }();
    if (!durable) {
      // The process that made the directory may have ended before its fsync, or that fsync may have failed. A directory
      // within a read-only one was mounted there before any checkpoint was written, so it needs no fsync.
      const int error = made ? 0 : DirtyDirectory(current.get());
      if (error != 0 && error != EROFS) return ErrnoError(error, "create", path);
      unsynced.push_back({std::move(current), child});
    }
    current = std::move(next);
  }
  return current;
}

absl::Status DurableDirectories::Sync(const std::vector<Unsynced>& unsynced, std::string_view path) {
  // All syncs come at the end: if directories share a journal, the first sync writes all of them.
  for (const Unsynced& name : unsynced) {
    if (Fsync(name.parent.get()) != 0) return ErrnoError(errno, "fsync", path);
  }
  constexpr size_t kMaxDurable = 10'000;
  MutexLock lock(mutex_);
  if (durable_.size() > kMaxDurable) durable_.clear();
  for (const Unsynced& name : unsynced) durable_.insert(name.child);
  return absl::OkStatus();
}

int DirtyDirectory(int directory) {
  const std::string name = NewTemporaryName();
  const UniqueFd fd = OpenIn(directory, name, O_WRONLY | O_CREAT | O_EXCL);
  if (fd.valid()) return UnlinkIn(directory, name) == 0 || errno == ENOENT ? 0 : errno;
  // A full disk has no room for a new entry, so the directory's times are changed instead.
  if (errno == ENOSPC || errno == EDQUOT) {
    return RetryInterrupted([&] { return futimens(directory, nullptr); }) == 0 ? 0 : errno;
  }
  // If this process may not write to a directory, a person made it or changed its mode. So Cairn did not leave it
  // unsynced.
  return errno == EACCES || errno == EPERM ? 0 : errno;
}

}  // namespace cairn
