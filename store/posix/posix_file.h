// Reads ranges of one file by the quickest way: pages that are cached already through the page cache, the rest either
// directly into place or, where the state is small beside the memory that is free, through the page cache too, where
// the next load finds it.
#ifndef CAIRN_COMMON_FILE_RANGE_READER_H_
#define CAIRN_COMMON_FILE_RANGE_READER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/file/posix.h"

namespace cairn {

inline constexpr uint64_t kReadAlignment = 4096;

// Counts what several readers have read of storage; bytes.
struct ReadCounters {
  std::atomic<uint64_t> cached = 0;
  std::atomic<uint64_t> direct = 0;
  std::atomic<uint64_t> buffered = 0;  // through the page cache too, but it was not there before

  uint64_t storage() const { return cached + direct + buffered; }
};

struct RangeReaderOptions {
  // False: what is not cached goes through the page cache. It does so too where O_DIRECT is refused.
  bool direct = true;
  // The system call, for tests that make it fail or read less.
  std::function<ssize_t(int, void*, size_t, off_t)> pread;
};

// Thread-safe.
class RangeReader {
 public:
  // `path` is below the root. A file without checksums has `modified_ns`, when it was modified last, or 0 if nobody
  // knows: then Open and Read notice that it was written anew since, but for two seconds, which some file systems do
  // not tell apart. DATA_LOSS (FILE_MISSING): it is not there; (FILE_TRUNCATED): it does not have `file_bytes`;
  // (BAD_FOREIGN_FILE): it was written anew; and others of storage.
  static absl::StatusOr<std::unique_ptr<RangeReader>> Open(PosixStorage& storage, const std::string& path,
                                                           uint64_t file_bytes, const RangeReaderOptions& options,
                                                           ReadCounters& counters,
                                                           std::optional<int64_t> modified_ns = std::nullopt);

  enum class Way { kCached, kBuffered, kDirect };
  // Decides how [offset, offset + size) is read, and lets the kernel fetch it ahead where it goes through the page
  // cache. Such a range is best read in parts that fit the processor's cache.
  Way Begin(uint64_t offset, uint64_t size);

  // Reads [offset, offset + size) to `to`. Begin was asked for this range, or for one that it is a part of. With
  // `in_place`, `to` and `offset` are equal modulo kReadAlignment, and the memory around may be overwritten up to the
  // next multiples of it on both sides; without it nothing around is touched.
  // DATA_LOSS (FILE_TRUNCATED): the file ends before; (BAD_FOREIGN_FILE). UNAVAILABLE (STORAGE_ERROR) and others of
  // storage.
  absl::Status Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place);
  absl::Status Read(uint64_t offset, uint64_t size, char* to, bool in_place) {
    return Read(Begin(offset, size), offset, size, to, in_place);
  }

  // The path for messages.
  const std::string& path() const { return path_; }

 private:
  RangeReader(std::string path, uint64_t file_bytes, const RangeReaderOptions& options, ReadCounters& counters)
      : path_(std::move(path)), file_bytes_(file_bytes), options_(options), counters_(counters) {}

  // At least `wanted` of `size` bytes; the number read may be above `wanted` only where the file goes on.
  absl::Status ReadFully(int fd, uint64_t offset, uint64_t size, uint64_t wanted, char* to,
                         std::atomic<uint64_t>& count);
  absl::Status ReadDirect(uint64_t offset, uint64_t size, char* to, bool in_place);
  absl::Status ReadRange(Way way, uint64_t offset, uint64_t size, char* to, bool in_place);
  absl::Status WrittenAnew() const;

  const std::string path_;
  const uint64_t file_bytes_;
  const RangeReaderOptions& options_;
  ReadCounters& counters_;
  UniqueFd buffered_;
  UniqueFd direct_;
  std::atomic<bool> direct_refused_ = false;
  std::optional<int64_t> modified_ns_;  // when it was opened; not set for files with checksums
};

// True if all pages of the range are in the page cache; false also where the kernel does not say.
bool IsCached(int fd, uint64_t offset, uint64_t size);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_RANGE_READER_H_
