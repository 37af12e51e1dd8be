// Reads and writes that continue after a short transfer and after EINTR.
#ifndef CAIRN_COMMON_FILE_FULL_TRANSFER_H_
#define CAIRN_COMMON_FILE_FULL_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

// Writes all of `bytes` at the file's own offset. Returns the errno, or 0.
int WriteFully(int fd, std::string_view bytes);
// Does the same for several pieces, one after the other, in few large writes.
int WriteFully(int fd, std::span<const std::string_view> pieces);
// Does the same at `offset`.
int WriteFullyAt(int fd, std::string_view bytes, uint64_t offset);

// Reads `size` bytes at `offset`; `got` is less only where the file ends. Returns the errno, or 0.
int ReadFullyAt(int fd, void* to, size_t size, uint64_t offset, size_t& got);

// Returns the contents of an open regular file; `path` is for errors. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): more than
// `max_bytes`; (MEMORY_LIMIT): the system refused the memory. Else the reasons of errno_error.h.
absl::StatusOr<std::string> ReadWhole(int fd, const std::string& path, uint64_t max_bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_FULL_TRANSFER_H_
