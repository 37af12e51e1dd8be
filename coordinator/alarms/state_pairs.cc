#include "coordinator/alarms/state_pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Tensor = StateSummary::Tensor;
using Object = StateSummary::Object;

constexpr float kFading = 0.9f;
// A tensor that has changed so often is known.
constexpr uint32_t kChangesToBeKnown = 3;

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
  ++history.changes;
  const bool alone = history.unchanged > rest.now;
  history.longest_unchanged =
      std::max(history.longest_unchanged, alone ? std::max(history.unchanged, rest.longest) + 1 : history.unchanged);
  history.unchanged = 0;
  history.last_movement = static_cast<float>(distance);
  history.movement = std::max(history.last_movement, kFading * history.movement);
  if (IsEarlier(history, is)) ++history.returns;
  std::shift_right(history.earlier.begin(), history.earlier.end(), 1);
  history.earlier[0] = was;
  return history;
}

TensorPair PairOf(Tensor& now, const Tensor& before, const Rest& rest) {
  TensorPair pair = {&now, &before, !now.SameBytes(before)};
  const double norm = std::max(Norm(now), Norm(before));
  if (pair.changed && norm > 0) pair.distance = Distance(before, now) / norm;
  const uint64_t was = before.summary.fingerprint_parts, is = now.summary.fingerprint_parts;
  pair.returned = pair.changed && IsEarlier(before.history, is);
  pair.was_steady = rest.Explains(before.history);
  pair.steady = pair.was_steady && before.history.unchanged == 0;
  now.history = Continued(before.history, was, is, pair.changed, pair.distance, rest);
  return pair;
}

// Returns the rest of nine tenths of what an optimizer has moments for, and of these; of all tensors of floats, if
// there are no moments. The others may be new.
Rest RestOf(const StateSummary& before) {
  const std::vector<TensorRole> roles = RolesOf(before.tensors);
  const std::vector<bool> trained = TrainedWeights(roles);
  const bool moments =
      std::ranges::any_of(roles, [](const auto& role) { return role.kind == TensorRole::Kind::kMoment; });
  std::vector<uint32_t> longest, now;
  for (size_t i = 0; i < roles.size(); ++i) {
    const TensorHistory& history = before.tensors[i].history;
    const bool counts =
        moments ? trained[i] || roles[i].kind == TensorRole::Kind::kMoment
                : roles[i].kind == TensorRole::Kind::kWeight && FollowedBy(before.tensors[i].name) == Follower::kNone;
    if (!counts || history.changes < kChangesToBeKnown) continue;
    longest.push_back(history.longest_unchanged);
    now.push_back(history.unchanged);
  }
  if (longest.empty()) return {};
  const auto tenth = static_cast<std::ptrdiff_t>(longest.size() / 10);
  std::ranges::nth_element(longest, longest.begin() + tenth);
  std::ranges::nth_element(now, now.begin() + tenth);
  return {longest[static_cast<size_t>(tenth)], now[static_cast<size_t>(tenth)]};
}

}  // namespace

bool TensorPair::judged() const {
  // NaN stays NaN.
  return before->summary.statistics.non_finite == 0 &&
         (!IsNarrow(before->dtype) || Elements(*before) >= kElementsThatRound);
}

std::string StatePairs::Before() const { return absl::StrCat("step ", before->step); }

StatePairs MatchStates(const StateSummary& before, StateSummary& now) {
  StatePairs states;
  states.before = &before;
  states.now = &now;
  states.roles = RolesOf(now.tensors);
  states.trained = TrainedWeights(states.roles);
  const Rest rest = RestOf(before);
  states.tensors.reserve(now.tensors.size());
  auto old = before.tensors.begin();
  for (Tensor& tensor : now.tensors) {
    for (; old != before.tensors.end() && old->name < tensor.name; ++old) states.gone.push_back(old->name);
    if (old == before.tensors.end() || old->name != tensor.name) {
      states.tensors.push_back({&tensor});
    } else if (const Tensor& was = *old++; was.SameKind(tensor)) {
      states.tensors.push_back(PairOf(tensor, was, rest));
    } else {
      states.tensors.push_back({&tensor});
      states.other_kinds.push_back(tensor.name);
    }
  }
  for (; old != before.tensors.end(); ++old) states.gone.push_back(old->name);
  for (Object& object : now.objects) {
    const auto found = std::ranges::lower_bound(before.objects, object.name, {}, &Object::name);
    if (found == before.objects.end() || found->name != object.name) continue;
    // With other ranks there are other entries. Then it is no news that they differ, nor that they do not.
    const bool changed = object.crc32c != found->crc32c;
    object.history = Continued(found->history, found->Value(), object.Value(), changed, 0, rest);
    const bool steady = rest.Explains(found->history) && found->history.unchanged == 0;
    states.objects.push_back({&object, &*found, changed, steady});
  }
  return states;
}

}  // namespace cairn
