#include "corpus/sampler/prepare_cache.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/huge_pages.h"
#include "corpus/indexed/indexed_reader.h"
#include "corpus/io/ordered_work.h"
#include "corpus/sampler/blend_order.h"
#include "corpus/sampler/cache_files.h"
#include "corpus/sampler/cache_requests.h"
#include "corpus/sampler/gpt_dataset.h"
#include "corpus/sampler/memory_budget.h"
#include "corpus/sampler/weights.h"

namespace cairn::corpus {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Interrupted() { return MakeError(Reason::kInterrupted, "interrupted"); }

// Passes the lengths of all sequences in pieces, with the place of the first. INDEX_CORRUPT: one is negative.
absl::Status VisitLengths(const IndexedReader& reader,
                          absl::FunctionRef<void(uint64_t first, std::span<const int32_t> lengths)> visitor) {
  uint64_t first = 0;
  return reader.VisitLengths([&](const int32_t* values, size_t count) {
    const auto negative = std::find_if(values, values + count, [](int32_t length) { return length < 0; });
    if (negative != values + count) {
      const std::string path = IdxPath(reader.prefix());
      return MakeError(Reason::kIndexCorrupt,
                       absl::StrCat(path, ": sequence ", first + (negative - values), " has ", *negative, " tokens"),
                       {{"file", path}});
    }
    visitor(first, {values, count});
    first += count;
    return absl::OkStatus();
  });
}

// Counts the tokens of each split without holding the lengths.
absl::StatusOr<std::vector<SplitSize>> SizesOf(const IndexedReader& reader, std::span<const DatasetRequest> requests) {
  const uint64_t sequences = reader.header().sequences;
  std::vector<SplitSize> sizes;
  for (const DatasetRequest& request : requests) {
    const uint64_t begin = SequenceAt(request.range.begin, sequences);
    sizes.push_back({begin, SequenceAt(request.range.end, sequences) - begin, 0});
  }
  CAIRN_RETURN_IF_ERROR(VisitLengths(reader, [&](uint64_t first, std::span<const int32_t> lengths) {
    for (SplitSize& size : sizes) {
      const uint64_t begin = std::max(first, size.first);
      const uint64_t end = std::min(first + lengths.size(), size.first + size.sequences);
      if (begin >= end) continue;
      const auto own = lengths.subspan(begin - first, end - begin);
      size.tokens = std::accumulate(own.begin(), own.end(), size.tokens);
    }
  }));
  return sizes;
}

class Preparer {
 public:
  Preparer(const CacheOptions& options, const CacheRequests& requests, const CacheDirectory& directory,
           const std::atomic<bool>& stop, PrepareCacheProgress& progress)
      : options_(options),
        requests_(requests),
        directory_(directory),
        stop_(stop),
        progress_(progress),
        memory_(options.memory) {}

  absl::StatusOr<std::vector<CachedDataset>> Run() {
    CAIRN_RETURN_IF_ERROR(PrepareDatasets());
    for (const BlendRequest& blend : requests_.blends) {
      absl::StatusOr<CachedDataset> prepared = PrepareBlend(blend);
      if (!prepared.ok()) {
        return Annotate(prepared.status(), absl::StrCat("the blend of the ", kSplitNames[blend.split], " split"));
      }
      cached_.push_back(*std::move(prepared));
    }
    CAIRN_RETURN_IF_ERROR(directory_.Sync());
    return std::move(cached_);
  }

 private:
  using Group = std::span<const DatasetRequest>;  // of one prefix

  absl::Status PrepareDatasets() {
    std::vector<Group> groups;
    const std::vector<DatasetRequest>& all = requests_.datasets;
    for (auto begin = all.begin(); begin != all.end();) {
      const auto end = std::find_if(begin, all.end(), [&](const auto& other) { return other.prefix != begin->prefix; });
      groups.emplace_back(begin, end);
      begin = end;
    }
    progress_.datasets_total = groups.size();
    size_t next = 0;
    OrderedSteps<Group, std::vector<CachedDataset>> steps;
    steps.next = [&](Group& group) -> absl::StatusOr<bool> {
      if (next == groups.size()) return false;
      group = groups[next++];
      return true;
    };
    steps.work = [&](int, Group& group) { return PrepareGroup(group); };
    steps.deliver = [&](std::vector<CachedDataset> prepared) {
      std::move(prepared.begin(), prepared.end(), std::back_inserter(cached_));
      ++progress_.datasets;
      return absl::OkStatus();
    };
    return OrderedWork<Group, std::vector<CachedDataset>>(options_.threads, groups.size() + 1, std::move(steps)).Run();
  }

