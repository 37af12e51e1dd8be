#include "coordinator/alarms/movement_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/alarms/moved_experts.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/scaled_moments.h"
#include "coordinator/alarms/tensor_measures.h"
#include "coordinator/alarms/zero_shards.h"

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

// A tensor that has changed so often has shown how it moves.
constexpr uint32_t kChangesToKnowMovement = 5;
// A weight that has not changed since the first save, and in so many, is frozen.
constexpr uint32_t kSavesToBeFrozen = 5;
// A tensor that moves by this share of its norm, and by this multiple of what it has moved so far, has jumped.
constexpr double kJump = 0.5;
constexpr double kJumpFactor = 4;
// Two tensors that have nothing in common are farther apart than this share of their norm.
constexpr double kUnrelated = 1.2;
constexpr int64_t kElementsToBeUnrelated = 1024;
// An element that is so much larger than any before it, and than most beside it, is a flipped bit, or an overflow.
constexpr double kOutlier = 1000;
// What is so small has faded.
constexpr double kFaded = 1e-18;
// Averages of fewer elements, such as one of the loss, may begin anew.
constexpr int64_t kLeastOfAverages = 16;

// Returns the numbers of the weights that are judged by how far they move. If the names say which weights an
// optimizer trains, it is these, under all names of a tied one: other tensors of the program, such as statistics and
// queues, may move as they like.
std::vector<size_t> MovingWeights(const StatePairs& states) {
  std::set<size_t> trained;
  std::set<uint64_t> trained_bytes;  // of the step before
  for (const TensorRole& role : states.roles) {
    if (role.kind != Kind::kMoment || role.weight < 0) continue;
    trained.insert(static_cast<size_t>(role.weight));
    const StateSummary::Tensor* before = states.tensors[static_cast<size_t>(role.weight)].before;
    if (before != nullptr) trained_bytes.insert(before->summary.fingerprint_parts);
  }
  std::vector<size_t> weights;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kWeight || pair.before == nullptr || !pair.changed) continue;
    if (trained.empty() ? absl::StrContains(pair.now->name, "running_")
                        : !trained.contains(i) && !trained_bytes.contains(pair.before->summary.fingerprint_parts)) {
      continue;
    }
    if (Elements(*pair.now) < kElementsToJudge || pair.now->summary.statistics.non_finite > 0) continue;
    if (pair.before->history.changes >= kChangesToKnowMovement) weights.push_back(i);
  }
  return weights;
}

// What became all zeros by a jump is wrong as long as it is so.
void FindStillZero(const StatePairs& states, std::vector<Alarm>& alarms) {
  if (!states.before->Raised(alarm::kJump)) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kWeight || pair.before == nullptr || pair.before->history.changes < 3) continue;
    if (IsZero(*pair.now) && Elements(*pair.now) >= kElementsToJudge) names.push_back(pair.now->name);
  }
  if (!names.empty())
    alarms.push_back({std::string(alarm::kJump), absl::StrCat("all zeros still: ", NamesAndRanks(*states.now, names))});
}

// Returns the frozen matrices of the model that is trained that have become another tensor. Copies of other tensors,
// such as target networks, and what begins to be trained or filled, are meant.
std::vector<std::string> FrozenThatMoved(const StatePairs& states) {
  if (!states.same_line()) return {};
  const auto top = [](const std::string& name) { return name.substr(0, name.find('.')); };
  std::set<std::string> models;
  std::map<uint64_t, size_t> copies;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    if (states.trained[i]) models.insert(top(states.tensors[i].now->name));
    ++copies[states.tensors[i].now->summary.fingerprint_parts];
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kWeight || states.trained[i] || pair.before == nullptr || !pair.changed) continue;
    const TensorHistory& history = pair.before->history;
    if (history.changes > 0 || history.unchanged < kSavesToBeFrozen || pair.distance <= kJump) continue;
    if (pair.now->shape.size() < 2 && Elements(*pair.now) < kElementsToBeUnrelated) continue;
    const TensorStatistics& was = pair.before->summary.statistics;
    const bool copy = !IsZero(*pair.now) && copies[pair.now->summary.fingerprint_parts] > 1;
    if (was.min >= was.max || copy || FollowedBy(pair.now->name) != Follower::kNone) continue;
    if (pair.now->summary.statistics.non_finite == 0 && was.non_finite == 0 && models.contains(top(pair.now->name))) {
      names.push_back(pair.now->name);
    }
  }
  return names;
}

