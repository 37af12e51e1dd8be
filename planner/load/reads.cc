#include "planner/load/reads.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/format/safetensors_header.h"
#include "planner/load/box_index.h"
#include "planner/load/common_run.h"

namespace cairn {
namespace {

constexpr uint64_t kBlock = kChecksumBlockBytes;
// With a balanced plan each reader has about this many segments. More segments would balance better, but cost more
// reads.
constexpr uint64_t kSegmentsPerRank = 8;
// Every rank fetches from every reader of objects that all ranks get. So one reader takes objects up to these limits.
// Otherwise thousands of ranks would each read one small object, and there would be millions of fetches.
constexpr uint64_t kSharedBytesPerReader = uint64_t{1} << 20;
constexpr int kSharedObjectsPerReader = 256;

class ReadsPlanner {
 public:
  ReadsPlanner(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const LoadOptions& options)
      : source_(source), targets_(targets), match_(match), options_(options) {}

  Reads Plan() {
    std::vector<std::vector<Wanted>> wanted(source_.tensors.size());  // by source tensor
    for (uint32_t i = 0; i < match_.source_of.size(); ++i) {
      if (match_.source_of[i] != NameMatch::kNone) wanted[match_.source_of[i]].push_back({i, NameMatch::kNone});
    }
    for (uint32_t i = 0; i < match_.links.size(); ++i) {
      wanted[match_.links[i].source].push_back({match_.links[i].target, i});
    }
    // Tensors that are cut along one axis have no more overlaps. Memory that is not used takes only addresses.
    reads_.items.reserve(source_.shards.size());
    reads_.ranges.reserve(source_.shards.size());
    reads_.uses.reserve(source_.shards.size() + targets_.shard_count());
    for (uint32_t tensor = 0; tensor < wanted.size(); ++tensor) {
      if (!wanted[tensor].empty()) AddTensor(source_.tensors[tensor], wanted[tensor]);
    }
    AddObjects();
    for (const ByteRange& range : reads_.ranges) reads_.unique_bytes += range.end - range.begin;
    CutSegments();
    ChooseReaders();
    return std::move(reads_);
  }

 private:
  // A number of a target tensor, or later of one of its shards. It takes all elements of a source tensor or, with
  // `link`, a part of them.
  struct Wanted {
    uint32_t target;
    uint32_t link;
  };

  void AddTensor(const ManifestTensor& tensor, const std::vector<Wanted>& wanted);
  void AddItem(uint32_t item, std::span<const Wanted> target_shards);
  // Adds the use of a wanted shard, unless it needs no element of the item.
  void AddUse(const ManifestShard& shard, const Wanted& want, int element);
  // Adds the ranges of an item of which the uses from `first_use` on need bytes.
  void FindNeeded(const ManifestShard& shard, uint32_t first_use, int element);
  // Returns whether the uses, some of which take parts of rows, together take the whole item.
  bool FillItem(const ManifestShard& shard, const std::vector<Overlap>& overlaps) const;
  void AddObjects();
  void CutSegments();
  void ChooseReaders();
  // The bytes that each rank (an index) has to read so far.
  class Balance;
  // Returns the only rank that needs bytes of the segment; -1 if there are several.
  int OnlyConsumerOf(const Segment& segment) const;
  // Chooses, among the ranks that need most of a tensor's segment, the one with the least to read.
  int BestHolderOf(const Segment& segment, const Balance& balance) const;
  // Chooses the readers of segments of objects that all ranks get.
  void ChooseReadersForAll(const std::vector<uint32_t>& segments, Balance& balance);
  // Returns the rank (an index) that has the segment's bytes in memory, because it wrote them; -1 if there is none.
  int KeeperOf(const Segment& segment) const;
  const ManifestObject* ObjectOf(const Segment& segment) const;
  int OwnerOf(const Segment& segment) const;
  bool SameLayouts() const;
  // Returns whether the rank (an index) itself needs bytes of the segment.
  bool Needs(int rank, const Segment& segment) const;
  uint64_t LargestSegment() const;