  absl::StatusOr<std::vector<CachedDataset>> PrepareGroup(Group group) {
    if (stop_.load()) return Interrupted();
    CAIRN_ASSIGN_OR_RETURN(const auto reader, IndexedReader::Open(group.front().prefix));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<SplitSize> sizes, SizesOf(*reader, group));
    const uint64_t table_bytes = 4 * reader->header().sequences;  // of all lengths
    const uint64_t memory = options_.memory - std::min(options_.memory, table_bytes);
    std::vector<CachedDataset> prepared;
    std::vector<GptDatasetPlan> plans;
    uint64_t most_bytes = 0;  // of the splits that are not there yet
    for (size_t i = 0; i < group.size(); ++i) {
      const DatasetRequest& request = group[i];
      const auto plan = PlanGptDataset(sizes[i], request.samples, options_.sequence_length, memory);
      if (!plan.ok()) return InSplit(request, plan.status());
      const CacheFiles files = FilesOf(request);
      const bool kept = !options_.rebuild && files.AreWhole(plan->Headers());
      if (!kept) most_bytes = std::max(most_bytes, plan->memory_bytes());
      prepared.push_back({kSplitNames[request.split], request.prefix, files.name(), plan->samples, plan->epochs, kept});
      plans.push_back(*plan);
    }
    if (most_bytes == 0) return prepared;

    const MemoryBudget::Share share = memory_.Take(table_bytes + most_bytes);
    HugeVector<int32_t> lengths;  // which is read at random
    lengths.reserve(reader->header().sequences);
    CAIRN_RETURN_IF_ERROR(VisitLengths(*reader, [&](uint64_t, std::span<const int32_t> piece) {
      lengths.insert(lengths.end(), piece.begin(), piece.end());
    }));
    for (size_t i = 0; i < group.size(); ++i) {
      if (prepared[i].kept) continue;
      progress_.values_total += plans[i].work();
      const std::span<const int32_t> own = std::span(lengths).subspan(sizes[i].first, sizes[i].sequences);
      const absl::Status built =
          BuildGptDataset(plans[i], own, options_.seed, FilesOf(group[i]), stop_, progress_.values);
      if (!built.ok()) return InSplit(group[i], built);
    }
    return prepared;
  }

  CacheFiles FilesOf(const DatasetRequest& request) const {
    return CacheFiles(directory_, request.identifiers, kSplitNames[request.split]);
  }

  static absl::Status InSplit(const DatasetRequest& request, const absl::Status& status) {
    return Annotate(status, absl::StrCat(request.prefix, ", ", kSplitNames[request.split], " split"),
                    {{"file", IdxPath(request.prefix)}});
  }

