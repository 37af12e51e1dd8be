// Makes the manifest of an attempt from its plan, which describes every item, and from the agents' reports on their
// files.
#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/format/summary_columns.h"
#include "common/status/status.h"
#include "planner/save/save_plan.h"
#include "planner/save/save_plan_impl.h"

namespace cairn {
namespace {

// Makes one manifest. Its files are in the order of the plan.
class ManifestMaker {
 public:
  ManifestMaker(const SavePlan::Impl& plan, std::span<const RankResult> results);

  absl::StatusOr<Manifest> Make(const CommitInfo& commit);

 private:
  // The place of a shard, and the checksum that its writer reports.
  struct Place {
    uint32_t file = 0;
    uint32_t item = 0;
    uint32_t crc32c = 0;
  };

  // Adds what the writers report of each tensor, unless one of them has reported nothing.
  void AddSummaries();

  void AddAttempt(const CommitInfo& commit);
  void AddRanks();
  absl::Status AddFile(uint32_t number);
  // `object` is the number of the item among the file's objects.
  absl::Status AddObject(uint32_t number, uint32_t item, int object, const v1::FileResult& result);
  void SortObjects();
  void AddTensors();
  void AddTensor(const LayoutSet::Tensor& tensor, std::span<const uint32_t> shards);
  void AddShard(uint32_t shard, size_t dimensions);
  void AddAliases();

  // Returns the writer's report on a file, after it has compared the report with the plan.
  absl::StatusOr<const v1::FileResult*> ResultOf(uint32_t file) const;
  absl::Status Refuse(const PlanFile& file, std::string_view what) const;

  int RankOf(const PlanFile& file) const { return set_.ranks()[static_cast<size_t>(file.rank_index)]; }
  static bool IsObject(const ItemRef& item) { return (item.index & kObjectBit) != 0; }

