// A save plan as numbers: the files of each rank, and the items of each file.
#ifndef CAIRN_PLANNER_SAVE_SAVE_PLAN_IMPL_H_
#define CAIRN_PLANNER_SAVE_SAVE_PLAN_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cairn/v1/plan.pb.h"
#include "common/format/checkpoint_path.h"
#include "common/format/safetensors_header.h"
#include "common/format/wire.h"
#include "planner/layout/layout_set.h"
#include "planner/save/bins.h"
#include "planner/save/header_lengths.h"
#include "planner/save/save_plan.h"
#include "planner/save/writers.h"

namespace cairn {

struct ItemRef {
  uint32_t number;  // the rank's own number of the item: shards first, then objects, then shards moved in
  uint32_t index;   // number of the shard or of the object
};

struct PlanFile {
  int rank_index;
  uint32_t bin;
  uint32_t part;  // 0 for the bin's first file, else a further file of the bin
  size_t first_item;
  uint32_t items;
  uint64_t header_bytes;
  uint64_t data_bytes;
};

inline constexpr uint32_t kObjectBit = 1u << 31;  // set in ItemRef::index for an object

class SavePlan::Impl {
 public:
  Impl(std::shared_ptr<const LayoutSet> layouts, const SaveOptions& options, std::string plan_digest)
      : set(std::move(layouts)), digest(std::move(plan_digest)) {
    Writers writers = ChooseWriters(*set, options);
    load = writers.load;
    moves = std::move(writers.moves);
    std::vector<std::vector<uint32_t>> moved_in(set->ranks().size());  // indices into moves
    std::vector<bool> moved(set->shard_count());
    absl::flat_hash_map<uint32_t, uint32_t> move_of;  // by shard
    from_shard.resize(moves.size());
    for (uint32_t i = 0; i < moves.size(); ++i) {
      moved_in[static_cast<size_t>(moves[i].to)].push_back(i);
      moved[moves[i].shard] = true;
      move_of.emplace(moves[i].shard, i);
    }
    std::vector<uint32_t> taken(set->shard_count(), 0);  // rank index + 1 of the last rank that took the shard
    first_file.push_back(0);
    for (size_t r = 0; r < set->ranks().size(); ++r) {
      const LayoutSet::Layout& layout = set->layouts()[set->rank_layouts()[r]];
      std::vector<ItemRef> own;
      std::vector<BinItem> sizes;
      const std::span<const uint32_t> shards = set->ItemsOf(layout);
      for (uint32_t i = 0; i < shards.size(); ++i) {
        const uint32_t shard = shards[i];
        if (shard >= LayoutSet::kInvalidShard || writers.shard_writer[shard] != static_cast<int>(r) ||
            taken[shard] == r + 1) {
          continue;
        }
        taken[shard] = static_cast<uint32_t>(r + 1);
        if (moved[shard]) {
          moved_out.push_back({static_cast<uint32_t>(r), i, shard});
          const uint32_t move = move_of.at(shard);
          moved_out.back().move = move;
          from_shard[move] = i;
          continue;
        }
        own.push_back({i, shard});
        sizes.push_back({set->BytesOf(shard), false});
      }
      for (uint32_t i = 0; i < layout.objects.size(); ++i) {
        const LayoutSet::ObjectItem& object = layout.objects[i];
        if (!set->objects()[object.object].per_rank && writers.object_writer[object.object] != static_cast<int>(r)) {
          continue;
        }
        own.push_back({layout.shards + i, object.object | kObjectBit});
        sizes.push_back({object.slot_bytes, true});
      }
      const auto first_moved = layout.shards + static_cast<uint32_t>(layout.objects.size());
      for (uint32_t k = 0; k < moved_in[r].size(); ++k) {
        const uint32_t shard = moves[moved_in[r][k]].shard;
        own.push_back({first_moved + k, shard});
        sizes.push_back({set->BytesOf(shard), false});
        moved_in_shards.push_back(moved_in[r][k]);
      }
      first_moved_in.push_back(moved_in_shards.size());
      AddFiles(static_cast<int>(r), own, sizes, options.bins_per_rank);
      first_file.push_back(files.size());
    }
  }

