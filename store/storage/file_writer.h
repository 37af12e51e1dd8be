// A large file while it is written.
#ifndef CAIRN_STORE_STORAGE_FILE_WRITER_H_
#define CAIRN_STORE_STORAGE_FILE_WRITER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace cairn {

// Nobody finds the file under its name before Finish has returned OK, and then all of it is durable. Whoever lists
// finds it as an unfinished one, or not at all. A writer that goes without Remove leaves what it has written for
// Storage::RemoveUnfinished. Every method may fail with RESOURCE_EXHAUSTED (NO_SPACE), FAILED_PRECONDITION
// (STORAGE_READ_ONLY), DATA_LOSS (FSYNC_FAILED) and UNAVAILABLE (STORAGE_ERROR).
class FileWriter {
 public:
  virtual ~FileWriter() = default;

  // Writes the part [offset, offset + size), which lies behind the header. `offset`, `size` and the address are
  // multiples of kIoAlignment; the last part is filled up to one, and what lies behind the file's end is cut off. Parts
  // may come in any order, and again; a storage may ask that all but the last have one size of 8 MiB or more.
  // Thread-safe.
  virtual absl::Status Write(uint64_t offset, const char* bytes, uint64_t size) = 0;

  // Writes the header, which needs what the parts are, makes all durable and gives the file its name. The header has
  // the length that Storage::Create was told. Replaces nothing: a name that is taken is an error (STORAGE_ERROR). Comes
  // after the last Write, once.
  virtual absl::Status Finish(std::string_view header) = 0;

  // Takes away what this writer has made, also after Finish; nobody else's file is touched.
  virtual absl::Status Remove() = 0;

  // True if writes go through the memory of this machine, because storage refuses others.
  virtual bool buffered() const = 0;
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_FILE_WRITER_H_
