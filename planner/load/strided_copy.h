// Describes and makes copies of a region between two row-major boxes, by strides.
#ifndef CAIRN_PLANNER_LOAD_STRIDED_COPY_H_
#define CAIRN_PLANNER_LOAD_STRIDED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/tensor/box.h"

namespace cairn {

// Describes a copy. For every index vector within `extent` it copies element_bytes bytes from source_offset + sum(index
// * source_stride) to target_offset + sum(index * target_stride). All numbers are bytes. Without extent it is one
// contiguous copy.
struct StridedCopy {
  int64_t source_offset = 0;
  int64_t target_offset = 0;
  int64_t element_bytes = 0;
  Shape extent;
  Shape source_stride;
  Shape target_stride;

  int64_t bytes() const;

  // Adds a dimension. The caller begins with the innermost one; Finish reverses the order. If the dimension continues
  // the previous one without a gap on both sides, the two are merged. With `whole_elements` no dimension is merged into
  // the element, because a cast needs single elements.
  void AddOuter(int64_t size, int64_t source_step, int64_t target_step, bool whole_elements = false);
  void Finish();
};

// Makes the copy. All bytes of the copy must lie within both memories; this is not checked.
void Execute(const StridedCopy& copy, const std::byte* source, std::byte* target);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_STRIDED_COPY_H_
