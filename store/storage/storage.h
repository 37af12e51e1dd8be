// The interface of a storage of checkpoints. All code that reads or writes below a root uses it, and so depends on no
// file system. posix/ implements it on a POSIX file system, s3/ in an object store.
//
// A root holds files, each with a path of names and slashes. A directory is all files whose paths begin with the same
// names; a storage need not store directories of their own. No path leaves the root: in every method a path that is
// absolute, has an empty name, "." or "..", or runs over a symbolic link is INVALID_ARGUMENT (PATH_ESCAPE).
#ifndef CAIRN_STORE_STORAGE_STORAGE_H_
#define CAIRN_STORE_STORAGE_STORAGE_H_

#include <cstdint>
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
#include "common/file/put_result.h"
#include "store/storage/file_writer.h"
#include "store/storage/root_lock.h"
#include "store/storage/storage_facts.h"
#include "store/storage/stored_file.h"

namespace cairn {

// Thread-safe. Methods block. Every method may fail with the errors of storage: DATA_LOSS (FILE_MISSING): there is no
// such file or directory; RESOURCE_EXHAUSTED (NO_SPACE), FAILED_PRECONDITION (STORAGE_READ_ONLY), DATA_LOSS
// (FSYNC_FAILED), and UNAVAILABLE (STORAGE_ERROR) for all else. A message names the file, and so does its metadata.
class Storage {
 public:
  explicit Storage(std::string root) : root_(std::move(root)) {}
  virtual ~Storage() = default;

  // Names the root for people: a directory, or an address.
  const std::string& root() const { return root_; }
  // Returns the root and `path` as one text, for messages and metadata.
  std::string FullPath(std::string_view path) const;

  // Reading. On this machine, a read that begins after a change has returned sees the change. On other machines,
  // listings and caches may be older.

  // Opens a file. DATA_LOSS (FILE_TRUNCATED, BAD_FOREIGN_FILE): see OpenOptions.
  virtual absl::StatusOr<std::unique_ptr<StoredFile>> Open(std::string_view path, const OpenOptions& options = {}) = 0;
  struct Content {
    std::string bytes;
    std::string identity;  // StoredFile::identity
  };
  // Reads all of a file. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): it has more than `max_bytes`; (MEMORY_LIMIT). With
  // Cache::kBypass this is a second opinion on bytes that look damaged.
  virtual absl::StatusOr<Content> ReadContent(std::string_view path, uint64_t max_bytes, Cache cache);
  // Does the same, and returns only the bytes.
  absl::StatusOr<std::string> Read(std::string_view path, uint64_t max_bytes, Cache cache = Cache::kUse);
  // Says whether anything has this path, or is below it. An error counts as no.
  virtual bool Exists(std::string_view path) = 0;

  struct Entry {
    std::string name;
    bool directory = false;   // there may be files below it
    bool unfinished = false;  // a temporary name that the storage gives a file until it is finished
    std::string identity;     // StoredFile::identity, if a listing tells it; else empty

    bool operator<(const Entry& other) const { return name < other.name; }
  };
  // Lists what is in a directory, "" for the root, by name. DATA_LOSS (FILE_MISSING): there is no such directory, or
  // nothing is in it and directories are only names here.
  virtual absl::StatusOr<std::vector<Entry>> List(std::string_view directory) = 0;
  // Does the same for directories in `parent`, whose names ascend. Returns one result for each.
  virtual std::vector<absl::StatusOr<std::vector<Entry>>> ListEach(std::string_view parent,
                                                                   const std::vector<std::string>& names);
  // Returns true if a listing never lacks a file that was put before it, on whatever machine.
  virtual bool ListsExactly() const { return false; }
  // How many calls are worth making at the same time, because each mostly waits.
  virtual int CallsAtOnce() const { return 1; }
  // Returns the lengths in bytes of files of one directory, in the order of `names`; nothing for a file that does not
  // exist. It asks storage for each file, because a listing may be out of date. A name that exists and is not a file is
  // an error; the first one in order is returned.
  virtual absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                                       const std::vector<std::string>& names) = 0;

  // Writing. What these have done is durable when they return OK.

