// Compares the checksums of an item's holders with those of its writer.
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/save/save_plan.h"
#include "planner/save/save_plan_impl.h"

namespace cairn {
namespace {

// The checksum of an item and, for an object, its length without padding. The length of a shard is known.
struct Content {
  uint32_t crc32c = 0;
  uint64_t object_bytes = 0;

  auto operator<=>(const Content&) const = default;
};

struct Written {
  bool known = false;
  Content content;
  int rank = 0;
  size_t agreeing = 0;  // number of other ranks with the same content
};

// The ranks whose content of an item differs from the writer's.
struct Differing {
  std::vector<int> ranks;
  std::map<Content, std::vector<int>> by_content;
};

// Returns a text that names the ranks which differ from the majority of the compared ranks, the writer included. With
// three or more ranks it is likelier that a few are wrong than that many are wrong in the same way.
std::string OddOnesOut(const Written& written, const Differing& differing) {
  const size_t agreeing = 1 + written.agreeing;
  const size_t all = agreeing + differing.ranks.size();
  if (all < 3) return "";
  if (2 * agreeing > all) {
    return absl::StrCat("; ", agreeing, " of ", all, " ranks agree, without ", RanksText(differing.ranks));
  }
  for (const auto& [content, ranks] : differing.by_content) {
    if (2 * ranks.size() <= all) continue;
    return absl::StrCat("; ", ranks.size(), " of ", all, " ranks agree, and what rank ", written.rank,
                        " wrote is not what they hold");
  }
  return absl::StrCat("; no more than half of the ", all, " ranks agree");
}

std::vector<int> AllOf(const Written& written, const Differing& differing) {
  std::vector<int> ranks = differing.ranks;
  ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), written.rank), written.rank);
  return ranks;
}

std::string DifferText(const Written& written, const Differing& differing) {
  return absl::StrCat("but the bytes of ", RanksText(differing.ranks), " differ from those of rank ", written.rank,
                      OddOnesOut(written, differing));
}

// Compares one save. An item is identified by the number of its shard, or by kObjectBit and the number of its object.
class ReplicaComparison {
 public:
  explicit ReplicaComparison(const SavePlan::Impl& plan)
      : plan_(plan), set_(*plan.set), shards_(set_.shard_count()), objects_(set_.objects().size()) {}

  void AddWritten(const RankResult& result);
  // Must be called after the results of all writers have been added.
  void AddHeld(const HolderChecksums& holder);
  void Tell(FaultList& objects, FaultList& tensors);

 private:
  Written& WrittenOf(uint32_t index) { return index & kObjectBit ? objects_[index & ~kObjectBit] : shards_[index]; }
  void AddWrittenFile(const PlanFile& file, int rank, const v1::FileResult& reported);
  // Returns the item to which a rank's checksum belongs; nothing if ranks do not share this item.
  std::optional<uint32_t> SharedItem(const LayoutSet::Layout& layout, uint32_t number) const;
  void Compare(uint32_t index, int rank, const Content& held);

  // Returns, by object, the ranks that declare it, did not write it and reported no checksum of it.
  std::map<uint32_t, std::vector<int>> Missing() const;
  Fault MissingFault(uint32_t object, const std::vector<int>& ranks) const;
  Fault ObjectFault(uint32_t object, const Written& written, const Differing& differing) const;
  Fault ShardFault(uint32_t shard, const Written& written, const Differing& differing) const;

  const SavePlan::Impl& plan_;
  const LayoutSet& set_;
  std::vector<Written> shards_;
  std::vector<Written> objects_;
  std::map<uint32_t, Differing> differing_;
  std::map<int, std::vector<bool>> reported_objects_;  // by rank: the objects of its layout that it reported
};

void ReplicaComparison::AddWritten(const RankResult& result) {
  const auto rank = plan_.IndexOf(result.rank);
  if (!rank) return;
  const std::span<const PlanFile> files = plan_.FilesOf(*rank);
  for (size_t i = 0; i < std::min(files.size(), static_cast<size_t>(result.result.files_size())); ++i) {
    AddWrittenFile(files[i], result.rank, result.result.files(static_cast<int>(i)));
  }
}

void ReplicaComparison::AddWrittenFile(const PlanFile& file, int rank, const v1::FileResult& reported) {
  const size_t items = std::min(file.items.size(), static_cast<size_t>(reported.item_checksums_size()));
  int objects = 0;
  for (size_t i = 0; i < items; ++i) {
    const ItemRef& item = file.items[i];
    const uint32_t index =
        item.index & kObjectBit ? plan_.DeclaredBy(file.rank_index, item).object | kObjectBit : item.index;
    Content content = {reported.item_checksums(static_cast<int>(i)), 0};
    if (index & kObjectBit) {
      if (objects < reported.object_sizes_size()) content.object_bytes = reported.object_sizes(objects);
      ++objects;
    }
    WrittenOf(index) = {true, content, rank, 0};
  }
}

