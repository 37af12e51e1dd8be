// The options of a save's plan.
#ifndef CAIRN_PLANNER_SAVE_SAVE_OPTIONS_H_
#define CAIRN_PLANNER_SAVE_SAVE_OPTIONS_H_

namespace cairn {

// Says whether a shard may be written by a rank that does not hold it.
enum class MovePolicy {
  kNever,
  // A shard may move, if the rank with the most bytes has more than SaveOptions::move_threshold times the mean. Ranks
  // of the same node are preferred.
  kAuto,
};

struct SaveOptions {
  int bins_per_rank = 2;  // 1 to 99
  MovePolicy moves = MovePolicy::kNever;
  // A rank with more bytes than this multiple of the mean gives shards away, as far as whole shards allow.
  double move_threshold = 1.02;

  bool operator==(const SaveOptions&) const = default;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_SAVE_OPTIONS_H_
