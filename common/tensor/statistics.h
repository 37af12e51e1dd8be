// Numbers about the elements of a tensor, which show what happened to it between two checkpoints. Those of disjoint
// parts can be added, in any order, so they do not depend on how ranks share the tensor, but for rounding.
#ifndef CAIRN_COMMON_TENSOR_STATISTICS_H_
#define CAIRN_COMMON_TENSOR_STATISTICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/tensor/dtype.h"

namespace cairn {

// All but `non_finite` are about the finite elements. The sums are of float64, which are made from sums of at most 512
// elements in the precision of float32.
struct TensorStatistics {
  // The sketch of Alon, Matias and Szegedy ("The space complexity of approximating the frequency moments", 1999): entry
  // i is the sum of the elements at positions p with p % 8 == i, each with a random sign that depends on p alone. The
  // sketch of a difference of tensors is the difference of their sketches, and its squares have the sum of the squared
  // elements as their mean. So it says how far a tensor has moved, without its earlier elements.
  static constexpr size_t kLanes = 8;

  uint64_t zeros = 0;
  uint64_t non_finite = 0;  // NaN and infinite
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_squares = 0;
  std::array<double, kLanes> sketch{};

  // Adds those of other elements.
  void Add(const TensorStatistics& other);
  bool operator==(const TensorStatistics&) const = default;
};

// Returns true if elements of this dtype are numbers, and statistics are kept of them. Not of complex numbers, and not
// of formats that mean nothing without scales beside them (float8_e8m0fnu, float4, the "fnuz" ones).
bool HasStatistics(DType dtype);

// Computes statistics of elements that come in any order. Not thread-safe.
class StatisticsOf {
 public:
  // HasStatistics(dtype) must be true.
  explicit StatisticsOf(DType dtype) : dtype_(dtype) {}

  // Takes `count` packed elements, which need not be aligned. The first one is the tensor's element number `position`
  // in row-major order, and the others follow it there.
  void Add(uint64_t position, const char* elements, size_t count);
  const TensorStatistics& value() const { return value_; }

 private:
  const DType dtype_;
  TensorStatistics value_;
};

// Returns an estimate of the Euclidean norm of the difference of two tensors of one shape, from their sketches. It is
// below a third of the true norm in one of 800 cases.
double EstimatedDistance(const TensorStatistics& a, const TensorStatistics& b);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_STATISTICS_H_
