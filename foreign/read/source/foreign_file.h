// Files that another program wrote, outside of Cairn's storage.
#ifndef CAIRN_FOREIGN_READ_SOURCE_FOREIGN_FILE_H_
#define CAIRN_FOREIGN_READ_SOURCE_FOREIGN_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Returns an absolute path without symbolic links. DATA_LOSS (FILE_MISSING): there is nothing at the path.
absl::StatusOr<std::string> ResolvePath(const std::string& path);

// Returns true if a path that a foreign file names stays below its directory: it has no part that is empty, "." or
// "..", and no zero byte. It does not look at links: see ForeignFile::OpenBelow.
bool IsPathBelow(std::string_view path);

// The action that errors recommend for a metadata file that names files outside of its directory.
inline constexpr std::string_view kOutsideAction =
    "Save it again with the library that wrote it, into one directory with all of its files.";

// Returns true if `path`, which has no links, is a file of the store to which `directory` belongs. A hub stores each
// file once, as STORE/blobs/NAME, and a revision as links to these files, in STORE/snapshots/REVISION. Other stores
// have `blobs` beside the directory, or beside its parent. Links to any other place must not be followed: whoever made
// them could choose any file that the reader may read.
bool IsInStore(const std::string& directory, std::string_view path);

class ForeignFile {
 public:
  // Opens a regular file. DATA_LOSS (FILE_MISSING): there is no such file. UNAVAILABLE (STORAGE_ERROR): it is not a
  // regular file, or cannot be opened.
  static absl::StatusOr<ForeignFile> Open(const std::string& path);
  // Opens a file below a directory whose path has no symbolic links. INVALID_ARGUMENT (PATH_ESCAPE): a link leads out
  // of the directory, except to a file of its store (IsInStore).
  static absl::StatusOr<ForeignFile> OpenBelow(const std::string& directory, std::string_view name);
  // Opens a file that will be read as a whole, as OpenBelow does. DATA_LOSS (BAD_FOREIGN_FILE): it is larger than
  // `most_bytes`.
  static absl::StatusOr<ForeignFile> OpenWhole(const std::string& directory, std::string_view name,
                                               uint64_t most_bytes);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Returns the time of the last modification, as it was when the file was opened: nanoseconds since the Unix epoch.
  int64_t modified_ns() const { return static_cast<int64_t>(seconds_ * 1'000'000'000 + nanoseconds_); }
  // Reads exactly `bytes`. DATA_LOSS (FILE_TRUNCATED): the file ends before the range does. UNAVAILABLE
  // (STORAGE_ERROR). Thread-safe.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t bytes) const;
  // Closes the file. Path and length stay.
  void Close() { fd_ = UniqueFd(); }
  // Adds path, length and time, by which a file that was written anew differs.
  void AddTo(Digester& digester) const;

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
  uint64_t seconds_ = 0;
  uint64_t nanoseconds_ = 0;
  uint64_t inode_ = 0;
  uint64_t changed_ = 0;  // nanoseconds
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_FOREIGN_FILE_H_
