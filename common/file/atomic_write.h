// Writes files so that a file is complete or absent: it is written under a temporary name and then renamed.
#ifndef CAIRN_COMMON_FILE_ATOMIC_WRITE_H_
#define CAIRN_COMMON_FILE_ATOMIC_WRITE_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/put_result.h"

namespace cairn {

struct AtomicWriteOptions {
  // If true, the file replaces an existing one. If false, an existing file stays as it is, and the result is kExists.
  bool replace = false;
  // Says what survives a power cut after the call has returned.
  enum class Durable {
    kNothing,  // readers see all bytes or no file, but only until a power cut
    kBytes,    // if the name survives, all bytes do; the caller syncs the directory
    kAll,
  };
  Durable durable = Durable::kAll;
  unsigned mode = 0644;
};

// Writes the file `name` in `directory`: writes it under a temporary name, calls fsync, then link (or renameat2 with
// RENAME_NOREPLACE) or a rename that replaces, then fsync of the directory. `path` is for messages. Fails with the
// reasons of errno_error.h. After a result that is in doubt the caller calls again: the new temporary name changes the
// directory, so the next fsync has something to write.
PutResult WriteAtomically(int directory, const std::string& name, std::string_view bytes,
                          const AtomicWriteOptions& options, const std::string& path);
// Does the same for a file that consists of `pieces`, one after the other.
PutResult WriteAtomically(int directory, const std::string& name, std::span<const std::string_view> pieces,
                          const AtomicWriteOptions& options, const std::string& path);
// Does the same at a path. The directory must exist.
PutResult WriteAtomically(const std::string& path, std::string_view bytes, const AtomicWriteOptions& options);

// Renames `from`, which the caller has written and synced, to `to` in the same directory, and replaces a file there.
// With Durable::kAll it then syncs the directory. (A file system that cannot sync a directory, as some network file
// systems, makes its names durable by itself.) NO_SPACE, STORAGE_READ_ONLY, FSYNC_FAILED, else STORAGE_ERROR, also if
// `from` does not exist any more.
absl::Status PublishFile(const std::string& from, const std::string& to, AtomicWriteOptions::Durable durable);
// Makes the names in the directory of `path` durable, as PublishFile does.
absl::Status SyncDirectoryOf(const std::string& path);

// Gives `from` the name `to` in one directory, unless something has that name. Returns 0, EEXIST, or another errno. On
// success the caller unlinks `from`; on file systems without hard links it has gone already.
int LinkNoReplace(int directory, const std::string& from, const std::string& to);

// Renames a file within one directory, unless something has the name `to`. Returns as LinkNoReplace does; on success
// `from` has gone. It has both names for a moment only where the file system cannot rename without replacing (NFS). If
// `from` cannot be unlinked there, it stays beside `to`.
int RenameNoReplace(int directory, const std::string& from, const std::string& to);

// Returns true if this errno means that the file system refused to make a name, so the name will not appear later.
// After any other errno (EIO, ESTALE, a time-out of a network file system) the name may still appear.
bool IsRefusedName(int error);

// Returns a new name for a file that is unfinished or short-lived. Such a file may be left over after a failure.
std::string NewTemporaryName();
bool IsTemporaryName(std::string_view name);

// Returns the part of `path` before its last slash, or "." if it has none.
std::string DirectoryOf(const std::string& path);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_ATOMIC_WRITE_H_
