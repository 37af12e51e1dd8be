// Gives access to the files below one directory, called the root, and to nothing outside. All paths are relative to the
// root and are walked component by component without following symbolic links, so neither a name nor a planted link
// leads out. The root's own path may contain links.
#ifndef CAIRN_COMMON_FILE_CONFINED_DIRECTORY_H_
#define CAIRN_COMMON_FILE_CONFINED_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/file/atomic_write.h"
#include "common/file/durable_directories.h"
#include "common/file/unique_fd.h"
#include "common/resources/thread.h"

namespace cairn {

// Methods that take many files work on several at a time, on the caller's thread and on helper threads. Thread-safe.
// Every method may fail with the reasons of errno_error.h, and with INVALID_ARGUMENT (PATH_ESCAPE) for a path that is
// absolute, has an empty component, "." or "..", or runs over a symbolic link.
class ConfinedDirectory {
 public:
  // Opens a root directory; with `create` it makes the directory first (whose parent must exist).
  static absl::StatusOr<std::unique_ptr<ConfinedDirectory>> Open(const std::string& root, bool create);

  const std::string& path() const { return root_; }

  // Checks whether the root's path now names another directory than the open one, because something was mounted or
  // unmounted there. If so, opens that directory and uses it from now on; calls that have begun end in the old one.
  // Returns how often the directory has changed so far. NOT_FOUND (ROOT_MISSING): there is no directory at the path,
  // and the open one stays in use.
  absl::StatusOr<uint64_t> Refresh();

  // Makes a directory and its parents. After success all of them survive a power cut, also those that existed before.
  absl::Status MakeDirectories(std::string_view path);
  // Makes a directory that does not exist yet, its parents, and one file in it. After success all these directories
  // survive a power cut. (Otherwise an outcome that is put beside the directory later could survive the cut without it,
  // because a file system may write the names of a directory in any order.) The file is never synced: it says who works
  // in the directory now, and may be lost in a power cut. kExists: something exists at `path`, and was left as it is.
  // After an error the call has removed what it made, as far as possible.
  absl::StatusOr<Put> MakeDirectoryExclusive(std::string_view path, const std::string& file, std::string_view bytes);

  // Calls open(2) with O_CLOEXEC and O_NOFOLLOW.
  absl::StatusOr<UniqueFd> OpenFile(std::string_view path, int flags, unsigned mode = 0644);

  // Calls WriteAtomically with Durable::kAll. The directory must exist.
  PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes, unsigned mode = 0644) {
    return Write(path, std::span(&bytes, 1), {.mode = mode});
  }
  absl::StatusOr<Put> PutIfAbsent(std::string_view path, std::string_view bytes, unsigned mode = 0644) {
    return TryPutIfAbsent(path, bytes, mode).put;
  }
  // Does the same, but replaces an existing file. Use it for records that may be lost, never for outcomes.
  absl::Status PutReplacing(std::string_view path, std::string_view bytes) {
    return PutReplacing(path, std::span(&bytes, 1));
  }
  // Does the same for a file that consists of `pieces`, one after the other.
  absl::Status PutReplacing(std::string_view path, std::span<const std::string_view> pieces) {
    return Write(path, pieces, {.replace = true}).put.status();
  }

  // DATA_LOSS (FILE_MISSING): there is no such file. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): it has more than
  // `max_bytes`.
  absl::StatusOr<std::string> ReadFile(std::string_view path, uint64_t max_bytes);

  struct Entry {
    std::string name;
    bool directory = false;
    bool operator<(const Entry& other) const { return name < other.name; }
  };
  // Lists a directory, ordered by name, without "." and "..". DATA_LOSS (FILE_MISSING): the directory does not exist.
  absl::StatusOr<std::vector<Entry>> List(std::string_view path);
  bool Exists(std::string_view path);

  // Returns the sizes of files in bytes, in the order of `names`; nullopt for a file that does not exist. It asks for
  // each file, because a network file system's listing may be older than its files. Something else than a regular file
  // is an error: PATH_ESCAPE for a symbolic link, else STORAGE_ERROR; the first counts.
  absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                               const std::vector<std::string>& names);

  // Renames within one directory, durably, and replaces nothing. kExists: `to` exists, and `from` was left as it is.
  PutResult Rename(std::string_view from, std::string_view to);
  // Removes a file, or a directory with everything below it, to a depth of kMaxDepth. It is no error if `path` does not
  // exist. The removal is durable after success. Only the directory above is synced, once and at the end: after a power
  // cut before that, any of the files may be there again.
  absl::Status RemoveAll(std::string_view path);
  // Does the same for several names in one directory, which must exist.
  absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names);
  // Removes temporary files that were left over in a directory: regular files whose name `is_temporary` accepts, which
  // belong to this process's user and were last changed before `before`, by the storage's clock. The removal is not
  // durable: a file that comes back after a power cut is removed by a later call. Tries all files. Returns how many it
  // removed, or the first error.
  absl::StatusOr<int> RemoveTemporaries(std::string_view path, absl::Time before,
                                        bool (*is_temporary)(std::string_view name) = IsTemporaryName);
  // Makes all names in a directory durable, also after an earlier fsync of it has failed. The kernel reports a failed
  // fsync only once and then considers the pages clean. So this makes and removes an entry first, which the fsync must
  // write.
  absl::Status SettleDirectory(std::string_view path);
  // Does the same for several directories and returns a result for each. It changes all of them before the first fsync,
  // so that the file system writes its journal once.
  std::vector<absl::Status> SettleDirectories(const std::vector<std::string>& paths);

 private:
  ConfinedDirectory(std::string root, UniqueFd fd)
      : root_(std::move(root)), root_fd_(std::make_shared<const UniqueFd>(std::move(fd))) {}

  std::shared_ptr<const UniqueFd> root_fd();

  // Opens the directory that holds the last component of `path`, and puts that component into `leaf`.
  absl::StatusOr<UniqueFd> OpenParent(std::string_view path, std::string& leaf);
  absl::StatusOr<UniqueFd> OpenDirectory(std::string_view path);
  // Removes `names` from a directory with all below them. `path` is for errors.
  absl::Status RemoveIn(int directory, const std::string& path, const std::vector<std::string>& names, int depth);
  PutResult Write(std::string_view path, std::span<const std::string_view> pieces, const AtomicWriteOptions& options);
  std::string Full(std::string_view path) const;

  static constexpr int kMaxDepth = 32;
  static constexpr int kHelpers = 16;

  const std::string root_;
  Helpers helpers_{kHelpers};
  Mutex mutex_;
  std::shared_ptr<const UniqueFd> root_fd_ ABSL_GUARDED_BY(mutex_);
  uint64_t root_changes_ ABSL_GUARDED_BY(mutex_) = 0;
  DurableDirectories durable_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_CONFINED_DIRECTORY_H_
