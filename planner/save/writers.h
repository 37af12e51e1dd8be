// Chooses one writer for each distinct item among the ranks that hold it.
#ifndef CAIRN_PLANNER_SAVE_WRITERS_H_
#define CAIRN_PLANNER_SAVE_WRITERS_H_

#include <cstdint>
#include <vector>

#include "planner/layout/layout_set.h"
#include "planner/save/save_options.h"

namespace cairn {

struct Writers {
  struct Move {
    uint32_t shard;
    int from;  // index of the rank that holds it
    int to;    // index of the rank that writes it
  };
  // Indices in LayoutSet::ranks() of the rank that writes a shard, or a shared object, and holds it. An object that
  // each rank has for itself has -1.
  std::vector<int> shard_writer;
  std::vector<int> object_writer;
  // The shards that a rank writes without holding them. Their shard_writer is `from`.
  std::vector<Move> moves;  // ordered by (from, shard)
  // The bytes of each rank, after the moves.
  std::vector<uint64_t> load;
};

// Items with one holder are given to it first. The others follow, heaviest first, each to the holder with the smallest
// (bytes, bytes of its node, rank). A slow rank gets an item only if all its holders are slow. O(sum of holders + n log
// n); deterministic.
//
// Then, if the options allow moves and the largest load is above the threshold, ranks above max(threshold * mean,
// largest item) give shards to ranks below it, first to those of their own node. Such a rank gives the smallest shard
// that is enough, else the largest. If none fits there, the heaviest rank gives the lightest one the shard that evens
// them out best. A shard moves once. O(moves * log ranks).
Writers ChooseWriters(const LayoutSet& set, const SaveOptions& options);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_WRITERS_H_
