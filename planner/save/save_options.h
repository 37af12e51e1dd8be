// What a caller may choose of a save's plan.
#ifndef CAIRN_PLANNER_SAVE_SAVE_OPTIONS_H_
#define CAIRN_PLANNER_SAVE_SAVE_OPTIONS_H_

#include <cstddef>
#include <vector>

namespace cairn {

// May a shard be written by a rank that does not hold it?
enum class MovePolicy {
  kNever,
  // If the largest load is above SaveOptions::move_threshold times the mean; to ranks of the same node first.
  kAuto,
};

struct SaveOptions {
  int bins_per_rank = 2;  // 1 to 99
  MovePolicy moves = MovePolicy::kNever;
  // Loads above this multiple of the mean are brought down, as far as whole shards allow.
  double move_threshold = 1.02;
  // Holders that were slow: another holder of a replica is preferred.
  std::vector<int> slow_ranks;
  // Faults that are kept (all are counted).
  size_t max_faults = 64;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_SAVE_OPTIONS_H_
