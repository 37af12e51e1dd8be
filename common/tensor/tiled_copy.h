// Copies elements between two memories in any order of axes, with casts on the way.
#ifndef CAIRN_COMMON_TENSOR_TILED_COPY_H_
#define CAIRN_COMMON_TENSOR_TILED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/cast.h"

namespace cairn {

// Describes a copy. For every index vector within the extents it copies one element from source + sum(index *
// source_stride) to target + sum(index * target_stride). Strides are in bytes and may be negative. No two index vectors
// may have the same target.
struct TiledCopy {
  struct Dimension {
    int64_t extent = 0;
    int64_t source_stride = 0;
    int64_t target_stride = 0;
  };

  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  // The size of one element in the source. With casts it is the size of the first dtype; without casts it may be any
  // number of bytes.
  int64_t element_bytes = 0;
  std::vector<Dimension> dimensions;
  CastChain casts;
  // True if the target is too large to be read from the caches soon. Simplify sets it. Parts of the copy keep it.
  bool large = false;

  bool is_cast() const { return casts.size() > 1; }
  int64_t target_element_bytes() const { return is_cast() ? BytesOf(casts.back()) : element_bytes; }
  int64_t elements() const;
  int64_t source_bytes() const { return elements() * element_bytes; }

  // Merges dimensions where possible, and orders them by the target's memory. The result copies the same elements.
  void Simplify();
};

// Executes a simplified copy. If the innermost axes of source and target differ, it uses a Transposer on the stack, so
// that both memories are accessed in long runs. It takes no other memory. Source and target need not be aligned.
// Thread-safe.
void Execute(const TiledCopy& copy);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TILED_COPY_H_
