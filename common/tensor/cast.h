// Casts of elements between plain floating-point dtypes: float16, bfloat16, float32, float64.
//
// Every cast rounds once, to the nearest value, ties to even (IEEE 754-2019, 4.3.1), as numpy does; float64 goes to 16
// bits without a second rounding in float32 between. Values beyond the largest become infinite, NaN stays NaN (quiet,
// its sign kept), subnormal numbers are kept.
#ifndef CAIRN_COMMON_TENSOR_CAST_H_
#define CAIRN_COMMON_TENSOR_CAST_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/tensor/dtype.h"

namespace cairn {

// The dtype of the source, then the dtype after each cast. If there are fewer than two entries, the bytes stay as they
// are.
using CastChain = std::vector<DType>;

// True if elements of this dtype can be cast. Others lose their meaning without scales (float8, quantised integers) or
// are no weights at all.
bool IsCastable(DType dtype);

// The shortest chain that gives the same elements as casting from `source` to each of `casts` in turn: a cast that
// loses nothing is left out if another one follows. All dtypes must be castable, unless they are all equal.
CastChain SimplifyCasts(DType source, std::span<const DType> casts);

// True if every value of `from` is one of `to`.
bool IsLossless(DType from, DType to);

// Casts `count` packed elements; neither side needs to be aligned, and they must not overlap. `chain` has two castable
// entries or more. Thread-safe.
void CastElements(std::span<const DType> chain, const std::byte* source, std::byte* target, size_t count);

// The function that casts `count` packed elements, as CastElements does, from one castable dtype to another.
using CastFunction = void (*)(const std::byte* source, std::byte* target, size_t count);
CastFunction FindCast(DType from, DType to);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_CAST_H_
