#include "planner/save/save_plan_impl.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "cairn/v1/plan.pb.h"
#include "common/format/safetensors_header.h"
#include "common/format/wire.h"
#include "planner/save/bins.h"
#include "planner/save/header_lengths.h"

namespace cairn {

// Distributes the items of ranks over files.
class SavePlan::Impl::FileMaker {
 public:
  explicit FileMaker(Impl& plan)
      : plan_(plan),
        set_(*plan.set),
        lengths_(set_),
        taken_(set_.repeats_shards() ? set_.shard_count() : 0, -1),
        tensor_stamp_(set_.tensors().size(), 0) {}

  // Adds the items and files of the rank of this index.
  void Make(int r) {
    FindItems(r);
    AddFiles(r);
  }

 private:
  void FindItems(int r);
  // Adds a file for each bin that has items, and further files for shards of a tensor that the bin's file has already.
  void AddFiles(int r);

  // Returns false if the rank has taken the shard already: a layout may have a shard twice.
  bool Take(int r, uint32_t shard) { return taken_.empty() || std::exchange(taken_[shard], r) != r; }

  Impl& plan_;
  const LayoutSet& set_;
  const HeaderLengths lengths_;
  std::vector<int> taken_;    // by shard: the last rank that took it; empty if no layout has a shard twice
  std::vector<ItemRef> own_;  // the items of the rank
  std::vector<BinItem> sizes_;
  // If tensor_stamp_[t] == stamp_, the file being filled has a box of tensor t.
  std::vector<uint32_t> tensor_stamp_;
  uint32_t stamp_ = 0;
};

void SavePlan::Impl::FileMaker::FindItems(int r) {
  own_.clear();
  sizes_.clear();
  const auto rank = static_cast<size_t>(r);
  const LayoutSet::Layout& layout = plan_.LayoutOf(r);
  const std::span<const uint32_t> shards = set_.ItemsOf(layout);
  auto out = plan_.MovedOutOf(rank).begin();
  const auto last_out = plan_.MovedOutOf(rank).end();
  for (uint32_t i = 0; i < shards.size(); ++i) {
    const uint32_t shard = shards[i];
    if (shard >= LayoutSet::kInvalidShard || plan_.writers.shard_writer[shard] != r || !Take(r, shard)) continue;
    if (out != last_out && out->item == i) {
      ++out;
      continue;
    }
    own_.push_back({i, shard});
    sizes_.push_back({set_.BytesOf(shard), false});
  }
  for (uint32_t i = 0; i < layout.objects.size(); ++i) {
    const LayoutSet::ObjectItem& object = layout.objects[i];
    if (!set_.objects()[object.object].per_rank && plan_.writers.object_writer[object.object] != r) continue;
    own_.push_back({layout.shards + i, kObjectBit});
    sizes_.push_back({object.slot_bytes, true});
  }
  uint32_t number = layout.shards + static_cast<uint32_t>(layout.objects.size());
  for (const uint32_t move : plan_.MovedInOf(rank)) {
    const uint32_t shard = plan_.writers.moves[move].shard;
    own_.push_back({number++, shard});
    sizes_.push_back({set_.BytesOf(shard), false});
  }
}

void SavePlan::Impl::FileMaker::AddFiles(int r) {
  const auto kept = std::make_shared<std::vector<ItemRef>>();
  kept->reserve(own_.size());  // so that the items stay where the files' spans point to
  const Bins split = SplitIntoBins(sizes_, plan_.options.bins_per_rank);
  for (uint32_t bin = 0; bin < split.items.size(); ++bin) {
    std::vector<uint32_t> left = split.items[bin];
    for (uint32_t part = 0; !left.empty(); ++part) {
      PlanFile file{r, bin, part, {}, 0, 0};
      HeaderSizer sizer;
      // The rank's first file says what the rank declared besides its items.
      if (plan_.files.size() == plan_.first_file.back()) {
        for (const auto& [name, target] : plan_.LayoutOf(r).aliases) sizer.AddAlias(name, target);
      }
      const size_t first = kept->size();
      std::vector<uint32_t> rest;
      ++stamp_;
      for (uint32_t i : left) {
        const ItemRef& ref = own_[i];
        if (!(ref.index & kObjectBit) && !set_.IsFlat(ref.index)) {
          uint32_t& stamp = tensor_stamp_[set_.TensorOf(ref.index)];
          if (stamp == stamp_) {
            rest.push_back(i);
            continue;
          }
          stamp = stamp_;
        }
        kept->push_back(ref);
        file.data_bytes += sizes_[i].bytes;
        if (ref.index & kObjectBit) {
          sizer.Add(plan_.ItemOf(ref, r));
        } else {
          sizer.AddMeasured(lengths_.Of(ref.index), sizes_[i].bytes);
        }
      }
      file.items = std::span(*kept).subspan(first);
      file.header_bytes = sizer.PaddedBytes();
      plan_.files.push_back(file);
      left = std::move(rest);
    }
  }
  plan_.items.push_back(kept);
}

SavePlan::Impl::Impl(std::shared_ptr<const LayoutSet> layouts, const SaveOptions& save_options, std::string plan_digest,
                     const Impl* before)
    : set(std::move(layouts)), options(save_options), digest(std::move(plan_digest)) {
  const bool same_holders = before != nullptr && set->SharesHolders(*before->set);
  writers = ChooseWriters(*set, options, same_holders ? &before->writers : nullptr);
  PlaceMoves();
  const size_t ranks = set->ranks().size();
  const std::vector<bool> changed = before == nullptr ? std::vector<bool>(ranks, true) : ChangedSince(*before);
  FileMaker maker(*this);
  first_file.push_back(0);
  for (size_t r = 0; r < ranks; ++r) {
    if (changed[r]) {
      maker.Make(static_cast<int>(r));
    } else {
      const std::span<const PlanFile> known = before->FilesOf(r);
      files.insert(files.end(), known.begin(), known.end());
      items.push_back(before->items[r]);
      ++reused_ranks;
    }
    first_file.push_back(files.size());
  }
}

void SavePlan::Impl::PlaceMoves() {
  const std::vector<Writers::Move>& moves = writers.moves;
  first_moved_in_.assign(set->ranks().size() + 1, 0);
  for (const Writers::Move& move : moves) ++first_moved_in_[static_cast<size_t>(move.to) + 1];
  std::partial_sum(first_moved_in_.begin(), first_moved_in_.end(), first_moved_in_.begin());
  moved_in_.resize(moves.size());
  std::vector<size_t> next(first_moved_in_.begin(), first_moved_in_.end() - 1);
  for (uint32_t i = 0; i < moves.size(); ++i) moved_in_[next[static_cast<size_t>(moves[i].to)]++] = i;
  constexpr uint32_t kNotYet = UINT32_MAX;
  from_shard.assign(moves.size(), kNotYet);
  for (size_t begin = 0; begin < moves.size();) {
    const int from = moves[begin].from;
    size_t end = begin;
    while (end < moves.size() && moves[end].from == from) ++end;
    const std::span<const uint32_t> shards = set->ItemsOf(LayoutOf(from));
    for (uint32_t i = 0; i < shards.size(); ++i) {
      const auto last = moves.begin() + static_cast<std::ptrdiff_t>(end);
      const auto move = std::lower_bound(moves.begin() + static_cast<std::ptrdiff_t>(begin), last, shards[i],
                                         [](const Writers::Move& m, uint32_t shard) { return m.shard < shard; });
      if (move == last || move->shard != shards[i]) continue;
      const auto number = static_cast<uint32_t>(move - moves.begin());
      if (from_shard[number] != kNotYet) continue;
      from_shard[number] = i;
      moved_out_.push_back({static_cast<uint32_t>(from), i, number});
    }
    begin = end;
  }
}

std::vector<bool> SavePlan::Impl::ChangedSince(const Impl& before) const {
  const size_t ranks = set->ranks().size();
  std::vector<bool> changed(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    changed[r] =
        set->layout_digests()[set->rank_layouts()[r]] != before.set->layout_digests()[before.set->rank_layouts()[r]];
  }
  const auto change = [&](int rank) {
    if (rank >= 0) changed[static_cast<size_t>(rank)] = true;
  };
  const auto compare = [&](int writer, int writer_before) {
    if (writer == writer_before) return;
    change(writer);
    change(writer_before);
  };
  for (size_t shard = 0; shard < writers.shard_writer.size(); ++shard) {
    compare(writers.shard_writer[shard], before.writers.shard_writer[shard]);
  }
  // An object that only one of the sets has is in changed layouts alone.
  absl::flat_hash_map<std::string_view, size_t> known;
  for (size_t i = 0; i < before.set->objects().size(); ++i) known.emplace(before.set->objects()[i].name, i);
  for (size_t i = 0; i < set->objects().size(); ++i) {
    const auto found = known.find(set->objects()[i].name);
    if (found != known.end()) compare(writers.object_writer[i], before.writers.object_writer[found->second]);
  }
  const auto key = [](const Writers::Move& move) { return std::tuple(move.from, move.shard, move.to); };
  const auto less = [&](const Writers::Move& a, const Writers::Move& b) { return key(a) < key(b); };
  std::vector<Writers::Move> differ;
  std::set_symmetric_difference(writers.moves.begin(), writers.moves.end(), before.writers.moves.begin(),
                                before.writers.moves.end(), std::back_inserter(differ), less);
  for (const Writers::Move& move : differ) {
    change(move.from);
    change(move.to);
  }
  return changed;
}

std::string SavePlan::Impl::Part(size_t r) const {
  std::string out;
  WireWriter writer(out);
  writer.String(v1::WritePlan::kPlanDigestFieldNumber, digest);
  writer.String(v1::WritePlan::kLayoutDigestFieldNumber, set->layout_digests()[set->rank_layouts()[r]]);
  writer.Number(v1::WritePlan::kRankFieldNumber, static_cast<uint64_t>(set->ranks()[r]));
  std::string nested;
  std::vector<uint32_t> numbers;
  for (const PlanFile& file : FilesOf(r)) {
    nested.clear();
    WireWriter inner(nested);
    inner.String(v1::PlannedFile::kNameFieldNumber, NameOf(file));
    inner.Number(v1::PlannedFile::kHeaderBytesFieldNumber, file.header_bytes);
    inner.Number(v1::PlannedFile::kDataBytesFieldNumber, file.data_bytes);
    numbers.clear();
    for (const ItemRef& item : file.items) numbers.push_back(item.number);
    inner.Packed(v1::PlannedFile::kItemsFieldNumber, numbers);
    writer.Bytes(v1::WritePlan::kFilesFieldNumber, nested);
  }
  for (const uint32_t number : MovedInOf(r)) {
    const Writers::Move& move = writers.moves[number];
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
    inner.Number(v1::MovedShard::kFromShardFieldNumber, from_shard[number]);
    writer.Bytes(v1::WritePlan::kIncomingShardsFieldNumber, nested);
  }
  for (const MovedOut& moved : MovedOutOf(r)) {
    nested.clear();
    WireWriter inner(nested);
    inner.Number(v1::MovedOut::kShardFieldNumber, moved.item);
    inner.Number(v1::MovedOut::kToRankFieldNumber,
                 static_cast<uint64_t>(set->ranks()[static_cast<size_t>(writers.moves[moved.move].to)]));
    writer.Bytes(v1::WritePlan::kOutgoingShardsFieldNumber, nested);
  }
  writer.Number(v1::WritePlan::kWorldSizeFieldNumber, set->ranks().size());
  writer.Number(v1::WritePlan::kTotalFilesFieldNumber, files.size());
  return out;
}

}  // namespace cairn
