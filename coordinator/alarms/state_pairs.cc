#include "coordinator/alarms/state_pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Tensor = StateSummary::Tensor;
using Object = StateSummary::Object;

constexpr float kFading = 0.9f;
// A tensor that has changed so often is known.
constexpr uint32_t kChangesToBeKnown = 3;
// One more than this is the same number in float32.
constexpr float kLargestCount = 1 << 24;
// StatePairs::changes_to_expect. Saves are seldom one of many steps short of what is done between them.
constexpr double kFewestToExpect = 5;
constexpr double kMostToExpect = 20;
// Where nothing counts, weights that have moved by this multiple of what they had moved before had as much training.
constexpr double kAsFar = 0.75;

template <size_t kEarlier>
bool IsEarlier(const ChangeHistory<kEarlier>& history, uint64_t value) {
  return value != 0 && std::ranges::find(history.earlier, value) != history.earlier.end();
}

// For how long all that is trained has stood still.
struct Rest {
  uint32_t longest = 0;
  uint32_t now = 0;  // up to the step before

  // Returns whether what has this history has stood still with all the rest alone.
  template <size_t kEarlier>
  bool Explains(const ChangeHistory<kEarlier>& history) const {
    return history.changes >= kChangesToBeKnown && history.longest_unchanged <= longest;
  }
};

// Goes on with a history. `was` and `is` are the values of the step before and of this one. What stood still alone has
// a longer rest in its history than all have together, so that this one never explains it.
template <size_t kEarlier>
ChangeHistory<kEarlier> Continued(ChangeHistory<kEarlier> history, uint64_t was, uint64_t is, bool changed,
                                  double distance, const Rest& rest) {
  if (!changed) {
    ++history.unchanged;
    return history;
  }
  const bool alone = history.unchanged > rest.now;
  const uint32_t rested = alone ? std::max(history.unchanged, rest.longest) + 1 : history.unchanged;
  // What is not trained at first, as with a rate that begins at 0, need not rest later.
  if (history.changes > 0) history.longest_unchanged = std::max(history.longest_unchanged, rested);
  ++history.changes;
  history.unchanged = 0;
  history.last_movement = static_cast<float>(distance);
  history.movement = std::max(history.last_movement, kFading * history.movement);
  if (IsEarlier(history, is)) ++history.returns;
  std::shift_right(history.earlier.begin(), history.earlier.end(), 1);
  history.earlier[0] = was;
  return history;
}

void Compare(TensorPair& pair, Tensor& now, const Rest& rest) {
  const Tensor& before = *pair.before;
  pair.changed = !now.SameBytes(before);
  const double norm = std::max(Norm(now), Norm(before));
  if (pair.changed && norm > 0) pair.distance = Distance(before, now) / norm;
  const uint64_t was = before.summary.fingerprint_parts, is = now.summary.fingerprint_parts;
  pair.returned = pair.changed && IsEarlier(before.history, is);
  pair.was_steady = rest.Explains(before.history);
  pair.steady = pair.was_steady && before.history.unchanged == 0;
  now.history = Continued(before.history, was, is, pair.changed, pair.distance, rest);
}

// Returns the rest of nine tenths of what an optimizer has moments for, and of these; of all tensors of floats, if
// there are no moments. The others may be new.
Rest RestOf(const StatePairs& states) {
  const bool moments =
      std::ranges::any_of(states.roles, [](const auto& role) { return role.kind == TensorRole::Kind::kMoment; });
  std::vector<uint32_t> longest, now;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const Tensor* before = states.tensors[i].before;
    if (before == nullptr || before->history.changes < kChangesToBeKnown) continue;
    const TensorRole::Kind kind = states.roles[i].kind;
    const bool counts = moments ? states.trained[i] || kind == TensorRole::Kind::kMoment
                                : kind == TensorRole::Kind::kWeight && FollowedBy(before->name) == Follower::kNone;
    if (!counts) continue;
    longest.push_back(before->history.longest_unchanged);
    now.push_back(before->history.unchanged);
  }
  if (longest.empty()) return {};
  const auto tenth = static_cast<std::ptrdiff_t>(longest.size() / 10);
  std::ranges::nth_element(longest, longest.begin() + tenth);
  std::ranges::nth_element(now, now.begin() + tenth);
  return {longest[static_cast<size_t>(tenth)], now[static_cast<size_t>(tenth)]};
}