  // Puts a small file, whole or not at all, if its name is free. kExists: the name is taken, and nothing was changed.
  // If several callers on any machines put the same name, exactly one of them gets it; commits rely on this. DATA_LOSS
  // (FILE_MISSING): its directory does not exist, and directories are more than names here.
  virtual PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes) = 0;
  absl::StatusOr<Put> PutIfAbsent(std::string_view path, std::string_view bytes) {
    return TryPutIfAbsent(path, bytes).put;
  }
  // Puts a file that consists of `pieces`, one behind the other. It replaces a file of the same name. Only for files
  // that may be lost, never for the record of an attempt.
  virtual absl::Status PutReplacing(std::string_view path, std::span<const std::string_view> pieces) = 0;
  absl::Status PutReplacing(std::string_view path, std::string_view bytes) {
    return PutReplacing(path, std::span(&bytes, 1));
  }
  // Makes a directory and those above it, unless they exist. Does nothing in a storage that has no directories of their
  // own.
  virtual absl::Status MakeDirectories(std::string_view path) = 0;
  // Makes a new directory with one file in it. If several callers on any machines make the same directory, exactly one
  // of them gets it; all of them must name the same file. The directories above are made too. On return all these
  // directories are durable; a power cut may still take the file. kExists: something has this path already, and nothing
  // was changed. After an error it has removed what it made, as far as that was possible.
  virtual absl::StatusOr<Put> ClaimDirectory(std::string_view path, const std::string& file,
                                             std::string_view bytes) = 0;
  // Begins to write a large file. It reserves the room for all of the file, so a full disk fails here and not later.
  // `header_bytes` is a multiple of kIoAlignment. After an error nothing is left of the file. UNAVAILABLE
  // (STORAGE_ERROR): another writer is writing the same file.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> Create(std::string_view path, uint64_t header_bytes,
                                                             uint64_t data_bytes) = 0;
  // Returns the secret at `path`, 64 random hexadecimal digits that only the root's owner can read, and makes it first
  // if there is none. Only the holder of the root's lock may call it. DATA_LOSS (FILE_TRUNCATED): the file is no
  // secret.
  virtual absl::StatusOr<std::string> ReadOrMakeSecret(std::string_view path) = 0;

  // Removes a file, or a directory with all below it. OK if nothing has this path. If the power fails before it
  // returns, any part of it may exist again.
  virtual absl::Status RemoveAll(std::string_view path) = 0;
  // The same for many names in one directory.
  virtual absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) = 0;
  // Removes the unfinished files in directories that were not changed since `before`, by the clock of the storage. Not
  // durable: a power cut may bring a file back, and a later call removes it. Returns the first error; it goes on after
  // one.
  virtual absl::Status RemoveUnfinished(const std::vector<std::string>& directories, absl::Time before) = 0;

  // Makes the names in directories durable, whichever process put them there, and even if an fsync of that process has
  // failed. A reader calls it before it relies on a file, because a power cut may otherwise take the file away. Returns
  // one result for each directory.
  virtual std::vector<absl::Status> Sync(const std::vector<std::string>& directories) = 0;
  absl::Status Sync(const std::string& directory) { return Sync(std::vector<std::string>{directory}).front(); }

  // The root as a whole.

  // Takes the root's lock; the lock's record is durable on return. Then it removes unfinished files that killed
  // processes have left in the root's own directories. (Unfinished files of a step are removed when that step is read.)
  // This storage must outlive the lock. FAILED_PRECONDITION (ROOT_IN_USE): another process holds the lock; the metadata
  // names it ("holder") and says where it serves ("address"), if that is known; (FORMAT_TOO_NEW): a later version has
  // written the root, in a form that this version does not know; INVALID_ARGUMENT (BAD_REQUEST): the root lies within
  // another one, or around one, and nothing was written; DATA_LOSS (FILE_TRUNCATED): the lock's record holds no epoch;
  // UNAVAILABLE (STORAGE_ERROR): two readings of the record gave different bytes.
  absl::StatusOr<std::unique_ptr<RootLock>> TakeRoot();
  // How long the lock of a process that was killed keeps others out.
  virtual absl::Duration LockOutlivesHolder() const { return absl::ZeroDuration(); }
  // Returns who holds the root's lock now; nothing if nobody does.
  virtual absl::StatusOr<std::optional<RootHolder>> HolderOfRoot() = 0;

  // Checks that PutIfAbsent can be trusted here, by doing it twice below ".cairn/". FAILED_PRECONDITION
  // (NO_ATOMIC_CREATE): it cannot.
  virtual absl::Status ProbeAtomicCreate() = 0;

  // Finds out what a person should know of this storage. It may write and remove small files below ".cairn/".
  virtual StorageFacts Facts() { return {}; }

  // Looks whether the root's path leads to another directory than the open one, because something was mounted or
  // unmounted there. If so, it opens that directory and uses it from now on; calls under way finish in the old one.
  // Returns how often that has happened so far. NOT_FOUND (ROOT_MISSING): nothing is at the path, and the open
  // directory stays in use.
  virtual absl::StatusOr<uint64_t> Refresh() = 0;

 private:
  // Takes the lock, as TakeRoot does, but removes no unfinished files.
  virtual absl::StatusOr<std::unique_ptr<RootLock>> LockRoot() = 0;

  const std::string root_;
};

// Returns UNAVAILABLE (STORAGE_ERROR): `file` gave other bytes when it was read a second time, so nobody can say
// `question` ("which coordinator the root has"). `file` is a full path.
absl::Status GaveOtherBytes(const std::string& file, std::string_view question);

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_STORAGE_H_
