#include "store/repair/rebuild.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/version.h"
#include "common/format/checkpoint_path.h"
#include "common/status/fault.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "planner/layout/layout_description.h"
#include "planner/layout/layout_set.h"
#include "planner/layout/validation.h"

namespace cairn {
namespace {

struct Place {
  uint32_t file = 0;
  uint32_t item = 0;
};

// Orders shards as manifests do: by (offset, shape, flat range).
struct ShardKey {
  Shape offset;
  Shape shape;
  std::optional<std::pair<int64_t, int64_t>> flat;

  bool operator<(const ShardKey& other) const {
    return std::tie(offset, shape, flat) < std::tie(other.offset, other.shape, other.flat);
  }
};

ShardKey KeyOf(const StoredItem& item) {
  ShardKey key = {item.box.offset, item.box.shape, std::nullopt};
  if (item.flat) key.flat = {item.flat->begin, item.flat->end};
  return key;
}

class Rebuild {
 public:
  Rebuild(const BinHeaders& headers, const std::string& job, int64_t step, uint32_t attempt)
      : headers_(headers), job_(job), step_(step), attempt_(attempt) {}

  absl::StatusOr<RebuiltManifest> Run() {
    manifest_.job = job_;
    manifest_.step = step_;
    manifest_.attempt = attempt_;
    manifest_.commit_time = headers_.written;
    manifest_.writer = absl::StrCat("cairn ", std::string(kVersion), " (repaired)");
    CAIRN_RETURN_IF_ERROR(CheckIdentities());
    CAIRN_RETURN_IF_ERROR(Gather());
    CAIRN_RETURN_IF_ERROR(CheckTiling());
    CAIRN_RETURN_IF_ERROR(Fill());
    return RebuiltManifest{std::move(manifest_), Unknown()};
  }

 private:
  absl::Status Bad(const BinHeader& bin, const std::string& what) const {
    const std::string path = absl::StrCat(AttemptDirectory(job_, step_, attempt_), "/", bin.name, ".safetensors");
    return MakeError(Reason::kBadSafetensors, absl::StrCat(path, " ", what),
                     {{"job", job_}, {"step", absl::StrCat(step_)}, {"file", path}});
  }

  absl::Status CheckIdentities() {
    const std::optional<BinIdentity>& first = headers_.bins.front().header.identity;
    told_ = first.has_value();
    uint32_t ranks = 0;
    for (const BinHeader& bin : headers_.bins) {
      const std::optional<BinIdentity>& identity = bin.header.identity;
      ranks = std::max(ranks, static_cast<uint32_t>(bin.rank) + 1);
      if (identity.has_value() != told_) return Bad(bin, "differs from the other bins in whether it names its attempt");
      if (!told_) continue;
      if (identity->job != job_ || identity->step != step_ || identity->attempt != attempt_ ||
          identity->rank != bin.rank) {
        return Bad(bin, absl::StrCat("is that of ", identity->job, "@", identity->step, " attempt ", identity->attempt,
                                     ", rank ", identity->rank));
      }
      if (identity->world_size != first->world_size || identity->files != first->files ||
          static_cast<uint32_t>(identity->rank) >= identity->world_size) {
        return Bad(bin, absl::StrCat("says ", identity->files, " files of ", identity->world_size,
                                     " ranks, the first one ", first->files, " of ", first->world_size));
      }
    }
    manifest_.world_size = told_ ? first->world_size : ranks;
    if (!told_ || headers_.bins.size() == first->files) return absl::OkStatus();
    const std::string directory = AttemptDirectory(job_, step_, attempt_);
    return MakeError(
        headers_.bins.size() < first->files ? Reason::kFileMissing : Reason::kBadSafetensors,
        absl::StrCat(directory, " holds ", headers_.bins.size(), " files, its checkpoint has ", first->files),
        {{"job", job_}, {"step", absl::StrCat(step_)}, {"file", directory}});
  }

  absl::Status Gather() {
    for (uint32_t f = 0; f < headers_.bins.size(); ++f) {
      const BinHeader& bin = headers_.bins[f];
      const ParsedHeader& header = bin.header;
      manifest_.files.push_back({bin.name, bin.rank, header.header_bytes, header.data_bytes, bin.header_crc32c});
      for (uint32_t i = 0; i < header.items.size(); ++i) {
        const StoredItem& item = header.items[i].item;
        const bool added = item.object ? objects_[item.name].try_emplace(item.object_rank, Place{f, i}).second
                                       : shards_[item.name].try_emplace(KeyOf(item), Place{f, i}).second;
        if (!added) return Bad(bin, absl::StrCat("holds ", item.stored_name(), ", which another file holds too"));
        if (item.object_rank.has_value() && *item.object_rank != bin.rank) {
          return Bad(bin, absl::StrCat("holds ", item.stored_name(), ", which is another rank's"));
        }
      }
    }
    return absl::OkStatus();
  }

