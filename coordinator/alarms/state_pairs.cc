#include "coordinator/alarms/state_pairs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Tensor = StateSummary::Tensor;
using Object = StateSummary::Object;

constexpr float kFading = 0.9f;

TensorHistory Continued(TensorHistory history, bool changed, double distance) {
  if (changed) {
    ++history.changes;
    history.longest_unchanged = std::max(history.longest_unchanged, history.unchanged);
    history.unchanged = 0;
    history.movement = std::max(static_cast<float>(distance), kFading * history.movement);
  } else {
    ++history.unchanged;
  }
  return history;
}

TensorPair PairOf(Tensor& now, const Tensor& before) {
  TensorPair pair = {&now, &before, !now.SameBytes(before)};
  const double norm = std::max(Norm(now), Norm(before));
  if (pair.changed && norm > 0) pair.distance = Distance(before, now) / norm;
  now.history = Continued(before.history, pair.changed, pair.distance);
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
    object.history = Continued(found->history, changed, 0);
    states.objects.push_back({&object, &*found, changed});
  }
  return states;
}

}  // namespace cairn
