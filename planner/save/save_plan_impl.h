// A save plan as numbers: the files of each rank, and the items of each file.
#ifndef CAIRN_PLANNER_SAVE_SAVE_PLAN_IMPL_H_
#define CAIRN_PLANNER_SAVE_SAVE_PLAN_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/format/checkpoint_path.h"
#include "common/format/stored_item.h"
#include "planner/layout/layout_set.h"
#include "planner/save/save_options.h"
#include "planner/save/save_plan.h"
#include "planner/save/writers.h"

namespace cairn {

struct ItemRef {
  uint32_t number;  // the rank's own number of the item: shards first, then objects, then shards moved in
  uint32_t index;   // number of the shard; kObjectBit for an object
};

struct PlanFile {
  int rank_index;
  uint32_t bin;
  uint32_t part;  // 0 for the bin's first file, else a further file of the bin
  std::span<const ItemRef> items;
  uint64_t header_bytes;
  uint64_t data_bytes;
};

inline constexpr uint32_t kObjectBit = 1u << 31;

// The files of a rank are the same in two plans as long as its layout, its items and its moves are. So plans share the
// items of such ranks, and an ItemRef says nothing that depends on other ranks but for the numbers of shards.
class SavePlan::Impl {
 public:
  struct MovedOut {
    uint32_t rank_index;
    uint32_t item;  // its number in the rank's layout
    uint32_t move;  // index into writers.moves
  };

  // `before`: a plan with the same options whose set SharesShards with this one; null if there is none. The plan is the
  // same without it.
  Impl(std::shared_ptr<const LayoutSet> layouts, const SaveOptions& options, std::string plan_digest,
       const Impl* before);

  StoredItem ItemOf(const ItemRef& ref, int r) const {
    if (!(ref.index & kObjectBit)) return set->ItemOf(ref.index);
    const LayoutSet::Object& object = ObjectOf(ref, r);
    const auto slot = static_cast<int64_t>(SlotOf(ref, r));
    StoredItem item{object.name, DType::kUint8, {slot}, {{0}, {slot}}, std::nullopt, true, std::nullopt};
    if (object.per_rank) item.object_rank = set->ranks()[static_cast<size_t>(r)];
    return item;
  }
  // Returns what rank index `r` declares of an object.
  const LayoutSet::ObjectItem& DeclaredBy(int r, const ItemRef& ref) const {
    const LayoutSet::Layout& layout = LayoutOf(r);
    return layout.objects[ref.number - layout.shards];
  }
  const LayoutSet::Object& ObjectOf(const ItemRef& ref, int r) const {
    return set->objects()[DeclaredBy(r, ref).object];
  }
  uint64_t SlotOf(const ItemRef& ref, int r) const { return DeclaredBy(r, ref).slot_bytes; }
  uint64_t BytesOf(const ItemRef& ref, int r) const {
    return ref.index & kObjectBit ? SlotOf(ref, r) : set->BytesOf(ref.index);
  }

  const LayoutSet::Layout& LayoutOf(int r) const { return set->layouts()[set->rank_layouts()[static_cast<size_t>(r)]]; }

  std::string NameOf(const PlanFile& file) const {
    return BinName(set->ranks()[static_cast<size_t>(file.rank_index)], static_cast<int>(file.bin),
                   static_cast<int>(file.part));
  }

  std::optional<size_t> IndexOf(int rank) const {
    const auto found = std::lower_bound(set->ranks().begin(), set->ranks().end(), rank);
    if (found == set->ranks().end() || *found != rank) return std::nullopt;
    return static_cast<size_t>(found - set->ranks().begin());
  }

  std::span<const PlanFile> FilesOf(size_t r) const {
    return std::span(files).subspan(first_file[r], first_file[r + 1] - first_file[r]);
  }
  // Returns what the rank writes for others, as indices into writers.moves.
  std::span<const uint32_t> MovedInOf(size_t r) const {
    return std::span(moved_in_).subspan(first_moved_in_[r], first_moved_in_[r + 1] - first_moved_in_[r]);
  }
  // Returns what others write for the rank, by item.
  std::span<const MovedOut> MovedOutOf(size_t r) const {
    const auto range =
        std::equal_range(moved_out_.begin(), moved_out_.end(), MovedOut{static_cast<uint32_t>(r), 0, 0},
                         [](const MovedOut& a, const MovedOut& b) { return a.rank_index < b.rank_index; });
    return {range.first, range.second};
  }

  // Returns the serialized cairn.v1.WritePlan of a rank.
  std::string Part(size_t r) const;

  std::shared_ptr<const LayoutSet> set;
  SaveOptions options;
  std::string digest;
  Writers writers;
  std::vector<PlanFile> files;
  std::vector<size_t> first_file;  // by rank index, and the end
  // By rank index: the items of its files, to which PlanFile::items points.
  std::vector<std::shared_ptr<const std::vector<ItemRef>>> items;
  size_t reused_ranks = 0;           // whose files are those of `before`
  std::vector<uint32_t> from_shard;  // by move: the shard's number in the layout of the rank that holds it

 private:
  class FileMaker;

  void PlaceMoves();
  // Returns, by rank index, whether the rank's files may differ from those of `before`.
  std::vector<bool> ChangedSince(const Impl& before) const;

  std::vector<uint32_t> moved_in_;      // indices into writers.moves, by receiving rank
  std::vector<size_t> first_moved_in_;  // by rank index, and the end
  std::vector<MovedOut> moved_out_;     // by (rank index, item)
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_SAVE_PLAN_IMPL_H_
