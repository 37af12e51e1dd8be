// Finds the bytes of a checkpoint that the targets need, and the rank that reads each of them.
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

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A target shard that needs bytes of an item; these bytes lie within [begin, end).
struct Use {
  uint32_t target = 0;
  // An index into NameMatch::links; kNone: source and target are tensors of one shape, and equal elements have equal
  // places.
  uint32_t link = NameMatch::kNone;
  uint64_t begin = 0;
  uint64_t end = 0;
  // Where the bytes begin in the target, if all of [begin, end) goes there as one run and is not cast.
  static constexpr uint64_t kScattered = UINT64_MAX;
  uint64_t target_begin = kScattered;

  bool is_run() const { return target_begin != kScattered; }
};

// A stored item of which bytes are needed. Shard i of the manifest has item number i, and object j has item number
// (number of shards) + j.
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
  uint64_t bytes = 0;  // the number of needed bytes
};

struct Reads {
  std::vector<NeededItem> items;
  std::vector<Use> uses;
  std::vector<ByteRange> ranges;
  std::vector<Segment> segments;
  uint64_t unique_bytes = 0;
};

// Return the elements of a stored shard or of a target shard, for Overlap.
Piece PieceOf(const Manifest& source, const ManifestShard& shard);
Piece PieceOf(const LayoutSet& targets, uint32_t shard);
// Returns the elements that a stored shard and the target of a use have in common.
Overlap OverlapOf(const Manifest& source, const ManifestShard& shard, const LayoutSet& targets, const NameMatch& match,
                  const Use& use);

// Every needed byte is in exactly one segment. Objects have no uses: each rank of ConsumersOf needs all bytes of an
// object.
//
// The reader of a segment follows from the first of these rules that applies. 1. A rank of LoadOptions::keepers reads
// all that it wrote, also bytes that only other ranks need. 2. If every rank has the layout with which the checkpoint
// was saved, each rank reads the bytes that it wrote and needs. 3. A segment that only one rank needs goes to that
// rank. 4. Other segments of tensors are given out heaviest first. Among the ranks that need most of a segment, the
// rank with the smallest (bytes so far, bytes of its node, rank) gets it. 5. Objects that all ranks get come last; one
// reader gets many of them.
Reads PlanReads(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const LoadOptions& options);

// The ranks that get an object. kOwner: only its own rank, if each rank has such an object of its own and the world
// size is unchanged. kAll: every rank, in all other cases.
enum class ObjectConsumers { kAll, kOwner };
ObjectConsumers ConsumersOf(const Manifest& source, const LayoutSet& targets, const ManifestObject& object);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_READS_H_
