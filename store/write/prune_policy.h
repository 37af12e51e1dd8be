// Chooses which checkpoints of a job are pruned.
#ifndef CAIRN_STORE_WRITE_PRUNE_POLICY_H_
#define CAIRN_STORE_WRITE_PRUNE_POLICY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/format/metric.h"

namespace cairn {

// A checkpoint is kept if at least one rule keeps it. 0 means: no such rule.
struct PrunePolicy {
  int64_t keep_last = 0;              // keeps this many of the newest valid ones; at least one is always kept
  int64_t keep_every = 0;             // keeps steps that are multiples of this
  std::optional<BestRule> keep_best;  // keeps the valid one with the best metric

  bool empty() const { return keep_last == 0 && keep_every == 0 && !keep_best.has_value(); }
  bool operator==(const PrunePolicy&) const = default;
};

// A step that is committed or damaged.
struct PruneCandidate {
  int64_t step = 0;
  bool damaged = false;  // its records say so; its files were not looked at
  bool pinned = false;
  bool tagged = false;
  bool in_use = false;         // a load uses it
  bool awaits_mirror = false;  // the mirror is to have it and has no copy yet
  // The training has resumed from an older step and does not build on this one. It counts as older than every step that
  // is not superseded.
  bool superseded = false;
  std::vector<Metric> metrics;
  bool alarmed = false;  // something in its state looked wrong when it was committed
};

struct PruneChoice {
  int64_t step = 0;
  bool prune = false;
  std::string why;  // why it is kept; for people

  bool operator==(const PruneChoice&) const = default;
};

// Decides about every candidate. The candidates ascend by step, and so does the result. `is_valid` says whether a
// committed step's manifest can be read and its files exist. It is called only for steps that may be kept because they
// are valid: the newest first, superseded ones last. It is not called for steps that are to be pruned: whoever deletes
// them checks that, and leaves invalid ones alone. A step that is not valid does not count among the newest, and is not
// the best. If none is valid, nothing is pruned.
//
// Steps that await the mirror are kept too, the newest of them, at most kMostKeptForMirror: a mirror that is down, or
// too slow, must not fill the root.
//
// The newest valid step without alarms is kept too.
//
// If several have the best value, the newest of them is the best. NaN and infinities do not count as values. While no
// valid step has the metric of a rule, nothing is pruned: the rule cannot be applied, and must not delete what it was
// meant to keep.
inline constexpr int64_t kMostKeptForMirror = 3;
std::vector<PruneChoice> ChoosePruned(const std::vector<PruneCandidate>& candidates, const PrunePolicy& policy,
                                      const std::function<bool(int64_t step)>& is_valid);

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_PRUNE_POLICY_H_
