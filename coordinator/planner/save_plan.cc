#include "coordinator/planner/save_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/format/safetensors_header.h"
#include "coordinator/planner/bins.h"
#include "coordinator/planner/header_lengths.h"
#include "coordinator/planner/layout_set.h"
#include "coordinator/planner/validation.h"
#include "coordinator/planner/wire.h"
#include "coordinator/planner/writers.h"

namespace cairn {
namespace {

// What one item of a file is.
struct ItemRef {
  uint32_t number;  // in the rank's own counting: shards, objects, moved-in shards
  uint32_t index;   // shard number, or number of the object
};

struct File {
  int rank_index;
  uint32_t bin;
  uint32_t part;  // 0, or a further file of the bin
  size_t first_item;
  uint32_t items;
  uint64_t header_bytes;
  uint64_t data_bytes;
};

constexpr uint32_t kObjectBit = 1u << 31;  // of ItemRef::index

}  // namespace

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
    std::vector<uint32_t> taken(set->shard_count(), 0);  // rank index + 1 of the last that took it
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

  // A file for each bin that has items; further files for shards of a tensor that the bin's file has already.
  void AddFiles(int r, const std::vector<ItemRef>& own, const std::vector<BinItem>& sizes, int bins) {
    const Bins split = SplitIntoBins(sizes, bins);
    for (uint32_t bin = 0; bin < split.items.size(); ++bin) {
      std::vector<uint32_t> left = split.items[bin];
      for (uint32_t part = 0; !left.empty(); ++part) {
        File file{r, bin, part, items.size(), 0, 0, 0};
        HeaderSizer sizer;
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

  std::string NameOf(const File& file) const {
    std::string name =
        absl::StrFormat("rank%05d-bin%02d", set->ranks()[static_cast<size_t>(file.rank_index)], file.bin);
    if (file.part > 0) absl::StrAppend(&name, "-part", file.part + 1);
    return name;
  }

  std::optional<size_t> IndexOf(int rank) const {
    const auto found = std::lower_bound(set->ranks().begin(), set->ranks().end(), rank);
    if (found == set->ranks().end() || *found != rank) return std::nullopt;
    return static_cast<size_t>(found - set->ranks().begin());
  }

  std::string Part(size_t r, std::string_view with_digest) const {
    std::string out;
    WireWriter writer(out);
    writer.String(1, with_digest);
    writer.String(2, set->layout_digests()[set->rank_layouts()[r]]);
    writer.Number(3, static_cast<uint64_t>(set->ranks()[r]));
    std::string nested;
    std::vector<uint32_t> numbers;
    for (size_t f = first_file[r]; f < first_file[r + 1]; ++f) {
      const File& file = files[f];
      nested.clear();
      WireWriter inner(nested);
      inner.String(1, NameOf(file));
      inner.Number(2, file.header_bytes);
      inner.Number(3, file.data_bytes);
      numbers.clear();
      for (size_t i = 0; i < file.items; ++i) numbers.push_back(items[file.first_item + i].number);
      inner.Packed(4, numbers);
      writer.Bytes(4, nested);
    }
    for (size_t k = r == 0 ? 0 : first_moved_in[r - 1]; k < first_moved_in[r]; ++k) {
      const Writers::Move& move = moves[moved_in_shards[k]];
      const LayoutSet::Tensor& tensor = set->tensors()[set->TensorOf(move.shard)];
      nested.clear();
      WireWriter inner(nested);
      inner.Number(1, static_cast<uint64_t>(set->ranks()[static_cast<size_t>(move.from)]));
      inner.String(2, tensor.name);
      inner.Number(3, static_cast<uint64_t>(tensor.dtype));
      inner.Packed(4, tensor.global_shape);
      const Box box = set->BoxOf(move.shard);
      inner.Packed(5, box.offset);
      inner.Packed(6, box.shape);
      if (const auto range = set->FlatRangeOf(move.shard)) {
        inner.Number(7, 1);
        inner.Number(8, static_cast<uint64_t>(range->begin));
        inner.Number(9, static_cast<uint64_t>(range->end));
      }
      inner.Number(10, from_shard[moved_in_shards[k]]);
      writer.Bytes(5, nested);
    }
    const auto of_rank = [](const MovedOut& out_item, size_t rank) { return out_item.rank_index < rank; };
    for (auto it = std::lower_bound(moved_out.begin(), moved_out.end(), r, of_rank);
         it != moved_out.end() && it->rank_index == r; ++it) {
      nested.clear();
      WireWriter inner(nested);
      inner.Number(1, it->item);
      inner.Number(2, static_cast<uint64_t>(set->ranks()[static_cast<size_t>(moves[it->move].to)]));
      writer.Bytes(6, nested);
    }
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
  std::vector<File> files;
  std::vector<size_t> first_file;  // by rank index, and the end
  std::vector<ItemRef> items;      // of the files, in their order
  std::vector<Writers::Move> moves;
  std::vector<uint32_t> from_shard;       // by move: its number in the layout of the rank that holds it
  std::vector<uint32_t> moved_in_shards;  // indices into moves, by receiving rank
  std::vector<size_t> first_moved_in;     // by rank index: the end of its moved_in_shards
  std::vector<MovedOut> moved_out;        // by rank index

 private:
  // tensor_stamp_[t] == stamp_: the file being filled has a box of tensor t.
  std::vector<uint32_t> tensor_stamp_ = std::vector<uint32_t>(set->tensors().size(), 0);
  uint32_t stamp_ = 0;
  const HeaderLengths lengths_ = HeaderLengths(*set);
};

const std::string& SavePlan::digest() const { return impl_->digest; }
const std::vector<int>& SavePlan::ranks() const { return impl_->set->ranks(); }

uint64_t SavePlan::total_bytes() const {
  uint64_t bytes = 0;
  for (const File& file : impl_->files) bytes += file.header_bytes + file.data_bytes;
  return bytes;
}

uint64_t SavePlan::unique_bytes() const {
  uint64_t bytes = 0;
  for (const File& file : impl_->files) bytes += file.data_bytes;
  return bytes;
}

std::vector<uint64_t> SavePlan::rank_bytes() const { return impl_->load; }

uint64_t SavePlan::SoleBytes(int rank) const {
  const auto r = impl_->IndexOf(rank);
  uint64_t bytes = 0;
  for (size_t f = r ? impl_->first_file[*r] : 0; r && f < impl_->first_file[*r + 1]; ++f) {
    const File& file = impl_->files[f];
    for (size_t i = 0; i < file.items; ++i) {
      const ItemRef& ref = impl_->items[file.first_item + i];
      bool sole = (ref.index & kObjectBit) && impl_->set->objects()[ref.index & ~kObjectBit].per_rank;
      if (!(ref.index & kObjectBit)) {
        const auto holders = impl_->set->HoldersOf(ref.index);
        sole =
            holders.size() == 1 && impl_->set->layouts()[holders[0]].rank_indices == std::vector<int>{file.rank_index};
      }
      if (sole) bytes += impl_->BytesOf(ref, file.rank_index);
    }
  }
  return bytes;
}

std::vector<std::string> SavePlan::names() const {
  std::vector<std::string> names;
  for (const LayoutSet::Tensor& tensor : impl_->set->tensors()) names.push_back(tensor.name);
  for (const LayoutSet::Object& object : impl_->set->objects()) names.push_back(object.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string SavePlan::PartFor(int rank) const {
  const auto r = impl_->IndexOf(rank);
  return r ? impl_->Part(*r, impl_->digest) : std::string();
}

std::string SavePlan::PartDigest(int rank) const {
  const auto r = impl_->IndexOf(rank);
  return r ? Digest(impl_->Part(*r, "")) : std::string();
}

std::vector<PlannedFileView> SavePlan::Files() const {
  std::vector<PlannedFileView> views;
  for (const File& file : impl_->files) {
    PlannedFileView& view = views.emplace_back();
    view.rank = ranks()[static_cast<size_t>(file.rank_index)];
    view.bin = static_cast<int>(file.bin);
    view.name = impl_->NameOf(file);
    view.header_bytes = file.header_bytes;
    view.data_bytes = file.data_bytes;
    uint64_t offset = file.header_bytes;
    for (size_t i = 0; i < file.items; ++i) {
      const ItemRef& ref = impl_->items[file.first_item + i];
      view.items.push_back({impl_->ItemOf(ref, file.rank_index), offset});
      offset += impl_->BytesOf(ref, file.rank_index);
    }
  }
  return views;
}

std::vector<PlannedMove> SavePlan::Moves() const {
  std::vector<PlannedMove> moves;
  for (const Writers::Move& move : impl_->moves) {
    moves.push_back({ranks()[static_cast<size_t>(move.from)], ranks()[static_cast<size_t>(move.to)],
                     impl_->set->ItemOf(move.shard)});
  }
  return moves;
}

std::vector<std::pair<int, int>> SavePlan::MovePairs() const {
  std::vector<std::pair<int, int>> pairs;
  for (const Writers::Move& move : impl_->moves) {
    pairs.emplace_back(ranks()[static_cast<size_t>(move.from)], ranks()[static_cast<size_t>(move.to)]);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

void SavePlan::CompareReplicas(std::span<const RankResult> results, std::span<const HolderChecksums> holders,
                               FaultList& faults) const {
  const LayoutSet& set = *impl_->set;
  struct Written {
    bool known = false;
    uint32_t crc32c = 0;
    int rank = 0;
  };
  std::vector<Written> shards(set.shard_count()), objects(set.objects().size());
  for (const RankResult& result : results) {
    const auto r = impl_->IndexOf(result.rank);
    if (!r) continue;
    for (size_t f = impl_->first_file[*r]; f < impl_->first_file[*r + 1]; ++f) {
      const auto k = static_cast<int>(f - impl_->first_file[*r]);
      if (k >= result.result.file_size()) break;
      const File& file = impl_->files[f];
      for (size_t i = 0; i < file.items && static_cast<int>(i) < result.result.file(k).item_crc32c_size(); ++i) {
        const ItemRef& ref = impl_->items[file.first_item + i];
        Written& written = ref.index & kObjectBit ? objects[ref.index & ~kObjectBit] : shards[ref.index];
        written = {true, result.result.file(k).item_crc32c(static_cast<int>(i)), result.rank};
      }
    }
  }
  std::map<uint32_t, std::vector<int>> differing;  // by ItemRef::index
  for (const HolderChecksums& holder : holders) {
    const auto r = impl_->IndexOf(holder.rank);
    if (!r) continue;
    const LayoutSet::Layout& layout = set.layouts()[set.rank_layouts()[*r]];
    for (const cairn::v1::ReplicaChecksum& checksum : holder.checksums) {
      uint32_t index;
      if (checksum.item() < layout.shards) {
        index = set.ItemsOf(layout)[checksum.item()];
        if (index >= LayoutSet::kInvalidShard) continue;
      } else if (checksum.item() - layout.shards < layout.objects.size()) {
        const uint32_t object = layout.objects[checksum.item() - layout.shards].object;
        if (set.objects()[object].per_rank) continue;
        index = object | kObjectBit;
      } else {
        continue;
      }
      const Written& written = index & kObjectBit ? objects[index & ~kObjectBit] : shards[index];
      if (written.known && written.crc32c != checksum.crc32c() && written.rank != holder.rank) {
        differing[index].push_back(holder.rank);
      }
    }
  }
  for (auto& [index, ranks] : differing) {
    std::sort(ranks.begin(), ranks.end());
    const bool object = index & kObjectBit;
    const int writer = object ? objects[index & ~kObjectBit].rank : shards[index].rank;
    Fault fault;
    fault.reason = object ? Reason::kObjectMismatch : Reason::kReplicaMismatch;
    fault.ranks = ranks;
    fault.ranks.insert(std::lower_bound(fault.ranks.begin(), fault.ranks.end(), writer), writer);
    if (object) {
      fault.name = set.objects()[index & ~kObjectBit].name;
      fault.message = absl::StrCat("object ", fault.name, " is declared the same on all ranks, but the bytes of ranks ",
                                   JoinRanks(ranks), " differ from those of rank ", writer);
    } else {
      const Box box = set.BoxOf(index);
      fault.name = set.tensors()[set.TensorOf(index)].name;
      fault.offset.assign(box.offset.begin(), box.offset.end());
      fault.shape.assign(box.shape.begin(), box.shape.end());
      fault.message = absl::StrCat("tensor ", set.Describe(index), " is declared as one shard, but the bytes of ranks ",
                                   JoinRanks(ranks), " differ from those of rank ", writer);
    }
    faults.Add(std::move(fault));
  }
}

absl::StatusOr<Manifest> SavePlan::MakeManifest(std::span<const RankResult> results, const CommitInfo& commit) const {
  const LayoutSet& set = *impl_->set;
  std::vector<const cairn::v1::WriteResult*> by_rank(ranks().size());
  for (const RankResult& result : results) {
    if (const auto r = impl_->IndexOf(result.rank)) by_rank[*r] = &result.result;
  }
  Manifest manifest;
  manifest.job = commit.job;
  manifest.step = commit.step;
  manifest.attempt = commit.attempt;
  manifest.request_id = commit.request_id;
  manifest.world_size = commit.world_size;
  manifest.commit_time = commit.commit_time;
  manifest.writer = commit.writer;
  manifest.plan_digest = digest();
  manifest.layout_digests = set.layout_digests();
  manifest.rank_layout = set.rank_layouts();
  manifest.nodes = set.nodes();
  manifest.rank_node = set.rank_nodes();

  struct Place {
    uint32_t file = 0, item = 0, crc32c = 0;
  };
  std::vector<Place> places(set.shard_count());
  for (uint32_t f = 0; f < impl_->files.size(); ++f) {
    const File& file = impl_->files[f];
    const auto r = static_cast<size_t>(file.rank_index);
    const auto k = static_cast<int>(f - impl_->first_file[r]);
    const auto bad = [&](std::string_view what) {
      return MakeError(
          Reason::kBadRequest,
          absl::StrCat("the result of rank ", ranks()[r], " ", absl::string_view(what.data(), what.size())),
          {{"rank", absl::StrCat(ranks()[r])}});
    };
    if (by_rank[r] == nullptr) return bad("is missing");
    if (by_rank[r]->file_size() != static_cast<int>(impl_->first_file[r + 1] - impl_->first_file[r])) {
      return bad("has another number of files than its plan");
    }
    const cairn::v1::FileResult& result = by_rank[r]->file(k);
    if (result.item_crc32c_size() != static_cast<int>(file.items)) {
      return bad("has another number of items than its plan");
    }
    if (result.file_bytes() != file.header_bytes + file.data_bytes) {
      return bad(absl::StrCat("has ", result.file_bytes(), " bytes in ", impl_->NameOf(file), ", the plan has ",
                              file.header_bytes + file.data_bytes));
    }
    manifest.files.push_back(
        {impl_->NameOf(file), ranks()[r], file.header_bytes, file.data_bytes, result.header_crc32c()});
    int object = 0;
    for (uint32_t i = 0; i < file.items; ++i) {
      const ItemRef& ref = impl_->items[file.first_item + i];
      const uint32_t crc32c = result.item_crc32c(static_cast<int>(i));
      if (!(ref.index & kObjectBit)) {
        places[ref.index] = {f, i, crc32c};
        continue;
      }
      const LayoutSet::Object& declared = set.objects()[ref.index & ~kObjectBit];
      if (object >= result.object_bytes_size() || result.object_bytes(object) > impl_->SlotOf(ref, file.rank_index)) {
        return bad(absl::StrCat("has no length of object ", declared.name, ", or one above its slot"));
      }
      ManifestObject entry;
      entry.name = declared.name;
      if (declared.per_rank) entry.rank = ranks()[r];
      entry.file = f;
      entry.item = i;
      entry.slot_bytes = impl_->SlotOf(ref, file.rank_index);
      entry.bytes = result.object_bytes(object++);
      entry.crc32c = crc32c;
      manifest.objects.push_back(std::move(entry));
    }
  }
  std::sort(manifest.objects.begin(), manifest.objects.end(), [](const ManifestObject& a, const ManifestObject& b) {
    return std::tie(a.name, a.rank) < std::tie(b.name, b.rank);
  });
  manifest.shards.reserve(set.shard_count());
  for (uint32_t tensor : set.TensorsByName()) {
    const LayoutSet::Tensor& declared = set.tensors()[tensor];
    const auto shards = set.ShardsOf(tensor);
    manifest.tensors.push_back({declared.name, declared.dtype, declared.global_shape,
                                static_cast<uint32_t>(manifest.shards.size()), static_cast<uint32_t>(shards.size())});
    const size_t ndim = declared.global_shape.size();
    for (uint32_t shard : shards) {
      const bool flat = set.IsFlat(shard);
      ManifestShard entry;
      entry.tensor = static_cast<uint32_t>(manifest.tensors.size() - 1);
      entry.file = places[shard].file;
      entry.item = places[shard].item;
      entry.crc32c = places[shard].crc32c;
      entry.dims = static_cast<uint32_t>(manifest.dims.size());
      entry.flat = flat;
      manifest.dims.insert(manifest.dims.end(), set.DimsOf(shard), set.DimsOf(shard) + 2 * ndim + (flat ? 2 : 0));
      manifest.shards.push_back(entry);
    }
  }
  for (const LayoutSet::Alias& alias : set.aliases()) {
    manifest.aliases.emplace_back(alias.name, set.tensors()[alias.tensor].name);
  }
  if (absl::Status status = manifest.PlaceItems(); !status.ok()) return status;
  return manifest;
}

std::string SavePlanDigest(std::span<const RankInput> ranks, const SaveOptions& options) {
  std::vector<const RankInput*> sorted;
  for (const RankInput& input : ranks) sorted.push_back(&input);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  std::vector<int> slow = options.slow_ranks;
  std::sort(slow.begin(), slow.end());
  Digester digester;
  digester.Add("cairn save plan 1").Add(uint64_t{ranks.size()});
  for (const RankInput* input : sorted) {
    digester.Add(static_cast<uint64_t>(input->rank)).Add(input->node).Add(input->layout_digest);
  }
  digester.Add(static_cast<uint64_t>(options.bins_per_rank)).Add(static_cast<uint64_t>(options.moves));
  digester.Add(absl::StrFormat("%.17g", options.move_threshold)).Add(uint64_t{slow.size()});
  for (int rank : slow) digester.Add(static_cast<uint64_t>(rank));
  return digester.Finish();
}

absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options, FaultList& faults) {
  if (options.bins_per_rank < 1 || options.bins_per_rank > 99) {
    faults.Add({Reason::kBadRequest,
                "",
                {},
                {},
                {},
                absl::StrCat("bins per rank must be 1 to 99, not ", options.bins_per_rank)});
    return faults.ToStatus();
  }
  auto set = std::make_shared<LayoutSet>(ranks, faults);
  ValidateTiling(*set, faults);
  if (!faults.empty()) return faults.ToStatus();
  return SavePlan(std::make_shared<const SavePlan::Impl>(std::move(set), options, SavePlanDigest(ranks, options)));
}

absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options) {
  FaultList faults(options.max_faults);
  return MakeSavePlan(ranks, options, faults);
}

absl::StatusOr<SavePlan> SavePlanCache::Get(std::span<const RankInput> ranks, const SaveOptions& options) {
  const std::string digest = SavePlanDigest(ranks, options);
  const auto found =
      std::find_if(plans_.begin(), plans_.end(), [&](const SavePlan& p) { return p.digest() == digest; });
  if (found != plans_.end()) {
    std::rotate(found, found + 1, plans_.end());
    return plans_.back();
  }
  ++planned_;
  auto plan = MakeSavePlan(ranks, options);
  if (!plan.ok()) return plan;
  if (plans_.size() >= capacity_ && !plans_.empty()) plans_.erase(plans_.begin());
  plans_.push_back(*plan);
  return plan;
}

}  // namespace cairn
