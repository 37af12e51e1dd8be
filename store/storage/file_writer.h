// A large file while it is written.
#ifndef CAIRN_STORE_STORAGE_FILE_WRITER_H_
#define CAIRN_STORE_STORAGE_FILE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace cairn {

// Nobody finds the file under its name before Finish has returned OK, and then all of it is durable. Until then a
// listing has it as an unfinished file, or not at all. If the writer is destroyed without Finish and Remove, the
// unfinished file stays until Storage::RemoveUnfinished. Every method may fail with RESOURCE_EXHAUSTED (NO_SPACE),
// FAILED_PRECONDITION (STORAGE_READ_ONLY), DATA_LOSS (FSYNC_FAILED) and UNAVAILABLE (STORAGE_ERROR).
class FileWriter {
 public:
  virtual ~FileWriter() = default;

  // Writes the bytes [offset, offset + size) of the file, behind its header. `offset`, `size` and the address `bytes`
  // are multiples of kIoAlignment. The caller fills the last part up to such a multiple, and what lies behind the
  // file's end is cut off. Parts may come in any order, and the same part more than once. A storage may require that
  // all parts but the last have one size, of 8 MiB or more. Thread-safe.
  virtual absl::Status Write(uint64_t offset, const char* bytes, uint64_t size) = 0;

  // Makes calls of this writer that wait for storage fail soon once `stop` is true; it must outlive the writer. A
  // storage whose calls cannot be given up ignores it.
  virtual void StopWhen(const std::atomic<bool>& stop) { static_cast<void>(stop); }

  // Writes the header, makes the whole file durable and gives it its name. The header comes last because it holds
  // checksums of the parts. It has the length that Storage::Create was told. If the name is taken, nothing is replaced:
  // UNAVAILABLE (STORAGE_ERROR). Must be called once, after the last Write.
  virtual absl::Status Finish(std::string_view header) = 0;

  // Removes the file that this writer has made, also after Finish. It never removes a file that somebody else has made.
  virtual absl::Status Remove() = 0;

  // True if storage refuses direct writes, so that all go through the page cache of this machine.
  virtual bool buffered() const = 0;
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_FILE_WRITER_H_