  const SavePlan::Impl& plan_;
  const LayoutSet& set_;
  std::vector<const v1::WriteResult*> results_;  // by index of the rank; null if a rank's result is missing
  std::vector<Place> places_;                    // by shard
  std::vector<const v1::FileResult*> reports_;   // by file
  Manifest manifest_;
};

ManifestMaker::ManifestMaker(const SavePlan::Impl& plan, std::span<const RankResult> results)
    : plan_(plan), set_(*plan.set), results_(set_.ranks().size()), places_(set_.shard_count()) {
  for (const RankResult& result : results) {
    if (const auto rank = plan_.IndexOf(result.rank)) results_[*rank] = &result.result;
  }
}

absl::StatusOr<Manifest> ManifestMaker::Make(const CommitInfo& commit) {
  AddAttempt(commit);
  AddRanks();
  for (uint32_t file = 0; file < plan_.files.size(); ++file) CAIRN_RETURN_IF_ERROR(AddFile(file));
  SortObjects();
  AddTensors();
  AddSummaries();
  AddAliases();
  CAIRN_RETURN_IF_ERROR(manifest_.PlaceItems());
  return std::move(manifest_);
}

void ManifestMaker::AddAttempt(const CommitInfo& commit) {
  manifest_.job = commit.job;
  manifest_.step = commit.step;
  manifest_.attempt = commit.attempt;
  manifest_.request_id = commit.request_id;
  manifest_.world_size = commit.world_size;
  manifest_.commit_time = commit.commit_time;
  manifest_.writer = commit.writer;
  manifest_.plan_digest = plan_.digest;
}

void ManifestMaker::AddRanks() {
  manifest_.layout_digests = set_.layout_digests();
  manifest_.rank_layout = set_.rank_layouts();
  manifest_.nodes = set_.nodes();
  manifest_.rank_node = set_.rank_nodes();
}

absl::Status ManifestMaker::AddFile(uint32_t number) {
  const PlanFile& file = plan_.files[number];
  CAIRN_ASSIGN_OR_RETURN(const v1::FileResult* const result, ResultOf(number));
  manifest_.files.push_back(
      {plan_.NameOf(file), RankOf(file), file.header_bytes, file.data_bytes, result->header_crc32c()});
  reports_.push_back(result);
  int objects = 0;
  for (uint32_t i = 0; i < file.items.size(); ++i) {
    const ItemRef& item = file.items[i];
    if (IsObject(item)) {
      CAIRN_RETURN_IF_ERROR(AddObject(number, i, objects++, *result));
    } else {
      places_[item.index] = {number, i, result->item_checksums(static_cast<int>(i))};
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const v1::FileResult*> ManifestMaker::ResultOf(uint32_t number) const {
  const PlanFile& file = plan_.files[number];
  const auto rank = static_cast<size_t>(file.rank_index);
  const v1::WriteResult* const written = results_[rank];
  if (written == nullptr) return Refuse(file, "is missing");
  const size_t first = plan_.first_file[rank];
  if (static_cast<size_t>(written->files_size()) != plan_.first_file[rank + 1] - first) {
    return Refuse(file, "has another number of files than its plan");
  }
  const v1::FileResult& result = written->files(static_cast<int>(number - first));
  if (result.item_checksums_size() != static_cast<int>(file.items.size())) {
    return Refuse(file, "has another number of items than its plan");
  }
  const uint64_t planned_bytes = file.header_bytes + file.data_bytes;
  if (result.file_bytes() != planned_bytes) {
    return Refuse(file, absl::StrCat("has ", result.file_bytes(), " bytes in ", plan_.NameOf(file), ", the plan has ",
                                     planned_bytes));
  }
  if (result.has_summaries() && !HasSummaries(result.summaries(), static_cast<int>(file.items.size()))) {
    return Refuse(file, "has another number of summaries than items");
  }
  return &result;
}

absl::Status ManifestMaker::Refuse(const PlanFile& file, std::string_view what) const {
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("the result of rank ", RankOf(file), " ", absl::string_view(what.data(), what.size())),
                   {{"rank", absl::StrCat(RankOf(file))}});
}

absl::Status ManifestMaker::AddObject(uint32_t number, uint32_t item, int object, const v1::FileResult& result) {
  const PlanFile& file = plan_.files[number];
  const ItemRef& ref = file.items[item];
  const LayoutSet::Object& declared = plan_.ObjectOf(ref, file.rank_index);
  const uint64_t slot_bytes = plan_.SlotOf(ref, file.rank_index);
  if (object >= result.object_sizes_size() || result.object_sizes(object) > slot_bytes) {
    return Refuse(file, absl::StrCat("has no length of object ", declared.name, ", or one above its slot"));
  }
  ManifestObject entry;
  entry.name = declared.name;
  if (declared.per_rank) entry.rank = RankOf(file);
  entry.file = number;
  entry.item = item;
  entry.slot_bytes = slot_bytes;
  entry.bytes = result.object_sizes(object);
  entry.crc32c = result.item_checksums(static_cast<int>(item));
  manifest_.objects.push_back(std::move(entry));
  return absl::OkStatus();
}

void ManifestMaker::SortObjects() {
  std::sort(manifest_.objects.begin(), manifest_.objects.end(), [](const ManifestObject& a, const ManifestObject& b) {
    return std::tie(a.name, a.rank) < std::tie(b.name, b.rank);
  });
}

void ManifestMaker::AddTensors() {
  manifest_.shards.reserve(set_.shard_count());
  for (const uint32_t tensor : set_.TensorsByName()) AddTensor(set_.tensors()[tensor], set_.ShardsOf(tensor));
}

void ManifestMaker::AddTensor(const LayoutSet::Tensor& tensor, std::span<const uint32_t> shards) {
  manifest_.tensors.push_back({tensor.name, tensor.dtype, tensor.global_shape,
                               static_cast<uint32_t>(manifest_.shards.size()), static_cast<uint32_t>(shards.size())});
  for (const uint32_t shard : shards) AddShard(shard, tensor.global_shape.size());
}

void ManifestMaker::AddSummaries() {
  // A file without items has none.
  const bool all = std::all_of(reports_.begin(), reports_.end(), [](const v1::FileResult* report) {
    return report->has_summaries() || report->item_checksums_size() == 0;
  });
  if (!all) return;
  for (const ManifestTensor& tensor : manifest_.tensors) {
    TensorSummary summary;
    for (uint32_t i = 0; i < tensor.shard_count; ++i) {
      const ManifestShard& shard = manifest_.shards[tensor.first_shard + i];
      summary.Add(SummaryAt(reports_[shard.file]->summaries(), static_cast<int>(shard.item), tensor.dtype));
    }
    manifest_.summaries.push_back(AsRecorded(summary, tensor.dtype));
  }
}

void ManifestMaker::AddShard(uint32_t shard, size_t dimensions) {
  const Place& place = places_[shard];
  ManifestShard entry;
  entry.tensor = static_cast<uint32_t>(manifest_.tensors.size() - 1);
  entry.file = place.file;
  entry.item = place.item;
  entry.crc32c = place.crc32c;
  entry.dims = static_cast<uint32_t>(manifest_.dims.size());
  entry.flat = set_.IsFlat(shard);
  manifest_.shards.push_back(entry);
  const size_t range = entry.flat ? 2 : 0;
  const int64_t* const dims = set_.DimsOf(shard);  // offset and shape, then the range
  manifest_.dims.insert(manifest_.dims.end(), dims, dims + 2 * dimensions + range);
}

void ManifestMaker::AddAliases() {
  for (const LayoutSet::Alias& alias : set_.aliases()) {
    manifest_.aliases.emplace_back(alias.name, set_.tensors()[alias.tensor].name);
  }
}

}  // namespace

absl::StatusOr<Manifest> SavePlan::MakeManifest(std::span<const RankResult> results, const CommitInfo& commit) const {
  return ManifestMaker(*impl_, results).Make(commit);
}

}  // namespace cairn
