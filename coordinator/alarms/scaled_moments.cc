#include "coordinator/alarms/scaled_moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kPairs = {
    {{"exp_avg", "exp_avg_sq"}, {"moment1", "moment2"}}};
// A moment that is so many times as large is another one.
constexpr double kScaled = 1000;
// The squares of first moments are at most so many times as large as the squared ones: 1 / (1 - beta2), for each beta2
// up to 0.9999. It is 53 with the usual rates.
constexpr double kMostOfSquared = 1e4;
// Two tensors that differ in their scale alone are nearer than this share of their norm. A square of one gradient is
// farther from the mean of many, however large it is.
constexpr double kSameDirection = 0.3;
// Below this share of the squared moment, the first one has faded for want of gradients.
constexpr double kFaded = 1e-3;
// Gradients that are larger from some step on leave the two in a ratio that differs from the one before by less.
constexpr double kOtherRatio = 256;

bool IsPlain(const TensorPair& pair) {
  return pair.before != nullptr && IsFloat(pair.now->dtype) && !IsNarrow(pair.now->dtype) &&
         Elements(*pair.now) >= kElementsToJudge && pair.now->summary.statistics.non_finite == 0 &&
         pair.before->summary.statistics.non_finite == 0;
}

// Returns the squared moment beside a first one. Null if there is none of which enough is known.
const TensorPair* SquaredOf(const StatePairs& states, size_t first) {
  const auto keys = std::ranges::find(kPairs, states.roles[first].key, &decltype(kPairs)::value_type::first);
  if (keys == kPairs.end()) return nullptr;
  std::vector<std::string> parts = absl::StrSplit(states.tensors[first].now->name, '.');
  std::ranges::replace(parts, std::string(keys->first), std::string(keys->second));
  const std::string name = absl::StrJoin(parts, ".");
  const auto found = std::ranges::lower_bound(states.tensors, name, {},
                                              [](const TensorPair& pair) -> const auto& { return pair.now->name; });
  if (found == states.tensors.end() || found->now->name != name || !IsPlain(*found)) return nullptr;
  const TensorStatistics &was = found->before->summary.statistics, &is = found->now->summary.statistics;
  // Some keep the logarithms.
  return was.min >= 0 && was.sum > 0 && is.min >= 0 && is.sum > 0 ? &*found : nullptr;
}

// Returns how far a tensor is from a multiple of what it was, as a share of its norm.
double TurnedBy(const TensorPair& pair) {
  const double factor = Norm(*pair.now) / Norm(*pair.before);
  TensorStatistics multiple = pair.before->summary.statistics;
  for (double& lane : multiple.sketch) lane *= factor;
  return EstimatedDistance(multiple, pair.now->summary.statistics) / Norm(*pair.now);
}

double OfSquared(const StateSummary::Tensor& first, const StateSummary::Tensor& squared) {
  return first.summary.statistics.sum_squares / squared.summary.statistics.sum;
}

}  // namespace

std::vector<std::string> ScaledMoments(const StatePairs& states) {
  std::vector<std::string> names;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& first = states.tensors[i];
    if (states.roles[i].kind != TensorRole::Kind::kMoment || !IsPlain(first)) continue;
    const TensorPair* const squared = SquaredOf(states, i);
    if (squared == nullptr) continue;
    const double was = OfSquared(*first.before, *squared->before), is = OfSquared(*first.now, *squared->now);
    if (is > kMostOfSquared && is > kScaled * was) names.push_back(first.now->name);
    const double grown = Norm(*squared->now) / Norm(*squared->before);
    const bool other_ratio = was > kFaded && (is > kOtherRatio * was || is * kOtherRatio < was);
    if (grown > kScaled && other_ratio && TurnedBy(*squared) < kSameDirection) names.push_back(squared->now->name);
  }
  return names;
}

}  // namespace cairn