// Returns whether a tensor is an average of weights, or what normalizing layers count.
bool IsFollower(const StatePairs& states, size_t i) {
  return states.roles[i].kind == Kind::kWeight && FollowedBy(states.tensors[i].now->name) != Follower::kNone;
}

// Returns the averages of weights and the running statistics that have become all zeros. A new run may begin them anew.
std::vector<std::string> FollowersOfZeros(const StatePairs& states) {
  if (!states.same_line()) return {};
  std::vector<std::string> names;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (pair.before == nullptr || !pair.changed || pair.now->shape.empty() || !IsZero(*pair.now)) continue;
    if (!IsFollower(states, i)) continue;
    if (FollowedBy(pair.now->name) == Follower::kAverage && Elements(*pair.now) < kLeastOfAverages) continue;
    // What fades away without inputs is taken for zeros at last.
    if (pair.before->history.changes < kChangesToKnowMovement || Norm(*pair.before) < kFaded) continue;
    names.push_back(pair.now->name);
  }
  return names;
}

// Returns whether a few elements are much larger than any before. Where all are, the rate has begun to be one.
bool HasOutliers(const TensorPair& pair) {
  const double was = LargestMagnitude(*pair.before), is = LargestMagnitude(*pair.now);
  const double mean_square =
      pair.now->summary.statistics.sum_squares / static_cast<double>(std::max<int64_t>(1, Elements(*pair.now)));
  return was > 0 && is > kOutlier * was &&
         is * is > 2 * std::sqrt(static_cast<double>(Elements(*pair.now))) * mean_square;
}

std::string HowItMoved(const TensorPair& pair) {
  const double was = Norm(*pair.before), is = Norm(*pair.now);
  if (HasOutliers(pair)) {
    return absl::StrFormat("has an element of %.3g, and had none above %.3g", LargestMagnitude(*pair.now),
                           LargestMagnitude(*pair.before));
  }
  std::string text = absl::StrFormat("moved by %.2g of its norm, and by %.2g at most before", pair.distance,
                                     pair.before->history.movement);
  if (IsZero(*pair.now)) return text + "; it is all zeros now";
  if (Variance(*pair.now) < 1e-6 * Variance(*pair.before)) return text + "; all its elements are nearly equal now";
  if (is > 2 * was || is < was / 2) return absl::StrFormat("%s; its norm was %.3g and is %.3g", text, was, is);
  return text + "; its norm is about the same, as if its elements had changed places or were another tensor's";
}

// Returns whether nothing of the tensor before is left, and training does not explain it.
bool IsUnrelated(const StatePairs& states, const TensorPair& pair) {
  const double longer = std::max(1.0, states.counted.value_or(1));
  return pair.distance > kUnrelated &&
         pair.distance > kJumpFactor * longer * static_cast<double>(pair.before->history.movement) &&
         Elements(*pair.now) >= kElementsToBeUnrelated;
}

// Returns whether most weights are wrong. Then the weight in the middle does not tell how far they move.
bool MostAreUnrelated(const StatePairs& states, const std::vector<size_t>& weights) {
  size_t large = 0, unrelated = 0;
  for (const size_t i : weights) {
    large += Elements(*states.tensors[i].now) >= kElementsToBeUnrelated ? 1 : 0;
    unrelated += IsUnrelated(states, states.tensors[i]) ? 1 : 0;
  }
  return 2 * unrelated >= large;
}

