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

template <size_t kEarlier>
bool IsEarlier(const ChangeHistory<kEarlier>& history, uint64_t value) {
  return value != 0 && std::ranges::find(history.earlier, value) != history.earlier.end();
}

// Goes on with a history. `was` and `is` are the values of the step before and of this one.
template <size_t kEarlier>
ChangeHistory<kEarlier> Continued(ChangeHistory<kEarlier> history, uint64_t was, uint64_t is, bool changed,
                                  double distance) {
  if (!changed) {
    ++history.unchanged;
    return history;
  }
  ++history.changes;
  history.longest_unchanged = std::max(history.longest_unchanged, history.unchanged);
  history.unchanged = 0;
  history.last_movement = static_cast<float>(distance);
  history.movement = std::max(history.last_movement, kFading * history.movement);
  if (IsEarlier(history, is)) ++history.returns;
  std::shift_right(history.earlier.begin(), history.earlier.end(), 1);
  history.earlier[0] = was;
  return history;
}

TensorPair PairOf(Tensor& now, const Tensor& before) {
  TensorPair pair = {&now, &before, !now.SameBytes(before)};
  const double norm = std::max(Norm(now), Norm(before));
  if (pair.changed && norm > 0) pair.distance = Distance(before, now) / norm;
  const uint64_t was = before.summary.fingerprint_parts, is = now.summary.fingerprint_parts;
  pair.returned = pair.changed && IsEarlier(before.history, is);
  now.history = Continued(before.history, was, is, pair.changed, pair.distance);
  return pair;
}

}  // namespace

bool TensorPair::expected() const {
  return steady() && (!IsNarrow(before->dtype) || Elements(*before) >= kElementsThatRound);
}

std::string StatePairs::Before() const { return absl::StrCat("step ", before->step); }

StatePairs MatchStates(const StateSummary& before, StateSummary& now) {
  StatePairs states;
  states.before = &before;
  states.now = &now;
  states.roles = RolesOf(now.tensors);
  states.tensors.reserve(now.tensors.size());
  auto old = before.tensors.begin();
  for (Tensor& tensor : now.tensors) {
    for (; old != before.tensors.end() && old->name < tensor.name; ++old) states.gone.push_back(old->name);
    if (old == before.tensors.end() || old->name != tensor.name) {
      states.tensors.push_back({&tensor});
    } else if (const Tensor& was = *old++; was.SameKind(tensor)) {
      states.tensors.push_back(PairOf(tensor, was));
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
    const uint64_t is = object.Value();
    object.history = Continued(found->history, found->Value(), is, changed, 0);
    states.objects.push_back({&object, &*found, changed, changed && IsEarlier(found->history, is)});
  }
  return states;
}

}  // namespace cairn
