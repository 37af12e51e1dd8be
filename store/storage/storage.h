// What a storage can do. Everything that touches a root of checkpoints goes through this interface, so that what stands
// above it knows of no file system. posix/ is the storage on a POSIX file system, s3/ the one in an object store.
//
// A root holds files, each with a path of names and slashes. All files whose paths begin with the same names are in one
// directory; a storage need not have anything else that is one. No path leaves the root: one that is absolute, has an
// empty name, "." or "..", or runs over a symbolic link is INVALID_ARGUMENT (PATH_ESCAPE) in every method.
#ifndef CAIRN_STORE_STORAGE_STORAGE_H_
#define CAIRN_STORE_STORAGE_STORAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/file/put_result.h"
#include "store/storage/file_writer.h"
#include "store/storage/root_lock.h"
#include "store/storage/stored_file.h"

namespace cairn {

// Thread-safe. Methods block. The errors of storage, which each of them may have: DATA_LOSS (FILE_MISSING): there is no
// such file or directory; RESOURCE_EXHAUSTED (NO_SPACE), FAILED_PRECONDITION (STORAGE_READ_ONLY), DATA_LOSS
// (FSYNC_FAILED), and UNAVAILABLE (STORAGE_ERROR) for all else. A message names the file, and so does its metadata.
class Storage {
 public:
  explicit Storage(std::string root) : root_(std::move(root)) {}
  virtual ~Storage() = default;

  // Names the root for people: a directory, or an address.
  const std::string& root() const { return root_; }
  // Names a file or directory of it for people, and in metadata.
  std::string FullPath(std::string_view path) const;

  // Reading. A change is seen by all reads that begin after it has returned, on this machine; on others a listing or a
  // cache may be older.

  // Opens a file. DATA_LOSS (FILE_TRUNCATED, BAD_FOREIGN_FILE): see OpenOptions.
  virtual absl::StatusOr<std::unique_ptr<StoredFile>> Open(std::string_view path, const OpenOptions& options = {}) = 0;
  // Reads all of a file. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): it has more than `max_bytes`; (MEMORY_LIMIT). With
  // Cache::kBypass this is a second opinion on bytes that look damaged.
  absl::StatusOr<std::string> Read(std::string_view path, uint64_t max_bytes, Cache cache = Cache::kUse);
  // Says whether anything has this path, or is below it. An error counts as no.
  virtual bool Exists(std::string_view path) = 0;

  struct Entry {
    std::string name;
    bool directory = false;   // there are, or may be, files below it
    bool unfinished = false;  // the storage's own name for what is written now, or was never finished

    bool operator<(const Entry& other) const { return name < other.name; }
  };
  // Lists what is in a directory, "" for the root, by name. DATA_LOSS (FILE_MISSING): there is no such directory, or
  // nothing is in it and directories are only names here.
  virtual absl::StatusOr<std::vector<Entry>> List(std::string_view directory) = 0;
  // The lengths of files of one directory, in the order of `names`; nothing for one that is not there. Each is asked
  // for anew, because a listing may be older than its files. Something else than a file is an error, the first in
  // order.
  virtual absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                                       const std::vector<std::string>& names) = 0;

  // Writing. What these have done is durable when they return OK.