  uint64_t ItemBytes(uint32_t item) const {
    return item < source_.shards.size() ? source_.shards[item].bytes
                                        : source_.objects[item - source_.shards.size()].bytes;
  }

  const Manifest& source_;
  const LayoutSet& targets_;
  const NameMatch& match_;
  const LoadOptions& options_;
  Reads reads_;
  // What belongs to the item whose uses are being added.
  std::vector<Overlap> scattered_;  // of the uses that are no run
  std::vector<FlatRange> runs_;
};

void ReadsPlanner::AddTensor(const ManifestTensor& tensor, const std::vector<Wanted>& wanted) {
  BoxIndex index(tensor.global_shape.size());
  for (uint32_t i = 0; i < tensor.shard_count; ++i) {
    const ManifestShard& shard = source_.shards[tensor.first_shard + i];
    index.Add(shard.flat ? BoundsOf(PieceOf(source_, shard)) : source_.box_of(shard));
  }
  index.Build();
  std::vector<std::pair<uint32_t, Wanted>> pairs;  // shard of the tensor, and target shard
  for (const Wanted& want : wanted) {
    for (uint32_t target : targets_.ShardsOf(want.target)) {
      Box bounds = targets_.IsFlat(target) ? BoundsOf(PieceOf(targets_, target)) : targets_.BoxOf(target);
      if (want.link != NameMatch::kNone) {
        auto mapped = match_.links[want.link].SourceBounds(bounds);
        if (!mapped) continue;
        bounds = *std::move(mapped);
      }
      index.ForEach(bounds, [&](size_t i) { pairs.emplace_back(static_cast<uint32_t>(i), Wanted{target, want.link}); });
    }
  }
  // The pairs are ordered by shard, with the targets in their own order.
  std::vector<uint32_t> first(tensor.shard_count + 1, 0);
  for (const auto& pair : pairs) ++first[pair.first + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<Wanted> sorted(pairs.size());
  {
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (const auto& [shard, target] : pairs) sorted[next[shard]++] = target;
  }
  for (uint32_t i = 0; i < tensor.shard_count; ++i) {
    AddItem(tensor.first_shard + i, std::span(sorted).subspan(first[i], first[i + 1] - first[i]));
  }
}

void ReadsPlanner::AddItem(uint32_t item, std::span<const Wanted> target_shards) {
  const ManifestShard& shard = source_.shards[item];
  const int element = BytesOf(source_.tensors[shard.tensor].dtype);
  const auto first_use = static_cast<uint32_t>(reads_.uses.size());
  scattered_.clear();
  for (const Wanted& want : target_shards) AddUse(shard, want, element);
  const auto uses = static_cast<uint32_t>(reads_.uses.size()) - first_use;
  if (uses == 0) return;
  NeededItem needed{item, first_use, uses, static_cast<uint32_t>(reads_.ranges.size()), 0};
  FindNeeded(shard, first_use, element);
  needed.ranges = static_cast<uint32_t>(reads_.ranges.size()) - needed.first_range;
  const auto before = [](const Use& a, const Use& b) { return a.begin < b.begin; };
  const auto begin = reads_.uses.begin() + first_use;
  if (!std::is_sorted(begin, reads_.uses.end(), before)) std::stable_sort(begin, reads_.uses.end(), before);
  reads_.items.push_back(needed);
}

void ReadsPlanner::AddUse(const ManifestShard& shard, const Wanted& want, int element) {
  Use use = {want.target, want.link};
  FlatRange span;
  if (want.link == NameMatch::kNone) {
    const auto run =
        FindCommonRun({source_.dims.data() + shard.dims, shard.flat},
                      {targets_.DimsOf(want.target), targets_.IsFlat(want.target)}, targets_.NdimOf(want.target));
    if (run && run->size == 0) return;  // the bounds of flat pieces may meet although the pieces do not
    if (run) {
      span = {run->source_begin, run->source_begin + run->size};
      use.target_begin = static_cast<uint64_t>(run->target_begin) * static_cast<uint64_t>(element);
    }
  }
  if (!use.is_run()) {
    Overlap overlap = OverlapOf(source_, shard, targets_, match_, use);
    if (overlap.empty()) return;
    span = overlap.source_span();
    scattered_.push_back(std::move(overlap));
  }
  use.begin = static_cast<uint64_t>(span.begin) * static_cast<uint64_t>(element);
  use.end = static_cast<uint64_t>(span.end) * static_cast<uint64_t>(element);
  reads_.uses.push_back(use);
}

void ReadsPlanner::FindNeeded(const ManifestShard& shard, uint32_t first_use, int element) {
  const std::span<const Use> uses = std::span(reads_.uses).subspan(first_use);
  const auto bytes = static_cast<uint64_t>(element);
  const auto size = static_cast<int64_t>(shard.bytes / bytes);
  bool all_contiguous = true;
  int64_t total = 0;
  for (const Use& use : uses) {
    if (!use.is_run()) continue;
    if (use.end - use.begin == shard.bytes) return reads_.ranges.push_back({0, shard.bytes});
    total += static_cast<int64_t>((use.end - use.begin) / bytes);
  }
  for (const Overlap& overlap : scattered_) {
    const int64_t common = overlap.size();
    if (common == size) return reads_.ranges.push_back({0, shard.bytes});
    total += common;
    all_contiguous = all_contiguous && overlap.contiguous();
  }
  runs_.clear();
  for (const Use& use : uses) {
    if (use.is_run()) runs_.push_back({static_cast<int64_t>(use.begin / bytes), static_cast<int64_t>(use.end / bytes)});
  }
  if (all_contiguous) {
    for (const Overlap& overlap : scattered_) runs_.push_back(overlap.source_span());
  } else {
    if (!shard.flat && total >= size) {
      std::vector<Overlap> overlaps = scattered_;
      for (const Use& use : uses) {
        if (use.is_run()) overlaps.push_back(OverlapOf(source_, shard, targets_, match_, use));
      }
      if (FillItem(shard, overlaps)) return reads_.ranges.push_back({0, shard.bytes});
    }
    for (const Overlap& overlap : scattered_) overlap.AppendRuns(runs_);
  }
  std::sort(runs_.begin(), runs_.end(), [](const FlatRange& a, const FlatRange& b) { return a.begin < b.begin; });
  const size_t first = reads_.ranges.size();
  for (const FlatRange& run : runs_) {
    const ByteRange range{static_cast<uint64_t>(run.begin) * bytes, static_cast<uint64_t>(run.end) * bytes};
    if (reads_.ranges.size() > first && range.begin <= reads_.ranges.back().end) {
      reads_.ranges.back().end = std::max(reads_.ranges.back().end, range.end);
    } else {
      reads_.ranges.push_back(range);
    }
  }
}

bool ReadsPlanner::FillItem(const ManifestShard& shard, const std::vector<Overlap>& overlaps) const {
  const Box box = source_.box_of(shard);
  const size_t ndim = box.ndim();
  std::vector<const Box*> regions;
  for (const Overlap& overlap : overlaps) {
    if (!overlap.in_source()) return false;
    for (const Box& region : overlap.regions()) {
      if (region.ndim() != ndim) return false;
      regions.push_back(&region);
    }
  }
  // Equal regions of several targets count as one.
  std::sort(regions.begin(), regions.end(),
            [](const Box* a, const Box* b) { return std::tie(a->offset, a->shape) < std::tie(b->offset, b->shape); });
  regions.erase(std::unique(regions.begin(), regions.end(), [](const Box* a, const Box* b) { return *a == *b; }),
                regions.end());
  std::vector<int64_t> pool;
  std::vector<PackedBox> boxes;
  pool.reserve(regions.size() * 2 * ndim);
  for (const Box* region : regions) {
    boxes.push_back(pool.data() + pool.size());
    for (size_t d = 0; d < ndim; ++d) pool.push_back(region->offset[d] - box.offset[d]);
    pool.insert(pool.end(), region->shape.begin(), region->shape.end());
  }
  return TilesExactly(box.shape, boxes);
}

void ReadsPlanner::AddObjects() {
  for (uint32_t i = 0; i < source_.objects.size(); ++i) {
    if (source_.objects[i].bytes == 0) continue;
    const auto range = static_cast<uint32_t>(reads_.ranges.size());
    reads_.ranges.push_back({0, source_.objects[i].bytes});
    reads_.items.push_back(
        {static_cast<uint32_t>(source_.shards.size()) + i, static_cast<uint32_t>(reads_.uses.size()), 0, range, 1});
  }
}

uint64_t ReadsPlanner::LargestSegment() const {
  if (options_.owners_read) return uint64_t{1} << 62;  // there are no rounds, and only the owner can read
  // A read begins at a multiple of kDataAlignment, so it needs additional room for up to that many bytes.
  const uint64_t by_round = std::max(kBlock, (options_.round_bytes - 2 * kDataAlignment) / kBlock * kBlock);
  const uint64_t share = reads_.unique_bytes / (kSegmentsPerRank * std::max<size_t>(1, targets_.ranks().size()));
  return std::min(by_round, (share / kBlock + 1) * kBlock);
}

void ReadsPlanner::CutSegments() {
  const uint64_t largest = LargestSegment();
  reads_.segments.reserve(reads_.uses.size() + source_.objects.size());
  std::vector<uint64_t> cuts;
  for (uint32_t n = 0; n < reads_.items.size(); ++n) {
    const NeededItem& needed = reads_.items[n];
    const uint64_t bytes = ItemBytes(needed.item);
    cuts.assign({0, bytes});
    if (bytes > kBlock && !options_.owners_read) {
      // The item is cut where the consumers change, at the next border of a block.
      for (uint32_t u = needed.first_use; u < needed.first_use + needed.uses; ++u) {
        for (uint64_t border : {reads_.uses[u].begin, reads_.uses[u].end}) {
          const uint64_t cut = (border + kBlock / 2) / kBlock * kBlock;
          if (cut > 0 && cut < bytes) cuts.push_back(cut);
        }
      }
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
    uint32_t range = needed.first_range;
    const uint32_t last_range = needed.first_range + needed.ranges;
    uint32_t use = needed.first_use;
    const uint32_t last_use = needed.first_use + needed.uses;
    // Uses and ranges ascend, so the search for a segment continues where the search for the previous segment ended.
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const uint64_t parts = (cuts[c + 1] - cuts[c] + largest - 1) / largest;
      const uint64_t step = ((cuts[c + 1] - cuts[c]) / parts + kBlock - 1) / kBlock * kBlock;
      for (uint64_t begin = cuts[c]; begin < cuts[c + 1]; begin += step) {
        Segment segment;
        segment.needed = n;
        segment.begin = begin;
        segment.end = std::min(begin + step, cuts[c + 1]);
        while (range < last_range && reads_.ranges[range].end <= begin) ++range;
        for (uint32_t r = range; r < last_range && reads_.ranges[r].begin < segment.end; ++r) {
          segment.bytes += std::min(reads_.ranges[r].end, segment.end) - std::max(reads_.ranges[r].begin, begin);
        }
        if (segment.bytes == 0) continue;
        while (use < last_use && reads_.uses[use].end <= begin) ++use;
        segment.first_use = use;
        segment.last_use = use;
        while (segment.last_use < last_use && reads_.uses[segment.last_use].begin < segment.end) ++segment.last_use;
        reads_.segments.push_back(segment);
      }
    }
  }
}

bool ReadsPlanner::Needs(int rank, const Segment& segment) const {
  if (reads_.items[segment.needed].item >= source_.shards.size()) return true;
  for (uint32_t u = segment.first_use; u < segment.last_use; ++u) {
    for (uint32_t layout : targets_.HoldersOf(reads_.uses[u].target)) {
      const std::vector<int>& ranks = targets_.layouts()[layout].rank_indices;
      if (std::binary_search(ranks.begin(), ranks.end(), rank)) return true;
    }
  }
  return false;
}

bool ReadsPlanner::SameLayouts() const {
  if (source_.world_size != targets_.ranks().size() || source_.rank_layout.size() != source_.world_size) return false;
  for (size_t r = 0; r < targets_.ranks().size(); ++r) {
    if (targets_.ranks()[r] != static_cast<int>(r) ||
        source_.layout_digests[source_.rank_layout[r]] != targets_.layout_digests()[targets_.rank_layouts()[r]]) {
      return false;
    }
  }
  return true;
}

int ReadsPlanner::OwnerOf(const Segment& segment) const {
  const uint32_t item = reads_.items[segment.needed].item;
  const uint32_t file =
      item < source_.shards.size() ? source_.shards[item].file : source_.objects[item - source_.shards.size()].file;
  const int rank = source_.files[file].rank;
  const auto found = std::lower_bound(targets_.ranks().begin(), targets_.ranks().end(), rank);
  return found != targets_.ranks().end() && *found == rank ? static_cast<int>(found - targets_.ranks().begin()) : -1;
}

int ReadsPlanner::KeeperOf(const Segment& segment) const {
  if (options_.keepers.empty()) return -1;
  const int owner = OwnerOf(segment);
  if (owner < 0) return -1;
  const int rank = targets_.ranks()[static_cast<size_t>(owner)];
  return std::binary_search(options_.keepers.begin(), options_.keepers.end(), rank) ? owner : -1;
}

const ManifestObject* ReadsPlanner::ObjectOf(const Segment& segment) const {
  const uint32_t item = reads_.items[segment.needed].item;
  return item < source_.shards.size() ? nullptr : &source_.objects[item - source_.shards.size()];
}

class ReadsPlanner::Balance {
 public:
  explicit Balance(const LayoutSet& targets)
      : targets_(targets), load_(targets.ranks().size()), node_load_(targets.nodes().size()) {}

  void Give(Segment& segment, int rank) {
    segment.reader = rank;
    load_[static_cast<size_t>(rank)] += segment.bytes;
    node_load_[targets_.rank_nodes()[static_cast<size_t>(rank)]] += segment.bytes;
  }
  // Returns the rank with less to read; `a` may be -1, for no rank.
  int Lesser(int a, int b) const { return a < 0 || Key(b) < Key(a) ? b : a; }

 private:
  std::tuple<uint64_t, uint64_t, int> Key(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return {load_[r], node_load_[targets_.rank_nodes()[r]], rank};
  }

  const LayoutSet& targets_;
  std::vector<uint64_t> load_;
  std::vector<uint64_t> node_load_;
};

int ReadsPlanner::OnlyConsumerOf(const Segment& segment) const {
  if (segment.first_use + 1 != segment.last_use) return -1;
  const auto holders = targets_.HoldersOf(reads_.uses[segment.first_use].target);
  if (holders.size() != 1 || targets_.layouts()[holders[0]].rank_indices.size() != 1) return -1;
  return targets_.layouts()[holders[0]].rank_indices[0];
}

int ReadsPlanner::BestHolderOf(const Segment& segment, const Balance& balance) const {
  const auto meets = [&](const Use& use) {
    return std::min(use.end, segment.end) -
           std::min(std::max(use.begin, segment.begin), std::min(use.end, segment.end));
  };
  uint64_t most = 0;
  for (uint32_t u = segment.first_use; u < segment.last_use; ++u) most = std::max(most, meets(reads_.uses[u]));
  int best = -1;
  for (uint32_t u = segment.first_use; u < segment.last_use; ++u) {
    if (meets(reads_.uses[u]) * 2 < most) continue;
    for (uint32_t layout : targets_.HoldersOf(reads_.uses[u].target)) {
      for (int rank : targets_.layouts()[layout].rank_indices) best = balance.Lesser(best, rank);
    }
  }
  return best;
}

void ReadsPlanner::ChooseReadersForAll(const std::vector<uint32_t>& segments, Balance& balance) {
  int reader = -1;
  uint64_t bytes = 0;
  int count = 0;
  for (uint32_t s : segments) {
    Segment& segment = reads_.segments[s];
    if (reader < 0 || bytes + segment.bytes > kSharedBytesPerReader || count == kSharedObjectsPerReader) {
      reader = -1;
      bytes = 0;
      count = 0;
      for (int rank = 0; rank < static_cast<int>(targets_.ranks().size()); ++rank)
        reader = balance.Lesser(reader, rank);
    }
    bytes += segment.bytes;
    ++count;
    balance.Give(segment, reader);
  }
}

void ReadsPlanner::ChooseReaders() {
  if (targets_.ranks().empty()) return;
  if (options_.owners_read) {
    for (Segment& segment : reads_.segments) segment.reader = OwnerOf(segment);
    return;
  }
  Balance balance(targets_);
  std::vector<std::pair<uint64_t, uint32_t>> shared;  // the complement of the bytes sorts the heaviest first
  std::vector<uint32_t> for_all;
  const bool same = SameLayouts();
  for (uint32_t s = 0; s < reads_.segments.size(); ++s) {
    Segment& segment = reads_.segments[s];
    if (const int keeper = KeeperOf(segment); keeper >= 0) {
      balance.Give(segment, keeper);
      continue;
    }
    const ManifestObject* object = ObjectOf(segment);
    if (object != nullptr && ConsumersOf(source_, targets_, *object) == ObjectConsumers::kOwner) {
      const auto& ranks = targets_.ranks();
      balance.Give(segment,
                   static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), *object->rank) - ranks.begin()));
      continue;
    }
    if (same) {
      // The writer of a moved shard does not hold it, so it does not read the shard either.
      const int owner = OwnerOf(segment);
      if (owner >= 0 && Needs(owner, segment)) {
        balance.Give(segment, owner);
        continue;
      }
    }
    if (object != nullptr) {
      for_all.push_back(s);
    } else if (const int only = OnlyConsumerOf(segment); only >= 0) {
      balance.Give(segment, only);
    } else {
      shared.emplace_back(~segment.bytes, s);
    }
  }
  std::sort(shared.begin(), shared.end());
  for (const auto& [complement, s] : shared) {
    Segment& segment = reads_.segments[s];
    balance.Give(segment, BestHolderOf(segment, balance));
  }
  ChooseReadersForAll(for_all, balance);
}

}  // namespace

Piece PieceOf(const Manifest& source, const ManifestShard& shard) {
  return {source.box_of(shard), source.flat_range_of(shard)};
}

Piece PieceOf(const LayoutSet& targets, uint32_t shard) { return {targets.BoxOf(shard), targets.FlatRangeOf(shard)}; }

Overlap OverlapOf(const Manifest& source, const ManifestShard& shard, const LayoutSet& targets, const NameMatch& match,
                  const Use& use) {
  return Overlap(PieceOf(source, shard), PieceOf(targets, use.target),
                 use.link == NameMatch::kNone ? nullptr : &match.links[use.link]);
}

Reads PlanReads(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const LoadOptions& options) {
  return ReadsPlanner(source, targets, match, options).Plan();
}

ObjectConsumers ConsumersOf(const Manifest& source, const LayoutSet& targets, const ManifestObject& object) {
  const bool own = object.rank && source.world_size == targets.ranks().size() &&
                   std::binary_search(targets.ranks().begin(), targets.ranks().end(), *object.rank);
  return own ? ObjectConsumers::kOwner : ObjectConsumers::kAll;
}

}  // namespace cairn
