// Casts elements between the plain floating-point dtypes float16, bfloat16, float32 and float64.
//
// Every cast rounds once, to the nearest value, ties to even (IEEE 754-2019, 4.3.1), as numpy does. This includes
// float64 to a 16-bit dtype, which is not rounded to float32 first. A value beyond the largest becomes infinite. NaN
// stays a quiet NaN and keeps its sign. Subnormal numbers are kept.
#ifndef CAIRN_COMMON_TENSOR_CAST_H_
#define CAIRN_COMMON_TENSOR_CAST_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/tensor/dtype.h"

namespace cairn {

// The dtype of the source, then the dtype after each cast. Fewer than two entries mean: no cast.
using CastChain = std::vector<DType>;

// Returns true if elements of this dtype can be cast. Other dtypes either mean nothing without scales (float8,
// quantised integers), or are not used for weights.
bool IsCastable(DType dtype);

// Returns the shortest chain that gives the same elements as casting from `source` to each of `casts` in turn. It omits
// a cast that loses nothing and is followed by another. All dtypes must be castable, unless they are all equal.
CastChain SimplifyCasts(DType source, std::span<const DType> casts);

// Returns true if every value of `from` is also one of `to`.
bool IsLossless(DType from, DType to);

// Casts `count` packed elements. `source` and `target` need not be aligned, and must not overlap. `chain` has two
// castable entries or more. Thread-safe.
void CastElements(std::span<const DType> chain, const std::byte* source, std::byte* target, size_t count);

// A function that casts `count` packed elements, as CastElements does, from one castable dtype to another.
using CastFunction = void (*)(const std::byte* source, std::byte* target, size_t count);
CastFunction FindCast(DType from, DType to);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_CAST_H_
