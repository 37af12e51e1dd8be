// A tensor of another library, and the place of its elements in a file.
#ifndef CAIRN_FOREIGN_READ_SOURCE_STRIDED_TENSOR_H_
#define CAIRN_FOREIGN_READ_SOURCE_STRIDED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/dtype.h"

namespace cairn {

struct StridedTensor {
  DType dtype = DType::kUnspecified;
  Shape shape;
  Shape strides;        // in elements
  uint64_t offset = 0;  // of the first element, counted in bytes from where the file or archive begins

  // Returns true if the tensor has one axis and its elements are contiguous.
  bool IsFlat() const { return shape.size() == 1 && (strides[0] == 1 || shape[0] <= 1); }

  // A box of the tensor whose elements lie row-major and without gaps.
  struct Piece {
    Box box;
    uint64_t offset = 0;  // as above
  };
  // Cuts the tensor into such boxes: one for a contiguous tensor, more for a transposed one, none for an empty one.
  // Returns nothing if that would take more than `most` boxes, or if elements share memory, as those of an expanded
  // tensor do, and `may_share` is false. With `may_share` several boxes may lie at the same bytes.
  std::optional<std::vector<Piece>> Pieces(size_t most, bool may_share = false) const;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_STRIDED_TENSOR_H_
