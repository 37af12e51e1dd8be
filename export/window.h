// The memory in which an export puts a part of an output file together.
#ifndef CAIRN_EXPORT_WINDOW_H_
#define CAIRN_EXPORT_WINDOW_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/resources/aligned_buffer.h"

namespace cairn {

// However little memory is allowed, a window has this much, if a file is as large.
inline constexpr uint64_t kSmallestWindowBytes = uint64_t{16} << 20;

// Returns how large a window may be, if all together may take `memory_bytes`, of which the reader takes
// `reader_bytes`. It is no larger than the largest part that is put together, and at least 4 KiB.
uint64_t WindowBytes(uint64_t memory_bytes, uint64_t reader_bytes, uint64_t largest);

// RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the memory.
absl::StatusOr<AlignedBuffer> AllocateWindow(uint64_t bytes);

}  // namespace cairn

#endif  // CAIRN_EXPORT_WINDOW_H_
