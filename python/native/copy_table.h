// Reads the table of copies that Python gives.
#ifndef CAIRN_PYTHON_NATIVE_COPY_TABLE_H_
#define CAIRN_PYTHON_NATIVE_COPY_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/tensor/tiled_copy.h"

// Describes a strided copy. It copies, for every index vector within `extent`, element_bytes bytes from source +
// source_offset + sum(index * source_stride) to target + target_offset + sum(index * target_stride). `first_dimension`
// is an index into the array of dimensions, where this copy's extent, source strides and target strides follow one
// another (3 * dimensions numbers). A size of -1 means that the caller answers for that side's bounds.
//
// If `casts` is not 0, it is two or more, and as many dtype numbers (cairn.v1.DType) follow the dimensions: each
// element is cast from the first dtype to the second, and so on. element_bytes is then the width of the first; elements
// of the last are written.
struct CairnCopy {
  const void* source;
  int64_t source_bytes;
  int64_t source_offset;
  void* target;
  int64_t target_bytes;
  int64_t target_offset;
  int64_t element_bytes;
  int64_t dimensions;
  int64_t first_dimension;
  int64_t casts;
};

namespace cairn {

// A copy with its pointers resolved; its outermost dimension comes first.
struct Walk {
  const char* source;
  char* target;
  int64_t element_bytes;
  std::vector<TiledCopy::Dimension> dimensions;
  CastChain casts;

  int64_t target_element_bytes() const { return casts.empty() ? element_bytes : BytesOf(casts.back()); }
  int64_t bytes() const {
    int64_t total = element_bytes;
    for (const TiledCopy::Dimension& d : dimensions) total *= d.extent;
    return total;
  }
};

// Checks a copy of the table, whose dimensions stand in `numbers`. Returns nothing if the copy is not valid. A side
// whose size is not known is not checked, nor is the target without `with_target`.
std::optional<Walk> ResolveWalk(const CairnCopy& copy, const int64_t* numbers, bool with_target);

}  // namespace cairn

#endif  // CAIRN_PYTHON_NATIVE_COPY_TABLE_H_
