// Reads inputs as streams of bytes. open_source.h opens them.
#ifndef CAIRN_CORPUS_IO_BYTE_SOURCE_H_
#define CAIRN_CORPUS_IO_BYTE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Only one thread may use it at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Reads up to `size` next bytes and returns their number, which is 0 only at the end. `buffer` must be page-aligned
  // and `size` a multiple of kIoAlignment, so that a direct read needs no copy. INPUT_UNREADABLE: the read failed, or
  // the compressed data are damaged or cut off; the message names the file. INTERRUPTED: `stop` was set. MEMORY_LIMIT:
  // the window of a zstd or xz stream is larger than allowed. Of a table also as OpenTableSource (table_source.h).
  virtual absl::StatusOr<size_t> Read(char* buffer, size_t size) = 0;
  // Returns whether reads go around the page cache, as the options asked.
  virtual bool direct() const { return false; }
};

enum class Compression { kNone, kGzip, kZstd, kXz };

struct SourceOptions {
  bool direct = true;                       // tries O_DIRECT for plain files
  size_t max_window = size_t{128} << 20;    // the largest window of zstd and xz, in bytes
  const std::atomic<bool>* stop = nullptr;  // checked between reads
  // Counts the bytes of the file itself as they are read; compressed ones, if it is compressed.
  std::atomic<uint64_t>* file_bytes = nullptr;
  uint64_t read_ahead = uint64_t{32} << 20;  // of an object: the memory for what is read, 2 MiB or more
  std::vector<std::string> columns;          // of a table: those to read, in this order; if empty, all
  int table_readers = 1;                     // of a table: the most processes that read it
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_BYTE_SOURCE_H_
