// One writer for each distinct item among those that hold it.
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
  // By shard, by shared object: index of the rank in LayoutSet::ranks() that writes it, of its holders; -1 for an
  // object that is one per rank.
  std::vector<int> shard_writer;
  std::vector<int> object_writer;
  // Shards that are written by a rank that does not hold them; their shard_writer is `from`.
  std::vector<Move> moves;  // by (from, shard)
  // Bytes by rank, after the moves.
  std::vector<uint64_t> load;
};

// What has one holder is settled first. The rest follows, heaviest first, each to the holder with the smallest (bytes,
// bytes of its node, rank); slow ranks only if all holders are. O(sum of holders + n log n); deterministic.
//
// Then, if the options allow moves and the largest load is above the threshold, ranks above
// max(threshold * mean, largest item) give shards to ranks below it, first to those of their own node: the smallest
// shard that is enough, else the largest. If none fits there, the heaviest gives the lightest what evens them out best.
// O(moves * log ranks). A shard moves once.
Writers ChooseWriters(const LayoutSet& set, const SaveOptions& options);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_WRITERS_H_
