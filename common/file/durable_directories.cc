#include "common/file/durable_directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/file/atomic_write.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<UniqueFd> DurableDirectories::OpenOrMake(UniqueFd current, const std::vector<std::string>& parts,
                                                        std::string_view path, std::vector<Unsynced>& unsynced) {
  for (const std::string& part : parts) {
    const bool made = mkdirat(current.get(), part.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) return ErrnoError(errno, "mkdir", path);
    CAIRN_ASSIGN_OR_RETURN(UniqueFd next, EnterDirectory(current.get(), part, path));
    struct statx info = {};
    if (statx(next.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0) {
      return ErrnoError(errno, "stat", path);
    }
    const Identity child = {(uint64_t{info.stx_dev_major} << 32) | info.stx_dev_minor, info.stx_ino,
                            info.stx_btime.tv_sec * 1'000'000'000 + info.stx_btime.tv_nsec};
    const bool durable = !made && [&] {
      MutexLock lock(mutex_);
      return durable_.contains(child);
    }();
    if (!durable) {
      // Perhaps its maker has not come to its fsync, or that has failed. What is mounted below a read-only directory
      // was there before any checkpoint.
      const int error = made ? 0 : DirtyDirectory(current.get());
      if (error != 0 && error != EROFS) return ErrnoError(error, "create", path);
      unsynced.push_back({std::move(current), child});
    }
    current = std::move(next);
  }
  return current;
}

absl::Status DurableDirectories::Sync(const std::vector<Unsynced>& unsynced, std::string_view path) {
  // All at the end: where they share a journal the first one writes them all.
  for (const Unsynced& name : unsynced) {
    if (fsync(name.parent.get()) != 0) return ErrnoError(errno, "fsync", path);
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
  if (fd.valid()) return unlinkat(directory, name.c_str(), 0) == 0 ? 0 : errno;
  // On a full disk its times must do.
  if (errno == ENOSPC || errno == EDQUOT) return futimens(directory, nullptr) == 0 ? 0 : errno;
  // What we may not write to was not left by one of us that has just ended: a person has put it there, or locked it.
  return errno == EACCES || errno == EPERM ? 0 : errno;
}

}  // namespace cairn