// A moment that moves by this share of its norm, and by this multiple of what it has moved so far, has left its place.
constexpr double kLeft = 0.3;
constexpr double kLeftFactor = 1.5;
// Squares that are kept as their logarithms fall below zero by less than this share of the largest one, or all of them
// move by less than this share of their norm.
constexpr double kNegative = 0.1;
constexpr double kNegativeDistance = 0.9;
// So many of one shape are compared with each other.
constexpr size_t kMostCompared = 1024;

// Returns how much farther than ever before the weight in the middle has moved, or how much more steps there were if
// that is more; 1 if neither. With more training between two saves, or a higher rate, all weights move farther; where
// all moments rest, there was no training.
double Usual(const StatePairs& states, const std::vector<size_t>& weights) {
  bool moments = false, training = false;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kMoment || pair.before == nullptr || pair.before->history.changes == 0) continue;
    moments = true;
    training = training || pair.changed;
  }
  if (moments && !training) return 1;
  // Most weights may be experts, which change places together.
  std::vector<double> ratios, of_experts;
  for (const size_t i : weights) {
    const TensorPair& pair = states.tensors[i];
    const double movement = static_cast<double>(pair.before->history.movement);
    const bool expert = absl::StrContains(pair.now->name, "expert");
    if (movement > 0) (expert ? of_experts : ratios).push_back(pair.distance / movement);
  }
  if (ratios.empty()) ratios = std::move(of_experts);
  return std::max({1.0, Median(std::move(ratios)).value_or(1), states.counted.value_or(1)});
}

}  // namespace

std::set<size_t> MovedExperts(const StatePairs& states) {
  const std::vector<size_t> weights = MovingWeights(states);
  return MovedExperts(states, weights, Usual(states, weights));
}

void FindJumps(const StatePairs& states, std::vector<Alarm>& alarms) {
  const std::vector<size_t> weights = MovingWeights(states);
  const double usual = Usual(states, weights);
  const std::set<size_t> experts = MovedExperts(states, weights, usual);
  const bool most = MostAreUnrelated(states, weights);
  std::vector<std::string> names;
  std::string example;
  double farthest = 0;
  for (const size_t i : weights) {
    const TensorPair& pair = states.tensors[i];
    const double movement = static_cast<double>(pair.before->history.movement);
    const bool far = pair.distance > kJump && pair.distance > kJumpFactor * usual * movement;
    const bool unrelated = most && IsUnrelated(states, pair);
    if ((!far && !unrelated && !HasOutliers(pair)) || experts.contains(i)) continue;
    names.push_back(pair.now->name);
    if (!example.empty() && pair.distance <= farthest) continue;
    farthest = pair.distance;
    example = absl::StrCat(pair.now->name, " ", HowItMoved(pair));
  }
  std::string text;
  if (!names.empty()) {
    text = absl::StrCat("moved farther since ", states.Before(),
                        " than ever before: ", NamesAndRanks(*states.now, names), "; ", example);
  }
  if (names = FrozenThatMoved(states); !names.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "frozen in each save up to ", states.Before(),
                    ", and moved by more than half of its norm: ", NamesAndRanks(*states.now, names));
  }
  if (names = FollowersOfZeros(states); !names.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    "averages of weights, or running statistics, are all zeros, and were not at ", states.Before(),
                    ": ", NamesAndRanks(*states.now, names));
  }
  if (names = ScaledMoments(states); !names.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "moments are larger than any gradients make them of those at ",
                    states.Before(), ": ", NamesAndRanks(*states.now, names));
  }
  using Part = std::vector<bool>;
  std::array<Part, 3> parts{Part(states.tensors.size()), Part(states.tensors.size()), Part(states.tensors.size())};
  for (const size_t i : weights) parts[0][i] = true;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    if (IsFollower(states, i)) parts[FollowedBy(states.tensors[i].now->name) == Follower::kAverage ? 1 : 2][i] = true;
  }
  for (const Part& part : parts) {
    if (const std::string zeros = ZeroShards(states, part); !zeros.empty()) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", zeros);
    }
  }
  if (text.empty()) return FindStillZero(states, alarms);
  alarms.push_back({std::string(alarm::kJump), text});
}