// Sets StatePairs::counted and `steps`.
void Count(StatePairs& states) {
  std::vector<double> ratios, steps;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (!pair.changed || pair.before == nullptr || Elements(*pair.now) != 1) continue;
    if (states.roles[i].kind != TensorRole::Kind::kStep && !CountsBatches(pair.now->name)) continue;
    const TensorHistory& history = pair.before->history;
    const double was = pair.before->summary.statistics.max, is = pair.now->summary.statistics.max;
    if (history.changes == 0 || history.unchanged > 0 || !(is > was) || was <= 0) continue;
    ratios.push_back((is - was) / (static_cast<double>(history.last_movement) * was));
    steps.push_back(is - was);
  }
  states.counted = Median(std::move(ratios));
  states.steps = Median(std::move(steps)).value_or(0);
}

}  // namespace

bool TensorPair::judged() const {
  // There a count in float32 comes to its end.
  if (before->dtype == DType::kFloat32 && Elements(*before) == 1 && before->summary.statistics.max >= kLargestCount) {
    return false;
  }
  // NaN stays NaN.
  return before->summary.statistics.non_finite == 0 &&
         (!IsNarrow(before->dtype) || Elements(*before) >= kElementsThatRound);
}

bool StatePairs::trained_as_much() const {
  // Rounding may make one count a little smaller than the other.
  if (counted.has_value()) return *counted > 0.99;
  const bool names_tell = std::ranges::find(trained, true) != trained.end();
  std::vector<double> ratios;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].changed || tensors[i].before == nullptr || roles[i].kind != TensorRole::Kind::kWeight) continue;
    if (names_tell ? !trained[i] : FollowedBy(tensors[i].now->name) != Follower::kNone) continue;
    const TensorHistory& history = tensors[i].before->history;
    if (history.unchanged == 0 && history.last_movement > 0) {
      ratios.push_back(tensors[i].distance / static_cast<double>(history.last_movement));
    }
  }
  return Median(std::move(ratios)).value_or(1) > kAsFar;
}

uint32_t StatePairs::changes_to_expect() const {
  return static_cast<uint32_t>(std::clamp(steps + 1, kFewestToExpect, kMostToExpect));
}

std::string StatePairs::Before() const { return absl::StrCat("step ", before->step); }

StatePairs MatchStates(const StateSummary& before, StateSummary& now) {
  StatePairs states;
  states.before = &before;
  states.now = &now;
  states.roles = RolesOf(now.tensors);
  states.trained = TrainedWeights(states.roles);
  states.tensors.reserve(now.tensors.size());
  auto old = before.tensors.begin();
  for (const Tensor& tensor : now.tensors) {
    while (old != before.tensors.end() && old->name < tensor.name) ++old;
    states.tensors.push_back({&tensor});
    if (old == before.tensors.end() || old->name != tensor.name) continue;
    if (old->SameKind(tensor)) {
      states.tensors.back().before = &*old;
    } else {
      states.other_kinds.emplace_back(states.tensors.size() - 1, &*old);
    }
    ++old;
  }
  const Rest rest = RestOf(states);
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    if (states.tensors[i].before != nullptr) Compare(states.tensors[i], now.tensors[i], rest);
  }
  Count(states);
  for (Object& object : now.objects) {
    const auto found = std::ranges::lower_bound(before.objects, object.name, {}, &Object::name);
    if (found == before.objects.end() || found->name != object.name) continue;
    // With other ranks there are other entries. Then it is no news that they differ, nor that they do not.
    const bool changed = object.crc32c != found->crc32c;
    if (states.same_line()) {
      object.history = Continued(found->history, found->Value(), object.Value(), changed, 0, rest);
    } else {
      object.history.returns = found->history.returns;  // another run may count in other units
    }
    const bool steady = rest.Explains(found->history) && found->history.unchanged == 0;
    const bool returned = changed && IsEarlier(found->history, object.Value());
    states.objects.push_back({&object, &*found, changed, steady, returned});
  }
  return states;
}

}  // namespace cairn
