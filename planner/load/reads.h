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

// A target shard that needs bytes of an item, all of them within [begin, end).
struct Use {
  uint32_t target = 0;
  uint32_t link = NameMatch::kNone;  // of NameMatch::links; none: the same elements of a tensor of the same shape
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A stored item that is needed. Items are numbered: shard i of the manifest is item i, object j is item
// (number of shards) + j.
struct NeededItem {
  uint32_t item = 0;
  uint32_t first_use = 0;  // into Reads::uses; by begin
  uint32_t uses = 0;
  uint32_t first_range = 0;  // into Reads::ranges: what is needed, ascending, not touching
  uint32_t ranges = 0;
};

// A part of a needed item that one rank reads: its needed bytes within [begin, end). Cut at multiples of
// kChecksumBlockBytes of the item.
struct Segment {
  uint32_t needed = 0;     // into Reads::items
  uint32_t first_use = 0;  // the item's uses that may meet it: Reads::uses[first_use .. last_use)
  uint32_t last_use = 0;
  int reader = -1;  // index of the rank
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t bytes = 0;  // needed
};

struct Reads {
  std::vector<NeededItem> items;
  std::vector<Use> uses;
  std::vector<ByteRange> ranges;
  std::vector<Segment> segments;
  uint64_t unique_bytes = 0;
};

// What an item holds, for Overlap.
Piece PieceOf(const Manifest& source, const ManifestShard& shard);
Piece PieceOf(const LayoutSet& targets, uint32_t shard);
// The common elements of a stored shard and what a use takes.
Overlap OverlapOf(const Manifest& source, const ManifestShard& shard, const LayoutSet& targets, const NameMatch& match,
                  const Use& use);

// Every needed byte stands in exactly one segment. Objects have no uses: all of an object's bytes are needed by the
// ranks that ObjectConsumers names.
//
// A segment is read by one of the ranks that need most of it. Segments that only one rank needs are given out first.
// The others follow, heaviest first, each to the rank with the smallest (bytes so far, bytes of its node, rank). If
// every rank has the layout with which the checkpoint was saved, each reads what it wrote, as far as it holds that.
Reads PlanReads(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const LoadOptions& options);

// Says which ranks (indices) get an object: all of them. But an object of which each rank has its own goes only to that
// rank, if the world size is the same.
enum class ObjectConsumers { kAll, kOwner };
ObjectConsumers ConsumersOf(const Manifest& source, const LayoutSet& targets, const ManifestObject& object);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_READS_H_
