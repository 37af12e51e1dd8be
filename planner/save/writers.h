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
  // The writer of each shard, and of each shared object, among the ranks that hold it: an index into
  // LayoutSet::ranks(). -1 for an object of which each rank has its own.
  std::vector<int> shard_writer;
  std::vector<int> object_writer;
  // The shards that a rank writes for another rank, which holds them. shard_writer of such a shard is `from`.
  std::vector<Move> moves;  // ordered by (from, shard)
  // The bytes that each rank writes, after the moves; by rank index.
  std::vector<uint64_t> load;

  // What follows from the shards and their holders alone, for the next choice: the bytes of the shards that a rank
  // holds alone, by rank index, and the other shards, heaviest first.
  std::vector<uint64_t> sole_bytes;
  std::vector<uint32_t> shared;
};

// Items with one holder are given to it first. The others follow, heaviest first, each to the holder with the smallest
// (bytes, bytes of its node, rank). O(sum of holders + n log n); deterministic.
//
// Objects of less than 1 MiB have no part in that, because their lengths change from save to save, and a rank that has
// staged by an earlier plan cannot write what another one was to write: a draw by their names gives them to holders.
//
// Then, if the options allow moves and the largest load is above the threshold, ranks above max(threshold * mean,
// largest item) give shards to ranks below it, first to ranks of their own node. Such a rank gives the smallest shard
// that brings it below the limit, else its largest one. If none fits, the heaviest rank gives the lightest rank the
// shard that makes the two most equal. A shard moves at most once. O(moves * log ranks).
//
// `before`: a choice for a set that SharesHolders with this one; null if there is none. The choice is the same, and
// only costs less: O(sum of the holders of shards that several hold).
Writers ChooseWriters(const LayoutSet& set, const SaveOptions& options, const Writers* before);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_WRITERS_H_
