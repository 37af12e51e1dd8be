// Inputs as streams of bytes: plain files around the page cache, pipes, gzip and zstd.
#ifndef CAIRN_CORPUS_IO_BYTE_SOURCE_H_
#define CAIRN_CORPUS_IO_BYTE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn::corpus {

// For one thread at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Up to `size` next bytes; 0 at the end alone. `buffer` is page-aligned and `size` a multiple of kIoAlignment, so
  // that a direct read needs no copy. INPUT_UNREADABLE: the read failed, or the compressed data are damaged or cut off;
  // the message names the file. INTERRUPTED: `stop` was set. MEMORY_LIMIT: a zstd window is larger than allowed.
  virtual absl::StatusOr<size_t> Read(char* buffer, size_t size) = 0;
  // Whether reads really go around the page cache.
  virtual bool direct() const { return false; }
};

enum class Compression { kNone, kGzip, kZstd };

// By the name's end: .gz; .zst and .zstd.
Compression CompressionOf(const std::string& path);

struct SourceOptions {
  bool direct = true;                       // try O_DIRECT for plain files
  size_t max_window = size_t{128} << 20;    // the largest zstd window, in bytes
  const std::atomic<bool>* stop = nullptr;  // looked at between reads
  // Counts up the bytes of the file itself as they are read, compressed if they are.
  std::atomic<uint64_t>* file_bytes = nullptr;
};

// The bytes [begin, end of file) of a plain file. From `soft_end` on it reads in small pieces: the caller expects to
// need only the rest of a line there.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenPlainSource(const std::string& path, uint64_t begin, uint64_t soft_end,
                                                            const SourceOptions& options);

// The whole decompressed content of a file; "-" is standard input, taken as it is.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenSource(const std::string& path, const SourceOptions& options);

// `source` without its first `bytes` bytes, which are read and dropped.
std::unique_ptr<ByteSource> SkipBytes(std::unique_ptr<ByteSource> source, uint64_t bytes);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_BYTE_SOURCE_H_