void ReplicaComparison::AddHeld(const HolderChecksums& holder) {
  const auto rank = plan_.IndexOf(holder.rank);
  if (!rank) return;
  const LayoutSet::Layout& layout = set_.layouts()[set_.rank_layouts()[*rank]];
  std::vector<bool>& reported = reported_objects_[holder.rank];
  reported.resize(layout.objects.size());
  for (const v1::ReplicaChecksum& checksum : holder.checksums) {
    const uint32_t number = checksum.item();
    if (number >= layout.shards && number - layout.shards < reported.size()) reported[number - layout.shards] = true;
    const std::optional<uint32_t> index = SharedItem(layout, number);
    if (!index) continue;
    const bool object = *index & kObjectBit;
    Compare(*index, holder.rank, {checksum.crc32c(), object ? checksum.object_bytes() : 0});
  }
}

std::optional<uint32_t> ReplicaComparison::SharedItem(const LayoutSet::Layout& layout, uint32_t number) const {
  if (number < layout.shards) {
    const uint32_t shard = set_.ItemsOf(layout)[number];
    if (shard >= LayoutSet::kInvalidShard) return std::nullopt;
    return shard;
  }
  if (number - layout.shards >= layout.objects.size()) return std::nullopt;
  const uint32_t object = layout.objects[number - layout.shards].object;
  if (set_.objects()[object].per_rank) return std::nullopt;
  return object | kObjectBit;
}

void ReplicaComparison::Compare(uint32_t index, int rank, const Content& held) {
  Written& written = WrittenOf(index);
  if (!written.known || written.rank == rank) return;
  if (held == written.content) {
    ++written.agreeing;
    return;
  }
  Differing& differing = differing_[index];
  differing.ranks.push_back(rank);
  differing.by_content[held].push_back(rank);
}

void ReplicaComparison::Tell(FaultList& objects, FaultList& tensors) {
  for (const auto& [object, ranks] : Missing()) objects.Add(MissingFault(object, ranks));
  for (auto& [index, differing] : differing_) {
    std::sort(differing.ranks.begin(), differing.ranks.end());
    const Written& written = WrittenOf(index);
    if (index & kObjectBit) {
      objects.Add(ObjectFault(index & ~kObjectBit, written, differing));
    } else {
      tensors.Add(ShardFault(index, written, differing));
    }
  }
}

std::map<uint32_t, std::vector<int>> ReplicaComparison::Missing() const {
  std::map<uint32_t, std::vector<int>> missing;
  for (size_t r = 0; r < set_.ranks().size(); ++r) {
    const int rank = set_.ranks()[r];
    const LayoutSet::Layout& layout = set_.layouts()[set_.rank_layouts()[r]];
    const auto reported = reported_objects_.find(rank);
    for (size_t number = 0; number < layout.objects.size(); ++number) {
      const uint32_t object = layout.objects[number].object;
      const Written& written = objects_[object];
      if (set_.objects()[object].per_rank || !written.known || written.rank == rank) continue;
      if (reported != reported_objects_.end() && reported->second[number]) continue;
      missing[object].push_back(rank);  // ascending, because ranks() ascends
    }
  }
  return missing;
}

Fault ReplicaComparison::MissingFault(uint32_t object, const std::vector<int>& ranks) const {
  Fault fault;
  fault.reason = Reason::kBadRequest;
  fault.name = set_.objects()[object].name;
  fault.ranks = ranks;
  fault.message = absl::StrCat("object ", fault.name, " is declared the same on all ranks, but ", RanksText(ranks),
                               " gave no checksum of theirs");
  return fault;
}

Fault ReplicaComparison::ObjectFault(uint32_t object, const Written& written, const Differing& differing) const {
  Fault fault;
  fault.reason = Reason::kObjectMismatch;
  fault.ranks = AllOf(written, differing);
  fault.name = set_.objects()[object].name;
  fault.message =
      absl::StrCat("object ", fault.name, " is declared the same on all ranks, ", DifferText(written, differing));
  return fault;
}

Fault ReplicaComparison::ShardFault(uint32_t shard, const Written& written, const Differing& differing) const {
  const Box box = set_.BoxOf(shard);
  Fault fault;
  fault.reason = Reason::kReplicaMismatch;
  fault.ranks = AllOf(written, differing);
  fault.name = set_.tensors()[set_.TensorOf(shard)].name;
  fault.offset.assign(box.offset.begin(), box.offset.end());
  fault.shape.assign(box.shape.begin(), box.shape.end());
  fault.message =
      absl::StrCat("tensor ", set_.Describe(shard), " is declared as one shard, ", DifferText(written, differing));
  return fault;
}

}  // namespace

void SavePlan::CompareReplicas(std::span<const RankResult> results, std::span<const HolderChecksums> holders,
                               FaultList& objects, FaultList& tensors) const {
  ReplicaComparison comparison(*impl_);
  for (const RankResult& result : results) comparison.AddWritten(result);
  for (const HolderChecksums& holder : holders) comparison.AddHeld(holder);
  comparison.Tell(objects, tensors);
}

}  // namespace cairn