  // Adds a file for each bin that has items, and further files for shards of a tensor that the bin's file has already.
  void AddFiles(int r, const std::vector<ItemRef>& own, const std::vector<BinItem>& sizes, int bins) {
    const Bins split = SplitIntoBins(sizes, bins);
    for (uint32_t bin = 0; bin < split.items.size(); ++bin) {
      std::vector<uint32_t> left = split.items[bin];
      for (uint32_t part = 0; !left.empty(); ++part) {
        PlanFile file{r, bin, part, items.size(), 0, 0, 0};
        HeaderSizer sizer;
        // The rank's first file says what the rank declared besides its items.
        if (files.size() == first_file.back()) {
          for (const auto& [name, target] : set->layouts()[set->rank_layouts()[static_cast<size_t>(r)]].aliases) {
            sizer.AddAlias(name, target);
          }
        }
        std::vector<uint32_t> rest;
        ++stamp_;
        for (uint32_t i : left) {
          const ItemRef& ref = own[i];
          if (!(ref.index & kObjectBit) && !set->IsFlat(ref.index)) {
            uint32_t& stamp = tensor_stamp_[set->TensorOf(ref.index)];
            if (stamp == stamp_) {
              rest.push_back(i);
              continue;
            }
            stamp = stamp_;
          }
          items.push_back(ref);
          file.data_bytes += sizes[i].bytes;
          if (ref.index & kObjectBit) {
            sizer.Add(ItemOf(ref, r));
          } else {
            sizer.AddMeasured(lengths_.Of(ref.index), sizes[i].bytes);
          }
        }
        file.items = static_cast<uint32_t>(items.size() - file.first_item);
        file.header_bytes = sizer.PaddedBytes();
        files.push_back(file);
        left = std::move(rest);
      }
    }
  }

  StoredItem ItemOf(const ItemRef& ref, int r) const {
    if (!(ref.index & kObjectBit)) return set->ItemOf(ref.index);
    const LayoutSet::Object& object = set->objects()[ref.index & ~kObjectBit];
    const auto slot = static_cast<int64_t>(SlotOf(ref, r));
    StoredItem item{object.name, DType::kUint8, {slot}, {{0}, {slot}}, std::nullopt, true, std::nullopt};
    if (object.per_rank) item.object_rank = set->ranks()[static_cast<size_t>(r)];
    return item;
  }
  uint64_t SlotOf(const ItemRef& ref, int r) const {
    const LayoutSet::Layout& layout = set->layouts()[set->rank_layouts()[static_cast<size_t>(r)]];
    return layout.objects[ref.number - layout.shards].slot_bytes;
  }
  uint64_t BytesOf(const ItemRef& ref, int r) const {
    return ref.index & kObjectBit ? SlotOf(ref, r) : set->BytesOf(ref.index);
  }

  std::string NameOf(const PlanFile& file) const {
    return BinName(set->ranks()[static_cast<size_t>(file.rank_index)], static_cast<int>(file.bin),
                   static_cast<int>(file.part));
  }

  std::optional<size_t> IndexOf(int rank) const {
    const auto found = std::lower_bound(set->ranks().begin(), set->ranks().end(), rank);
    if (found == set->ranks().end() || *found != rank) return std::nullopt;
    return static_cast<size_t>(found - set->ranks().begin());
  }

