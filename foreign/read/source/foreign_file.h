// Files that another program wrote, outside of a root.
#ifndef CAIRN_FOREIGN_READ_SOURCE_FOREIGN_FILE_H_
#define CAIRN_FOREIGN_READ_SOURCE_FOREIGN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "foreign/read/source/foreign_path.h"
#include "store/storage/stored_file.h"

namespace cairn {

class ForeignFile {
 public:
  // Opens a regular file, whose path may have links, or an object. DATA_LOSS (FILE_MISSING): there is no such file.
  // UNAVAILABLE (STORAGE_ERROR): it is not a regular file, or cannot be opened. Else fails as OpenAnywhere does.
  static absl::StatusOr<ForeignFile> Open(const std::string& path);
  // Opens a file below a directory whose path is resolved. Fails as ResolveBelow and Open do.
  static absl::StatusOr<ForeignFile> OpenBelow(const std::string& directory, std::string_view name);
  // Opens a file that will be read as a whole, as OpenBelow does. DATA_LOSS (BAD_FOREIGN_FILE): it is larger than
  // `most_bytes`.
  static absl::StatusOr<ForeignFile> OpenWhole(const std::string& directory, std::string_view name,
                                               uint64_t most_bytes);

  // Returns its full name, without links.
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Returns the time of the last modification, as it was when the file was opened: nanoseconds since the Unix epoch.
  int64_t modified_ns() const { return modified_ns_; }
  // Reads exactly `bytes`; in an object store this is one request. DATA_LOSS (FILE_TRUNCATED): the file ends before the
  // range does. Else it fails as StoredFile::Read does. Thread-safe.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t bytes) const;
  // Closes the file. Path, length and time stay.
  void Close() { file_.reset(); }
  // Adds the path and what changes when the file is written anew or replaced.
  void AddTo(Digester& digester) const;

 private:
  static absl::StatusOr<ForeignFile> OpenResolved(const std::string& path);
  explicit ForeignFile(std::unique_ptr<StoredFile> file);

  std::string path_;
  uint64_t bytes_ = 0;
  int64_t modified_ns_ = 0;
  std::string identity_;
  std::unique_ptr<StoredFile> file_;  // null: it is closed
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_FOREIGN_FILE_H_
