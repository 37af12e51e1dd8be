// Files that are whole or not there: written under a temporary name, which then becomes the final one.
#ifndef CAIRN_COMMON_FILE_ATOMIC_WRITE_H_
#define CAIRN_COMMON_FILE_ATOMIC_WRITE_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

enum class Put { kCreated, kExists };
// How giving a file its name ended.
struct PutResult {
  // What it says of the name is as durable as was asked for, kExists too.
  absl::StatusOr<Put> put;
  // `put` is an error that came after the name was asked for: the file may have it, or may come to have it. False: it
  // has not.
  bool in_doubt = false;
};

struct AtomicWriteOptions {
  // It takes the place of what stands there; without it that is left as it is, and the result is kExists.
  bool replace = false;
  // What survives a power cut when the call has returned.
  enum class Durable {
    kNothing,  // whoever finds the name finds all bytes, until then
    kBytes,    // the name, if it survives, has all bytes: the caller syncs the directory
    kAll,
  };
  Durable durable = Durable::kAll;
  unsigned mode = 0644;
};

// Writes a file under its final name: a temporary name, fsync, then link (or renameat2 with RENAME_NOREPLACE), or a
// rename that replaces, then fsync of the directory. `path` is for messages. The errors of errno_error.h. Whoever is in
// doubt does the whole of it again: the temporary name changes the directory anew, so the next fsync has something to
// write.
PutResult WriteAtomically(int directory, const std::string& name, std::string_view bytes,
                          const AtomicWriteOptions& options, const std::string& path);
// The same for bytes that stand in many places, one behind the other.
PutResult WriteAtomically(int directory, const std::string& name, std::span<const std::string_view> pieces,
                          const AtomicWriteOptions& options, const std::string& path);
// The same at a path. The directory must exist.
PutResult WriteAtomically(const std::string& path, std::string_view bytes, const AtomicWriteOptions& options);

// Gives `from` the name `to` in one directory, unless something has it: 0, EEXIST, or another errno. On success the
// caller unlinks `from`, which is gone already on file systems without hard links.
int LinkNoReplace(int directory, const std::string& from, const std::string& to);

// True if the file system has refused to make a name by this errno, so that it will not appear later either. Everything
// else (EIO, ESTALE, a time-out of a network file system) leaves open what became of it.
bool IsRefusedName(int error);

// A new name for a file that is not finished, or that stands there for a moment. One may stay after a crash, or where
// the storage did not remove it.
std::string NewTemporaryName();
bool IsTemporaryName(std::string_view name);

// What stands before the last slash of `path`, or ".".
std::string DirectoryOf(const std::string& path);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_ATOMIC_WRITE_H_
