// A directory that no path leaves: all paths are relative to it and are walked component by component without following
// symbolic links, so neither a name nor a planted link leads out. The directory itself, called the root, may be named
// by a link.
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

// Works on many files several at a time, with the caller and helpers of this object. Thread-safe.
// Every method may fail with the reasons of errno_error.h, and with INVALID_ARGUMENT (PATH_ESCAPE) for a
// path that is absolute, has an empty component, "." or "..", or runs over a symbolic link.
class ConfinedDirectory {
 public:
  // Opens a root directory; with `create` it makes the directory first (whose parent must exist).
  static absl::StatusOr<std::unique_ptr<ConfinedDirectory>> Open(const std::string& root, bool create);

  const std::string& path() const { return root_; }

  // Looks whether another directory than the one that is held stands at the root's path now, because something was
  // mounted or unmounted there. If so it holds that one from now on; calls under way end in the one that they began in.
  // Returns how often that has happened until now. NOT_FOUND (ROOT_MISSING): none stands there, and the held one is
  // kept.
  absl::StatusOr<uint64_t> Refresh();

  // Makes a directory and its parents. When it returns, all of them survive a power cut, also those that were there.
  absl::Status MakeDirectories(std::string_view path);
  // Makes a directory that does not exist yet, and one file in it. It makes the parents too. All these directories
  // survive a power cut when it returns. Else an outcome that is put beside it later could survive a cut without it,
  // because a file system may keep no order of the names in a directory. The file is never synced, so it can say whose
  // the directory is while somebody works there, but not after a power cut. kExists: something stands there and was
  // left as it is. After an error it has removed what it made, as far as that was possible.
  absl::StatusOr<Put> MakeDirectoryExclusive(std::string_view path, const std::string& file, std::string_view bytes);

  // Calls open(2) with O_CLOEXEC and O_NOFOLLOW.
  absl::StatusOr<UniqueFd> OpenFile(std::string_view path, int flags, unsigned mode = 0644);

  // Calls WriteAtomically, with a durable result. The directory must exist.
  PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes, unsigned mode = 0644) {
    return Write(path, std::span(&bytes, 1), {.mode = mode});
  }
  absl::StatusOr<Put> PutIfAbsent(std::string_view path, std::string_view bytes, unsigned mode = 0644) {
    return TryPutIfAbsent(path, bytes, mode).put;
  }
  // Does the same but replaces what stands there. It is for records that may be lost, never for outcomes.
  absl::Status PutReplacing(std::string_view path, std::string_view bytes) {
    return PutReplacing(path, std::span(&bytes, 1));
  }
  // The same for bytes that stand in many places, one behind the other.
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
  // Lists a directory by name, without "." and "..". DATA_LOSS (FILE_MISSING): there is none.
  absl::StatusOr<std::vector<Entry>> List(std::string_view path);
  bool Exists(std::string_view path);

  // The sizes of files, in the order of `names`; nothing for one that is not there. One call for each, several at a
  // time: a listing would be no proof, since that of a network file system may be older than its files. Something else
  // than a regular file is an error: PATH_ESCAPE for a symbolic link, else STORAGE_ERROR. The first in order counts.
  absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                               const std::vector<std::string>& names);

  // Renames within one directory, durably, and replaces nothing. kExists: something stands at `to`, and `from` was
  // left.
  PutResult Rename(std::string_view from, std::string_view to);
  // Removes a file or a directory with all below it, to a depth of kMaxDepth; absent is fine. It is durable at the end.
  // A directory is listed once, its files go several at a time, and their end is synced once, in the directory above:
  // after a power cut before that, any of it may stand there again.
  absl::Status RemoveAll(std::string_view path);
  // The same for many in one directory, which must exist.
  absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names);
  // Removes what is left in a directory of our own writing of files: regular files with such a name, of this process's
  // user, unchanged since `before`, by the clock of the storage. Not durable: one that comes back is removed another
  // time. Returns how many went; the first error, after having tried all. `is_temporary` says which names are such.
  absl::StatusOr<int> RemoveTemporaries(std::string_view path, absl::Time before,
                                        bool (*is_temporary)(std::string_view name) = IsTemporaryName);
  // Makes the names that stand in a directory durable, whoever made them and whatever became of an earlier fsync of it.
  // The kernel reports a failed fsync once and then takes the pages for clean, so an entry is made and removed first,
  // which this fsync must write.
  absl::Status SettleDirectory(std::string_view path);
  // Does the same for many directories and returns a result for each. It changes all of them before the first fsync, so
  // that a journal which they share is written once.
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