  // Puts a small file under its name, whole or not at all, if nothing has that name; kExists leaves what stands there.
  // This is how a record of an attempt is put, so it is what a commit rests on: of several that put one name, on any
  // machines, one gets it. DATA_LOSS (FILE_MISSING): the directory does not stand, and is more than a name here.
  virtual PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes) = 0;
  absl::StatusOr<Put> PutIfAbsent(std::string_view path, std::string_view bytes) {
    return TryPutIfAbsent(path, bytes).put;
  }
  // Puts a file in place of what has its name: bytes that stand in many places, one behind the other. It is for what
  // may be lost, never for the record of an attempt.
  virtual absl::Status PutReplacing(std::string_view path, std::span<const std::string_view> pieces) = 0;
  absl::Status PutReplacing(std::string_view path, std::string_view bytes) {
    return PutReplacing(path, std::span(&bytes, 1));
  }
  // Makes a directory and those above it, unless they stand. Nothing to do for a storage whose directories are only
  // names.
  virtual absl::Status MakeDirectories(std::string_view path) = 0;
  // Makes a directory that did not stand, for the caller alone, with one file in it; all who claim it name the same
  // file. The directories above are made too. They survive a power cut when it returns; the file may not. kExists:
  // something stands there and was left as it is. After an error what it made is gone, as far as that was possible.
  virtual absl::StatusOr<Put> ClaimDirectory(std::string_view path, const std::string& file,
                                             std::string_view bytes) = 0;
  // Begins to write a large file, with room for all of it: a full disk is found here. `header_bytes` is a multiple of
  // kIoAlignment. After an error nothing is left of it. STORAGE_ERROR: somebody else is writing it.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> Create(std::string_view path, uint64_t header_bytes,
                                                             uint64_t data_bytes) = 0;
  // Returns the secret at `path`, 64 random hexadecimal digits that only the root's owner can read, and makes it first
  // if there is none. Only the holder of the root's lock may call it. DATA_LOSS (FILE_TRUNCATED): the file is no
  // secret.
  virtual absl::StatusOr<std::string> ReadOrMakeSecret(std::string_view path) = 0;

  // Removes a file, or a directory with all below it; absent is fine. After a power cut before it has returned, any of
  // it may stand there again.
  virtual absl::Status RemoveAll(std::string_view path) = 0;
  // The same for many names in one directory.
  virtual absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) = 0;
  // Removes the unfinished files in a directory that nobody has changed since `before`, by the clock of the storage.
  // Not durable: one that comes back is removed another time.
  virtual absl::Status RemoveUnfinished(std::string_view directory, absl::Time before) = 0;

  // Makes durable what stands in directories, whoever put it there and whatever became of that one's wish to have it
  // durable: a reader must not build on what a power cut may take away. One result for each directory.
  virtual std::vector<absl::Status> Sync(const std::vector<std::string>& directories) = 0;
  absl::Status Sync(const std::string& directory) { return Sync(std::vector<std::string>{directory}).front(); }

  // The root as a whole.

  // Takes the root's lock, which is durable when it returns. If another process holds it, it tells `waiting` once who
  // that is, and tries for `patience`. Then it removes what killed processes have left unfinished in the root's own
  // directories; what they left of a step goes when that step is read. This storage must outlive the lock.
  // FAILED_PRECONDITION (ROOT_IN_USE): still
  // held; the metadata's "address" says where its holder serves, if that is known; (FORMAT_TOO_NEW): the root holds
  // what this version does not know; INVALID_ARGUMENT (BAD_REQUEST): the root lies within another one, or around one,
  // and nothing was written; DATA_LOSS (FILE_TRUNCATED): the lock's record holds no epoch; UNAVAILABLE
  // (STORAGE_ERROR): it gave different bytes when it was read twice.
  using Waiting = std::function<void(const std::string& holder)>;
  absl::StatusOr<std::unique_ptr<RootLock>> TakeRoot(absl::Duration patience, const Clock& clock,
                                                     const Waiting& waiting);
  // The same without patience.
  absl::StatusOr<std::unique_ptr<RootLock>> TakeRoot(const Clock& clock) {
    return TakeRoot(absl::ZeroDuration(), clock, [](const std::string&) {});
  }
  // Returns who holds the root's lock now; nothing if nobody does.
  virtual absl::StatusOr<std::optional<RootHolder>> HolderOfRoot() = 0;

  // Checks that PutIfAbsent can be trusted here, by doing it twice below ".cairn/". FAILED_PRECONDITION
  // (NO_ATOMIC_CREATE): it cannot.
  virtual absl::Status ProbeAtomicCreate() = 0;

  // Looks whether another storage stands at the root than the one that is held, because something was mounted or
  // unmounted there. If so it holds that one from now on; calls under way end in the one that they began in. Returns
  // how often that has happened until now. NOT_FOUND (ROOT_MISSING): none stands there, and the held one is kept.
  virtual absl::StatusOr<uint64_t> Refresh() = 0;

 private:
  // Does the first part of TakeRoot.
  virtual absl::StatusOr<std::unique_ptr<RootLock>> LockRoot(absl::Duration patience, const Clock& clock,
                                                             const Waiting& waiting) = 0;

  const std::string root_;
};

// UNAVAILABLE (STORAGE_ERROR): the second opinion is another one, so nobody can say what `question` asks. `file` is its
// whole path.
absl::Status GaveOtherBytes(const std::string& file, std::string_view question);

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_STORAGE_H_
