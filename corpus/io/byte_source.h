// Inputs as streams of bytes. open_source.h opens them.
#ifndef CAIRN_CORPUS_IO_BYTE_SOURCE_H_
#define CAIRN_CORPUS_IO_BYTE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

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

struct SourceOptions {
  bool direct = true;                       // try O_DIRECT for plain files
  size_t max_window = size_t{128} << 20;    // the largest zstd window, in bytes
  const std::atomic<bool>* stop = nullptr;  // looked at between reads
  // Counts up the bytes of the file itself as they are read, compressed if they are.
  std::atomic<uint64_t>* file_bytes = nullptr;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_BYTE_SOURCE_H_