  absl::StatusOr<CachedDataset> PrepareBlend(const BlendRequest& blend) {
    std::vector<uint64_t> sizes;
    Json identifiers = {{"class", "BlendedDataset"}, {"datasets", Json::array()}};
    for (const size_t dataset : blend.datasets) {
      sizes.push_back(cached_[dataset].samples);
      identifiers["datasets"].push_back(requests_.datasets[dataset].identifiers);
      if (blend.weights.empty() && sizes.back() == 0) {
        return MakeError(Reason::kBadRequest,
                         absl::StrCat(requests_.datasets[dataset].prefix, " has fewer tokens than one sample"),
                         {{"next", "Leave the dataset out, or give weights."}});
      }
    }
    const uint64_t all = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    const bool exhaustive = !blend.samples.has_value();
    const uint64_t samples =
        blend.weights.empty() ? std::min(blend.samples.value_or(all), all) : blend.samples.value_or(all);
    std::vector<double> weights = blend.weights;
    if (weights.empty()) weights = Normalize(std::vector<double>(sizes.begin(), sizes.end()));
    identifiers["split"] = kSplitNames[blend.split];
    identifiers["weights"] = exhaustive ? Json(sizes) : Json(weights);
    identifiers["size"] = exhaustive ? Json() : Json(samples);

    const CacheFiles files(directory_, identifiers, kSplitNames[blend.split]);
    const std::map<std::string, NpyHeader> headers = {{"dataset_index", {"<i2", {samples}}},
                                                      {"dataset_sample_index", {"<i8", {samples}}}};
    CachedDataset cached{kSplitNames[blend.split], "", files.name(), samples, 0, false};
    cached.kept = !options_.rebuild && files.AreWhole(headers);
    if (cached.kept) return cached;
    progress_.values_total += samples;
    BlendOrder order = exhaustive ? BlendOrder::Exhaustive(sizes) : BlendOrder::ByWeights(weights);
    CAIRN_ASSIGN_OR_RETURN(NpyFile datasets, files.CreateArray("dataset_index", headers.at("dataset_index")));
    CAIRN_ASSIGN_OR_RETURN(NpyFile numbers,
                           files.CreateArray("dataset_sample_index", headers.at("dataset_sample_index")));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<uint64_t> taken,
                           WriteBlend(order, sizes.size(), samples, datasets, numbers));
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (taken[i] <= sizes[i]) continue;
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("takes ", taken[i], " samples of ", requests_.datasets[blend.datasets[i]].prefix,
                                    ", which has ", sizes[i]),
                       {{"next", absl::StrCat("Raise --mid-level-dataset-surplus, which is ", options_.surplus,
                                              ", here and in the training run.")}});
    }
    std::vector<NpyFile> arrays;
    arrays.push_back(std::move(datasets));
    arrays.push_back(std::move(numbers));
    CAIRN_RETURN_IF_ERROR(files.Publish(std::move(arrays)));
    return cached;
  }

  // Returns how many samples were taken of each dataset.
  absl::StatusOr<std::vector<uint64_t>> WriteBlend(BlendOrder& order, size_t count, uint64_t samples,
                                                   NpyFile& dataset_file, NpyFile& number_file) {
    constexpr uint64_t kPiece = 1 << 14;
    std::vector<uint64_t> taken(count);
    std::vector<int16_t> datasets;
    std::vector<int64_t> numbers;
    for (uint64_t written = 0; written < samples; written += datasets.size()) {
      datasets.resize(std::min(kPiece, samples - written));
      numbers.resize(datasets.size());
      for (size_t i = 0; i < datasets.size(); ++i) {
        const BlendOrder::Sample sample = order.Next();
        datasets[i] = static_cast<int16_t>(sample.dataset);
        numbers[i] = sample.number;
        ++taken[sample.dataset];
      }
      CAIRN_RETURN_IF_ERROR(dataset_file.Append(std::span<const int16_t>(datasets)));
      CAIRN_RETURN_IF_ERROR(number_file.Append(std::span<const int64_t>(numbers)));
      progress_.values += datasets.size();
      if (stop_.load()) return Interrupted();
    }
    return taken;
  }

  const CacheOptions& options_;
  const CacheRequests& requests_;
  const CacheDirectory& directory_;
  const std::atomic<bool>& stop_;
  PrepareCacheProgress& progress_;
  MemoryBudget memory_;
  std::vector<CachedDataset> cached_;  // in the order of requests_.datasets, then of the blends
};

}  // namespace

absl::StatusOr<std::vector<CachedDataset>> PrepareCache(const CacheOptions& options, const std::atomic<bool>& stop,
                                                        PrepareCacheProgress& progress) {
  CAIRN_ASSIGN_OR_RETURN(const CacheRequests requests, RequestsOf(options));
  CAIRN_ASSIGN_OR_RETURN(const CacheDirectory directory, CacheDirectory::Open(options.cache_path));
  return Preparer(options, requests, directory, stop, progress).Run();
}

}  // namespace cairn::corpus
