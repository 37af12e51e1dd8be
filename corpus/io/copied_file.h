// Makes a file from ranges of other files. The kernel copies them (or shares them, where the file system can), so that
// they do not pass through this process. Like an OutputFile, it gets its name only when it is complete.
#ifndef CAIRN_CORPUS_IO_COPIED_FILE_H_
#define CAIRN_CORPUS_IO_COPIED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"

namespace cairn::corpus {

// Only one thread may use it. The destructor removes the hidden file unless it was committed.
class CopiedFile {
 public:
  // Writes the same into a file that others write too, each another range: up to `bytes` bytes of `source` from
  // `offset` on, at `to`. Returns how many, at least one. As AppendFrom.
  struct Range {
    int source;
    const std::string& source_path;
    uint64_t offset;
    uint64_t bytes;
    uint64_t to;
  };
  struct Copied {
    uint64_t bytes = 0;
    bool by_kernel = false;
  };
  static absl::StatusOr<Copied> Copy(const Range& range, int file, const std::string& path, AlignedBuffer& buffer);

  // BAD_REQUEST: as FindReplaceable. NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR.
  static absl::StatusOr<std::unique_ptr<CopiedFile>> Create(std::string path);
  ~CopiedFile();
  CopiedFile(const CopiedFile&) = delete;
  CopiedFile& operator=(const CopiedFile&) = delete;

  // Appends up to `bytes` bytes of `source` (whose name is for messages) from `offset` on, by copy_file_range, or by a
  // small buffer where that does not work. Returns how many it appended, at least one. INPUT_UNREADABLE: the source
  // ends there. Else the errors of storage.
  absl::StatusOr<uint64_t> AppendFrom(int source, const std::string& source_path, uint64_t offset, uint64_t bytes);

  // Appends a few bytes of this process. NO_SPACE, STORAGE_ERROR.
  absl::Status AppendBytes(std::string_view bytes);

  // Gives the file its size, so that others may write anywhere in it: a network file system takes what is behind the
  // end for zeros, also in a page that another machine has begun. NO_SPACE, STORAGE_ERROR.
  absl::Status Resize(uint64_t bytes);

  // The hidden file. Others may write into it until Finish, and then tell by Extend how many bytes it has.
  const std::string& partial_path() const { return partial_path_; }
  void Extend(uint64_t bytes) { bytes_ += bytes; }

  // Syncs the file, which keeps its hidden name. FSYNC_FAILED, NO_SPACE.
  absl::Status Finish();
  // Calls Finish if that was not done, renames the file, then syncs the directory. FSYNC_FAILED, STORAGE_ERROR.
  absl::Status Commit();

  uint64_t bytes() const { return bytes_; }
  // Counts the bytes that the kernel copied or shared by itself.
  uint64_t kernel_bytes() const { return kernel_bytes_; }

 private:
  CopiedFile(std::string path, std::string partial_path, UniqueFd fd)
      : path_(std::move(path)), partial_path_(std::move(partial_path)), fd_(std::move(fd)) {}

  const std::string path_;
  const std::string partial_path_;
  const UniqueFd fd_;
  AlignedBuffer buffer_;
  uint64_t bytes_ = 0;
  uint64_t kernel_bytes_ = 0;
  bool finished_ = false;
  bool committed_ = false;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_COPIED_FILE_H_
