// Writes files that are whole or not there: a file is written under a temporary name, which then becomes the final one.
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
  // If true, the file replaces what stands under the name. If false, that stays as it is and the result is kExists.
  bool replace = false;
  // Says what survives a power cut after the call has returned.
  enum class Durable {
    kNothing,  // until a power cut, whoever finds the name finds all bytes
    kBytes,    // a name that survives has all bytes; the caller syncs the directory
    kAll,
  };
  Durable durable = Durable::kAll;
  unsigned mode = 0644;
};

// Writes a file under its final name: it takes a temporary name, calls fsync, then link (or renameat2 with
// RENAME_NOREPLACE) or a rename that replaces, then fsync of the directory. `path` is for messages. Fails with the
// reasons of errno_error.h. A caller that is in doubt calls it again: the temporary name changes the directory anew, so
// the next fsync has something to write.
PutResult WriteAtomically(int directory, const std::string& name, std::string_view bytes,
                          const AtomicWriteOptions& options, const std::string& path);
// Does the same for bytes that stand in many places, one behind the other.
PutResult WriteAtomically(int directory, const std::string& name, std::span<const std::string_view> pieces,
                          const AtomicWriteOptions& options, const std::string& path);
// Does the same at a path. The directory must exist.
PutResult WriteAtomically(const std::string& path, std::string_view bytes, const AtomicWriteOptions& options);

// Does the last part for a file that the caller wrote piece by piece beside its final path, and synced: gives it the
// name `to`, replacing what stands there. With Durable::kAll it then syncs the directory; a file system that cannot do
// that (some network file systems) makes its names durable by itself. NO_SPACE, STORAGE_READ_ONLY, FSYNC_FAILED, else
// STORAGE_ERROR, also if `from` has gone.
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

// Returns true if this errno means that the file system refused to make a name, so the name will not appear later. Any
// other errno (EIO, ESTALE, a time-out of a network file system) leaves this open.
bool IsRefusedName(int error);

// Returns a new name for a file that is not finished or stands there only for a moment. Such a file may stay after a
// crash, or where the storage did not remove it.
std::string NewTemporaryName();
bool IsTemporaryName(std::string_view name);

// Returns what stands before the last slash of `path`, or ".".
std::string DirectoryOf(const std::string& path);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_ATOMIC_WRITE_H_
