// Finds which bytes of a checkpoint a set of targets needs, and who reads them.
#ifndef CAIRN_PLANNER_LOAD_READS_H_
#define CAIRN_PLANNER_LOAD_READS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/format/manifest.h"
#include "planner/layout/layout_set.h"
#include "planner/load/load_options.h"
#include "planner/load/name_match.h"
#include "planner/load/overlap.h"

namespace cairn {

// Bytes [begin, end) of an item.
struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A target shard that needs some bytes of an item, all of which lie within [begin, end).
struct Use {
  uint32_t target = 0;
  // An index into NameMatch::links. Without one, it takes the same elements of a tensor of the same shape.
  uint32_t link = NameMatch::kNone;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A stored item that is needed. Items have numbers: shard i of the manifest is item i, and object j is item (number of
// shards) + j.
struct NeededItem {
  uint32_t item = 0;
  uint32_t first_use = 0;  // into Reads::uses; ordered by begin
  uint32_t uses = 0;
  uint32_t first_range = 0;  // into Reads::ranges: the needed bytes, ascending, not touching
  uint32_t ranges = 0;
};

// A part of a needed item that one rank reads: its needed bytes within [begin, end). Items are cut at multiples of
// kChecksumBlockBytes.
struct Segment {
  uint32_t needed = 0;     // into Reads::items
  uint32_t first_use = 0;  // the item's uses that may meet it are Reads::uses[first_use .. last_use)
  uint32_t last_use = 0;
  int reader = -1;  // index of the rank
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t bytes = 0;  // those that are needed
};

struct Reads {
  std::vector<NeededItem> items;
  std::vector<Use> uses;
  std::vector<ByteRange> ranges;
  std::vector<Segment> segments;
  uint64_t unique_bytes = 0;
};

// Returns what an item holds, for Overlap.
Piece PieceOf(const Manifest& source, const ManifestShard& shard);
Piece PieceOf(const LayoutSet& targets, uint32_t shard);
// Returns the elements that a stored shard and the target of a use have in common.
Overlap OverlapOf(const Manifest& source, const ManifestShard& shard, const LayoutSet& targets, const NameMatch& match,
                  const Use& use);

// Every needed byte stands in exactly one segment. Objects have no uses: the ranks that ObjectConsumers names need all
// bytes of an object.
//
// A segment is read by one of the ranks that need most of it. Segments that only one rank needs are given out first.
// Those of tensors that several need follow, heaviest first, each to the rank with the smallest (bytes so far, bytes of
// its node, rank). Objects that all ranks get are given out last, many to one reader. But if every rank has the layout
// with which the checkpoint was saved, each reads what it wrote, as far as it holds that. And before all else, a rank
// of LoadOptions::keepers reads all that it wrote, also what only others need.
Reads PlanReads(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const LoadOptions& options);

// Says which ranks (indices) get an object: all of them. But an object that each rank has for itself goes only to its
// own rank if the world size is unchanged.
enum class ObjectConsumers { kAll, kOwner };
ObjectConsumers ConsumersOf(const Manifest& source, const LayoutSet& targets, const ManifestObject& object);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_READS_H_