void FindMisplacedMoments(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::vector<std::string> negative, misplaced;
  using Like = std::tuple<DType, Shape, Follower>;
  const auto like = [](const StateSummary::Tensor& tensor) {
    return Like(tensor.dtype, tensor.shape, FollowedBy(tensor.name));
  };
  std::map<Like, std::vector<size_t>> moments;  // of floating-point numbers, or averages, or statistics
  std::vector<size_t> left;
  size_t judged = 0, shrunk = 0;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    const bool moment = states.roles[i].kind == Kind::kMoment;
    if ((!moment && !IsFollower(states, i)) || pair.before == nullptr || !IsFloat(pair.now->dtype)) continue;
    const TensorStatistics &was = pair.before->summary.statistics, &is = pair.now->summary.statistics;
    const bool squared = moment ? IsSquared(states.roles[i].key) : absl::EndsWith(pair.now->name, ".running_var");
    if (squared && was.min >= 0 && was.max > 0 && -is.min > kNegative * is.max && pair.distance > kNegativeDistance) {
      negative.push_back(pair.now->name);
    }
    if (Elements(*pair.now) < kElementsToJudge || was.non_finite > 0 || is.non_finite > 0) continue;
    moments[like(*pair.now)].push_back(i);
    judged += moment ? 1 : 0;
    shrunk += moment && Norm(*pair.now) < Norm(*pair.before) / 2 ? 1 : 0;
    if (pair.changed && pair.before->history.changes >= kChangesToKnowMovement && pair.distance > kLeft &&
        pair.distance > kLeftFactor * static_cast<double>(pair.before->history.movement)) {
      left.push_back(i);
    }
  }
  // An optimizer that begins anew has small moments, which are near to each other.
  if (shrunk * 2 > judged) std::erase_if(left, [&](size_t i) { return !IsFollower(states, i); });
  std::set<size_t> experts;
  if (!left.empty()) experts = MovedExperts(states);
  std::map<size_t, size_t> came_from;
  for (size_t n = 0; n < left.size() && n < kMostCompared; ++n) {
    const TensorPair& pair = states.tensors[left[n]];
    std::vector<size_t>& alike = moments[like(*pair.now)];
    if (alike.size() > kMostCompared) alike.resize(kMostCompared);
    const std::optional<size_t> from = CameFrom(states, left[n], alike);
    if (from.has_value()) came_from.emplace(left[n], *from);
  }
  std::string example;
  for (const auto& [moment, from] : came_from) {
    if (!came_from.contains(from)) continue;  // that one is where it was
    const int32_t weight = states.roles[moment].weight;
    if (weight >= 0 ? experts.contains(static_cast<size_t>(weight))
                    : !experts.empty() && absl::StrContains(states.tensors[moment].now->name, "expert")) {
      continue;  // with its weight
    }
    const std::string& name = states.tensors[moment].now->name;
    if (example.empty()) example = absl::StrCat(name, " is nearly what ", states.tensors[from].now->name, " was");
    misplaced.push_back(name);
  }
  std::string text;
  if (!misplaced.empty()) {
    text = absl::StrCat("moments or averages are where those of other weights were at ", states.Before(), ": ",
                        NamesAndRanks(*states.now, misplaced), "; ", example);
  }
  if (!negative.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "what has squares has negative elements, and had none at ",
                    states.Before(), ": ", NamesAndRanks(*states.now, negative));
  }
  if (!text.empty()) alarms.push_back({std::string(alarm::kWrongPlace), text});
}

}  // namespace cairn
