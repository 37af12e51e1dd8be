// Keeps bytes until their place in a file is known: they are appended, and later read back once in order.
#ifndef CAIRN_CORPUS_INDEXED_SPOOL_H_
#define CAIRN_CORPUS_INDEXED_SPOOL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn::corpus {

// Holds up to 256 KiB in memory, and the rest in a file without a name in `directory`. The kernel frees that file
// however the process ends. Not thread-safe.
class Spool {
 public:
  explicit Spool(std::string directory) : directory_(std::move(directory)) {}
  Spool(Spool&& other) noexcept;
  Spool& operator=(Spool&&) = delete;

  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR.
  absl::Status Append(std::string_view bytes);
  // Passes all bytes to the visitor in order. All pieces but the last are multiples of 8 bytes. STORAGE_ERROR; errors
  // of the visitor.
  absl::Status Read(absl::FunctionRef<absl::Status(std::string_view)> visitor);
  uint64_t size() const { return spilled_ + buffer_.size(); }

 private:
  absl::Status Spill();

  std::string directory_;
  UniqueFd fd_;
  uint64_t spilled_ = 0;
  std::string buffer_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_SPOOL_H_