  // Checks the shards of all ranks by the planner's rules for the layouts of a save.
  absl::Status CheckTiling() {
    std::map<int, LayoutDescription> described;
    for (const BinHeader& bin : headers_.bins) {
      LayoutDescription& layout = described[bin.rank];
      std::map<std::string, size_t> tensors;  // index into layout.tensors
      for (size_t i = 0; i < layout.tensors.size(); ++i) tensors.emplace(layout.tensors[i].name, i);
      for (const ParsedItem& parsed : bin.header.items) {
        const StoredItem& item = parsed.item;
        if (item.object) {
          layout.objects.push_back({item.name, item.bytes(), item.object_rank.has_value()});
          continue;
        }
        const auto [found, added] = tensors.emplace(item.name, layout.tensors.size());
        if (added) layout.tensors.push_back({item.name, item.dtype, item.global_shape, {}});
        const TensorDescription& tensor = layout.tensors[found->second];
        if (tensor.dtype != item.dtype || tensor.global_shape != item.global_shape) {
          return Bad(bin, absl::StrCat("says another dtype or shape of ", item.name, " than another file"));
        }
        layout.tensors[found->second].shards.push_back({item.box, item.flat});
      }
      for (const auto& alias : bin.header.aliases) layout.aliases.push_back(alias);
    }
    std::vector<std::string> layouts, digests;
    std::vector<RankInput> inputs;
    for (auto& [rank, layout] : described) {
      Canonicalize(layout);
      layouts.push_back(SerializeLayout(layout));
      digests.push_back(Digest(layouts.back()));
    }
    size_t i = 0;
    for (const auto& [rank, layout] : described) {
      inputs.push_back({rank, "", layouts[i], digests[i]});
      ++i;
    }
    FaultList faults;
    const LayoutSet set(inputs, faults);
    ValidateTiling(set, faults);
    CAIRN_RETURN_IF_ERROR(faults.ToStatus());
    for (const LayoutSet::Alias& alias : set.aliases()) {
      manifest_.aliases.emplace_back(alias.name, set.tensors()[alias.tensor].name);
    }
    return absl::OkStatus();
  }

  absl::Status Fill() {
    const auto parsed = [&](const Place& place) -> const ParsedItem& {
      return headers_.bins[place.file].header.items[place.item];
    };
    for (const auto& [name, shards] : shards_) {
      const StoredItem& any = parsed(shards.begin()->second).item;
      manifest_.tensors.push_back({name, any.dtype, any.global_shape, static_cast<uint32_t>(manifest_.shards.size()),
                                   static_cast<uint32_t>(shards.size())});
      for (const auto& [key, place] : shards) {
        ManifestShard shard;
        shard.tensor = static_cast<uint32_t>(manifest_.tensors.size() - 1);
        shard.file = place.file;
        shard.item = place.item;
        shard.crc32c = parsed(place).checksums.crc32c;
        shard.dims = static_cast<uint32_t>(manifest_.dims.size());
        shard.flat = key.flat.has_value();
        manifest_.dims.insert(manifest_.dims.end(), key.offset.begin(), key.offset.end());
        manifest_.dims.insert(manifest_.dims.end(), key.shape.begin(), key.shape.end());
        if (key.flat) manifest_.dims.insert(manifest_.dims.end(), {key.flat->first, key.flat->second});
        manifest_.shards.push_back(shard);
      }
    }
    for (const auto& [name, ranks] : objects_) {
      for (const auto& [rank, place] : ranks) {
        ManifestObject object;
        object.name = name;
        object.rank = rank;
        object.file = place.file;
        object.item = place.item;
        object.slot_bytes = parsed(place).item.bytes();
        object.bytes = parsed(place).checksums.object_bytes;
        object.crc32c = parsed(place).checksums.crc32c;
        manifest_.objects.push_back(std::move(object));
      }
    }
    return manifest_.PlaceItems();
  }

  std::vector<std::string> Unknown() const {
    std::vector<std::string> unknown = {"the request's id, the machines, and the digests of plan and layouts",
                                        "the time of the commit (the time of the last file is used instead)", "metrics",
                                        "tensors without elements"};
    if (told_) {
      unknown.push_back("aliases that only ranks without files declared");
      return unknown;
    }
    unknown.push_back("aliases");
    unknown.push_back(absl::StrCat("the world's size: at least ", manifest_.world_size));
    unknown.push_back("whether a file is missing that held objects alone");
    return unknown;
  }

  const BinHeaders& headers_;
  const std::string& job_;
  const int64_t step_;
  const uint32_t attempt_;
  bool told_ = false;  // the bins name their attempt
  Manifest manifest_;
  std::map<std::string, std::map<ShardKey, Place>> shards_;             // by tensor
  std::map<std::string, std::map<std::optional<int>, Place>> objects_;  // by name, then rank
};

}  // namespace

absl::StatusOr<RebuiltManifest> RebuildManifest(const BinHeaders& headers, const std::string& job, int64_t step,
                                                uint32_t attempt) {
  return Rebuild(headers, job, step, attempt).Run();
}

}  // namespace cairn
