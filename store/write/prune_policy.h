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

// A checkpoint stays if one of the rules wants it. A rule with 0 is not given.
struct PrunePolicy {
  int64_t keep_last = 0;              // so many of the newest valid ones; at least one is kept always
  int64_t keep_every = 0;             // steps that are multiples of this
  std::optional<BestRule> keep_best;  // the valid one whose metric is the best

  bool empty() const { return keep_last == 0 && keep_every == 0 && !keep_best.has_value(); }
  bool operator==(const PrunePolicy&) const = default;
};

// A step that is committed or damaged.
struct PruneCandidate {
  int64_t step = 0;
  bool damaged = false;  // by its records; nothing is known of its files
  bool pinned = false;
  bool tagged = false;
  bool in_use = false;  // a load wants it
  // The training has gone on from an older step. It counts as older than every step that it still builds on.
  bool superseded = false;
  std::vector<Metric> metrics;
};

// Says what becomes of a checkpoint.
struct PruneChoice {
  int64_t step = 0;
  bool prune = false;
  std::string why;  // it stays; for people

  bool operator==(const PruneChoice&) const = default;
};

// Says what becomes of every candidate, in their order, which is ascending. `is_valid` says whether a committed step's
// manifest can be read and its files stand there. It is asked only of steps that may stay because they are valid, the
// newest first; superseded ones come last. It is not asked of those that go: whoever deletes them looks, and leaves
// alone those that are not valid.
// A step that is not valid does not count among the newest, and is not the best. If none is valid, nothing is pruned.
//
// If values are equal, the newest is the best. NaN and infinities are no values. While no valid step has the metric of
// a rule, nothing is pruned: a rule that nobody can follow must not delete what it was meant to keep.
std::vector<PruneChoice> ChoosePruned(const std::vector<PruneCandidate>& candidates, const PrunePolicy& policy,
                                      const std::function<bool(int64_t step)>& is_valid);

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_PRUNE_POLICY_H_