  std::string Part(size_t r) const {
    std::string out;
    WireWriter writer(out);
    writer.String(v1::WritePlan::kPlanDigestFieldNumber, digest);
    writer.String(v1::WritePlan::kLayoutDigestFieldNumber, set->layout_digests()[set->rank_layouts()[r]]);
    writer.Number(v1::WritePlan::kRankFieldNumber, static_cast<uint64_t>(set->ranks()[r]));
    std::string nested;
    std::vector<uint32_t> numbers;
    for (size_t f = first_file[r]; f < first_file[r + 1]; ++f) {
      const PlanFile& file = files[f];
      nested.clear();
      WireWriter inner(nested);
      inner.String(v1::PlannedFile::kNameFieldNumber, NameOf(file));
      inner.Number(v1::PlannedFile::kHeaderBytesFieldNumber, file.header_bytes);
      inner.Number(v1::PlannedFile::kDataBytesFieldNumber, file.data_bytes);
      numbers.clear();
      for (size_t i = 0; i < file.items; ++i) numbers.push_back(items[file.first_item + i].number);
      inner.Packed(v1::PlannedFile::kItemsFieldNumber, numbers);
      writer.Bytes(v1::WritePlan::kFilesFieldNumber, nested);
    }
    for (size_t k = r == 0 ? 0 : first_moved_in[r - 1]; k < first_moved_in[r]; ++k) {
      const Writers::Move& move = moves[moved_in_shards[k]];
      const LayoutSet::Tensor& tensor = set->tensors()[set->TensorOf(move.shard)];
      nested.clear();
      WireWriter inner(nested);
      inner.Number(v1::MovedShard::kFromRankFieldNumber,
                   static_cast<uint64_t>(set->ranks()[static_cast<size_t>(move.from)]));
      inner.String(v1::MovedShard::kNameFieldNumber, tensor.name);
      inner.Number(v1::MovedShard::kDtypeFieldNumber, static_cast<uint64_t>(tensor.dtype));
      inner.Packed(v1::MovedShard::kGlobalShapeFieldNumber, tensor.global_shape);
      const Box box = set->BoxOf(move.shard);
      inner.Packed(v1::MovedShard::kOffsetFieldNumber, box.offset);
      inner.Packed(v1::MovedShard::kShapeFieldNumber, box.shape);
      if (const auto range = set->FlatRangeOf(move.shard)) {
        inner.Number(v1::MovedShard::kFlatFieldNumber, 1);
        inner.Number(v1::MovedShard::kFlatBeginFieldNumber, static_cast<uint64_t>(range->begin));
        inner.Number(v1::MovedShard::kFlatEndFieldNumber, static_cast<uint64_t>(range->end));
      }
      inner.Number(v1::MovedShard::kFromShardFieldNumber, from_shard[moved_in_shards[k]]);
      writer.Bytes(v1::WritePlan::kIncomingShardsFieldNumber, nested);
    }
    const auto of_rank = [](const MovedOut& out_item, size_t rank) { return out_item.rank_index < rank; };
    for (auto it = std::lower_bound(moved_out.begin(), moved_out.end(), r, of_rank);
         it != moved_out.end() && it->rank_index == r; ++it) {
      nested.clear();
      WireWriter inner(nested);
      inner.Number(v1::MovedOut::kShardFieldNumber, it->item);
      inner.Number(v1::MovedOut::kToRankFieldNumber,
                   static_cast<uint64_t>(set->ranks()[static_cast<size_t>(moves[it->move].to)]));
      writer.Bytes(v1::WritePlan::kOutgoingShardsFieldNumber, nested);
    }
    writer.Number(v1::WritePlan::kWorldSizeFieldNumber, set->ranks().size());
    writer.Number(v1::WritePlan::kTotalFilesFieldNumber, files.size());
    return out;
  }

  struct MovedOut {
    uint32_t rank_index;
    uint32_t item;
    uint32_t shard;
    uint32_t move = 0;  // index into moves
  };

  std::shared_ptr<const LayoutSet> set;
  std::string digest;
  std::vector<uint64_t> load;  // by rank index
  std::vector<PlanFile> files;
  std::vector<size_t> first_file;  // by rank index, and the end
  std::vector<ItemRef> items;      // items of the files, in their order
  std::vector<Writers::Move> moves;
  std::vector<uint32_t> from_shard;       // by move: the shard's number in the layout of the rank that holds it
  std::vector<uint32_t> moved_in_shards;  // indices into moves, by receiving rank
  std::vector<size_t> first_moved_in;     // by rank index: the end of its moved_in_shards
  std::vector<MovedOut> moved_out;        // by rank index

 private:
  // If tensor_stamp_[t] == stamp_, the file being filled has a box of tensor t.
  std::vector<uint32_t> tensor_stamp_ = std::vector<uint32_t>(set->tensors().size(), 0);
  uint32_t stamp_ = 0;
  const HeaderLengths lengths_ = HeaderLengths(*set);
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_SAVE_PLAN_IMPL_H_
