// Numbers that rules on tensors take from what is kept of them.
#ifndef CAIRN_COORDINATOR_ALARMS_TENSOR_MEASURES_H_
#define CAIRN_COORDINATOR_ALARMS_TENSOR_MEASURES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/alarms/state_summary.h"

namespace cairn {

// Chance alone explains much of what smaller tensors do.
inline constexpr int64_t kElementsToJudge = 16;
// A smaller tensor of 16-bit floats may round away each update.
inline constexpr int64_t kElementsThatRound = 65536;
// A tensor that moves by less than this share of its norm stands still now and then, because updates are rounded away.
inline constexpr float kMovementThatRounds = 1e-5f;

int64_t Elements(const StateSummary::Tensor& tensor);
// Returns true for elements of less than 32 bits.
bool IsNarrow(DType dtype);
double Norm(const StateSummary::Tensor& tensor);
// Returns the variance of the finite elements.
double Variance(const StateSummary::Tensor& tensor);
// Returns how far apart two tensors of one shape are: an estimate, but never less than what norms and sums prove.
double Distance(const StateSummary::Tensor& a, const StateSummary::Tensor& b);
// Returns 0 if no element is finite.
double LargestMagnitude(const StateSummary::Tensor& tensor);
// Returns true if there are elements, and all are zeros.
bool IsZero(const StateSummary::Tensor& tensor);

// Returns the value in the middle, the lower one of two; nothing of none.
std::optional<double> Median(std::vector<double> values);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_TENSOR_MEASURES_H_
