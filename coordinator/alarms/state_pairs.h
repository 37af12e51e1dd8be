// Finds in a step and the one before it what belongs together by name, what has changed, and how far it has moved.
#ifndef CAIRN_COORDINATOR_ALARMS_STATE_PAIRS_H_
#define CAIRN_COORDINATOR_ALARMS_STATE_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/alarms/state_summary.h"
#include "coordinator/alarms/tensor_roles.h"

namespace cairn {

struct TensorPair {
  const StateSummary::Tensor* now = nullptr;
  const StateSummary::Tensor* before = nullptr;  // null: there was none of this name, dtype and shape
  bool changed = false;
  double distance = 0;    // as a share of the norm; of one that has changed
  bool returned = false;  // it has changed back to what it was before it had changed last
  // It changed in each save until now, apart from those in which nothing that is trained changed: a state that was
  // saved twice, or a skipped step of a gradient scaler.
  bool steady = false;
  // It did so until the step before stood still.
  bool was_steady = false;

  // It is steady, and chance does not explain that it stands still.
  bool expected() const { return steady && judged(); }
  // Chance does not explain that it stands still.
  bool judged() const;
};

struct ObjectPair {
  const StateSummary::Object* now = nullptr;
  const StateSummary::Object* before = nullptr;  // never null
  bool changed = false;
  bool steady = false;    // as that of a tensor
  bool returned = false;  // to one of the last values before
};

// A value type. The two steps must outlive it.
struct StatePairs {
  const StateSummary* before = nullptr;
  const StateSummary* now = nullptr;
  std::vector<TensorRole> roles;    // by tensor of `now`
  std::vector<bool> trained;        // by tensor of `now`: weights for which an optimizer has a moment
  std::vector<TensorPair> tensors;  // by tensor of `now`
  std::vector<ObjectPair> objects;  // those that both have
  // The numbers of the tensors whose dtype or shape is another one, and what they were.
  std::vector<std::pair<size_t, const StateSummary::Tensor*>> other_kinds;
  // How far the optimizers, or layers that count batches, have counted since the step before, as a multiple of how far
  // they had counted before that. Nothing if there is no such count.
  std::optional<double> counted;

  // By how much they have; 0 if there is no such count.
  double steps = 0;

  bool same_line() const { return now->line == before->line; }
  // Returns whether there was as much training since the step before as before that. Between saves that are closer to
  // each other than usual, what changes now and then alone need not change.
  bool trained_as_much() const;
  // What has changed in so many saves, one after the other, changes in each, although no optimizer trains it. What is
  // done each ten steps rests in one of ten saves that are nine steps apart.
  uint32_t changes_to_expect() const;
  // Names the step before.
  std::string Before() const;
};

// Matches the steps, and sets the histories of `now`, which go on from those of `before`. Rests before the first change
// do not count, and a new run begins an object's history anew. Pure.
StatePairs MatchStates(const StateSummary& before, StateSummary& now);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_STATE_PAIRS_H_
