// The difference of two elements, as a number for people.
#ifndef CAIRN_FOREIGN_COMPARE_DIFFERENCE_H_
#define CAIRN_FOREIGN_COMPARE_DIFFERENCE_H_

#include "common/tensor/dtype.h"

namespace cairn {

// Returns the absolute difference of two elements of one dtype, which need not be aligned. It is exact where float64
// is, also of integers of 64 bits. For complex numbers it is the absolute value of their difference. A byte of float4
// has two elements; the larger of their differences counts. The result is NaN if only one element is NaN, and 0 if both
// are.
double AbsoluteDifference(DType dtype, const char* one, const char* other);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_COMPARE_DIFFERENCE_H_
