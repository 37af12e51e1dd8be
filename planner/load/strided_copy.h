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

  // While a copy is built, its dimensions are added from the innermost outwards and stand in that order until Finish. A
  // dimension that begins, on both sides, where the one before ends is merged with it. With `whole_elements` a
  // dimension is never merged into the element, because a cast needs the element as it is.
  void AddOuter(int64_t size, int64_t source_step, int64_t target_step, bool whole_elements = false);
  void Finish();
};

// Makes the copy. The caller guarantees that both memories hold it.
void Execute(const StridedCopy& copy, const std::byte* source, std::byte* target);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_STRIDED_COPY_H_
