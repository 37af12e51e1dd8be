// What agents report after writing, against the plan: equal replicas, and the manifest.
#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/save/save_plan.h"
#include "planner/save/save_plan_impl.h"

namespace cairn {
namespace {

// Who differs from most of those that were compared, the writer included: with three or more of them it is likelier
// that a few went astray than that many went astray alike. `differing`: by what they hold, those that differ from the
// writer.
std::string OddOnesOut(int writer, size_t agreeing, const std::vector<int>& ranks,
                       const std::map<std::pair<uint32_t, uint64_t>, std::vector<int>>& differing) {
  const size_t all = 1 + agreeing + ranks.size();
  if (all < 3) return "";
  if (2 * (1 + agreeing) > all) {
    return absl::StrCat("; ", 1 + agreeing, " of ", all, " ranks agree, without ",
                        ranks.size() == 1 ? "rank " : "ranks ", JoinRanks(ranks));
  }
  for (const auto& [content, most] : differing) {
    if (2 * most.size() <= all) continue;
    return absl::StrCat("; ", most.size(), " of ", all, " ranks agree, and what rank ", writer,
                        " wrote is not what they hold");
  }
  return absl::StrCat("; no more than half of the ", all, " ranks agree");
}

}  // namespace

void SavePlan::CompareReplicas(std::span<const RankResult> results, std::span<const HolderChecksums> holders,
                               FaultList& objects, FaultList& tensors) const {
  const LayoutSet& set = *impl_->set;
  struct Content {
    bool known = false;
    uint32_t crc32c = 0;
    uint64_t object_bytes = 0;
    int rank = 0;
    size_t agreeing = 0;  // others that hold the same
  };
  std::vector<Content> shards_written(set.shard_count()), objects_written(set.objects().size());
  const auto written = [&](uint32_t index) -> Content& {
    return index & kObjectBit ? objects_written[index & ~kObjectBit] : shards_written[index];
  };
  for (const RankResult& result : results) {
    const auto r = impl_->IndexOf(result.rank);
    if (!r) continue;
    for (size_t f = impl_->first_file[*r]; f < impl_->first_file[*r + 1]; ++f) {
      const auto k = static_cast<int>(f - impl_->first_file[*r]);
      if (k >= result.result.file_size()) break;
      const PlanFile& file = impl_->files[f];
      const cairn::v1::FileResult& reported = result.result.file(k);
      int object = 0;
      for (size_t i = 0; i < file.items && static_cast<int>(i) < reported.item_crc32c_size(); ++i) {
        const ItemRef& ref = impl_->items[file.first_item + i];
        uint64_t bytes = 0;
        if (ref.index & kObjectBit) {
          if (object < reported.object_bytes_size()) bytes = reported.object_bytes(object);
          ++object;
        }
        written(ref.index) = {true, reported.item_crc32c(static_cast<int>(i)), bytes, result.rank, 0};
      }
    }
  }
  std::map<uint32_t, std::vector<int>> differing, missing;  // by ItemRef::index: ranks
  std::map<uint32_t, std::map<std::pair<uint32_t, uint64_t>, std::vector<int>>>
      contents;                                       // ranks that differ, by what they hold
  std::map<int, std::vector<bool>> reported_objects;  // by rank: those of its layout
  for (const HolderChecksums& holder : holders) {
    const auto r = impl_->IndexOf(holder.rank);
    if (!r) continue;
    const LayoutSet::Layout& layout = set.layouts()[set.rank_layouts()[*r]];
    std::vector<bool>& reported = reported_objects[holder.rank];
    reported.resize(layout.objects.size());
    for (const cairn::v1::ReplicaChecksum& checksum : holder.checksums) {
      uint32_t index;
      if (checksum.item() < layout.shards) {
        index = set.ItemsOf(layout)[checksum.item()];
        if (index >= LayoutSet::kInvalidShard) continue;
      } else if (const size_t number = checksum.item() - layout.shards; number < layout.objects.size()) {
        reported[number] = true;
        const uint32_t object = layout.objects[number].object;
        if (set.objects()[object].per_rank) continue;
        index = object | kObjectBit;
      } else {
        continue;
      }
      Content& there = written(index);
      const bool differs =
          there.crc32c != checksum.crc32c() || (index & kObjectBit && there.object_bytes != checksum.object_bytes());
      if (!there.known || there.rank == holder.rank) continue;
      if (!differs) {
        ++there.agreeing;
        continue;
      }
      differing[index].push_back(holder.rank);
      contents[index][{checksum.crc32c(), checksum.object_bytes()}].push_back(holder.rank);
    }
  }
  for (size_t r = 0; r < ranks().size(); ++r) {
    const LayoutSet::Layout& layout = set.layouts()[set.rank_layouts()[r]];
    const auto reported = reported_objects.find(ranks()[r]);
    for (size_t number = 0; number < layout.objects.size(); ++number) {
      const uint32_t object = layout.objects[number].object;
      const Content& there = objects_written[object];
      if (set.objects()[object].per_rank || !there.known || there.rank == ranks()[r]) continue;
      if (reported != reported_objects.end() && reported->second[number]) continue;
      missing[object].push_back(ranks()[r]);
    }
  }
  for (auto& [object, holding] : missing) {
    std::sort(holding.begin(), holding.end());
    const std::string& name = set.objects()[object].name;
    objects.Add({Reason::kBadRequest,
                 name,
                 holding,
                 {},
                 {},
                 absl::StrCat("object ", name, " is declared the same on all ranks, but ranks ", JoinRanks(holding),
                              " gave no checksum of theirs")});
  }
  for (auto& [index, ranks] : differing) {
    std::sort(ranks.begin(), ranks.end());
    const bool object = index & kObjectBit;
    const int writer = written(index).rank;
    const std::string odd = OddOnesOut(writer, written(index).agreeing, ranks, contents[index]);
    Fault fault;
    fault.reason = object ? Reason::kObjectMismatch : Reason::kReplicaMismatch;
    fault.ranks = ranks;
    fault.ranks.insert(std::lower_bound(fault.ranks.begin(), fault.ranks.end(), writer), writer);
    if (object) {
      fault.name = set.objects()[index & ~kObjectBit].name;
      fault.message = absl::StrCat("object ", fault.name, " is declared the same on all ranks, but the bytes of ranks ",
                                   JoinRanks(ranks), " differ from those of rank ", writer, odd);
    } else {
      const Box box = set.BoxOf(index);
      fault.name = set.tensors()[set.TensorOf(index)].name;
      fault.offset.assign(box.offset.begin(), box.offset.end());
      fault.shape.assign(box.shape.begin(), box.shape.end());
      fault.message = absl::StrCat("tensor ", set.Describe(index), " is declared as one shard, but the bytes of ranks ",
                                   JoinRanks(ranks), " differ from those of rank ", writer, odd);
    }
    (object ? objects : tensors).Add(std::move(fault));
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
    const PlanFile& file = impl_->files[f];
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

}  // namespace cairn
