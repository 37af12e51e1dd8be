// Names of files and directories of other programs, on this machine or in an object store ("s3://bucket/prefix",
// "gs://bucket/prefix").
#ifndef CAIRN_FOREIGN_READ_SOURCE_FOREIGN_PATH_H_
#define CAIRN_FOREIGN_READ_SOURCE_FOREIGN_PATH_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

// Returns a full name (store/open/place.h) without symbolic links, which object stores do not have. DATA_LOSS
// (FILE_MISSING): there is nothing at the path. In an object store nobody looks whether there is.
absl::StatusOr<std::string> ResolvePath(const std::string& path);

enum class ForeignKind { kFile, kDirectory, kOther };
// Looks what is at a resolved path. In an object store this takes two requests. DATA_LOSS (FILE_MISSING): there is
// nothing. Fails as Storage::List does.
absl::StatusOr<ForeignKind> KindOf(const std::string& resolved);

struct ForeignEntry {
  std::string name;
  bool directory = false;  // a directory, or a link to one
};
// Lists what is in a directory, by name. The directory's path is resolved. DATA_LOSS (FILE_MISSING): there is no such
// directory, or in an object store nothing is below it. Fails as Storage::List does.
absl::StatusOr<std::vector<ForeignEntry>> ListForeign(const std::string& directory);

// Returns true if a path that a foreign file names stays below its directory: it has no part that is empty, "." or
// "..", and no zero byte. It does not look at links: see ForeignFile::OpenBelow.
bool IsPathBelow(std::string_view path);

// The action that errors recommend for a metadata file that names files outside of its directory.
inline constexpr std::string_view kOutsideAction =
    "Save it again with the library that wrote it, into one directory with all of its files.";

// Returns the full name of what a foreign file names below its directory. INVALID_ARGUMENT (PATH_ESCAPE): the path
// leads out of the directory, or a link on the way does, except to a file of the directory's store (IsInStore). Also
// fails as ResolvePath does.
absl::StatusOr<std::string> ResolveBelow(const std::string& directory, std::string_view name);

// Returns true if `path`, which has no links, is a file of the store to which `directory` belongs. A hub stores each
// file once, as STORE/blobs/NAME, and a revision as links to these files, in STORE/snapshots/REVISION. Other stores
// have `blobs` beside the directory, or beside its parent. Links to any other place must not be followed: whoever made
// them could choose any file that the reader may read.
bool IsInStore(const std::string& directory, std::string_view path);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_FOREIGN_PATH_H_
