#include "corpus/sampler/cache_requests.h"

#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/sampler/weights.h"

namespace cairn::corpus {
namespace {

using Json = nlohmann::ordered_json;

// A list of one or two numbers is [begin, end], and Megatron's first begin is the integer 0.
Json MatrixJson(const SplitMatrix& matrix) {
  Json json = Json::array();
  for (const std::optional<SplitRange>& range : matrix) {
    if (!range.has_value()) {
      json.push_back(nullptr);
    } else if (json.empty()) {
      json.push_back(Json::array({0, range->end}));
    } else {
      json.push_back(Json::array({range->begin, range->end}));
    }
  }
  return json;
}

class Requests {
 public:
  explicit Requests(const CacheOptions& options) : options_(options) {}

  absl::StatusOr<CacheRequests> Make() {
    bool per_split = false;
    for (const auto& path : options_.data_path_of) per_split |= path.has_value();
    if (per_split == options_.data_path.has_value()) {
      return MakeError(
          Reason::kBadRequest,
          per_split ? "there is a data path for all splits and one for a single split" : "there is no data path",
          {{"next",
            "Give either --data-path, or --train-data-path, --valid-data-path and "
            "--test-data-path as far as you need them."}});
    }
    if (per_split) {
      for (size_t split = 0; split < kSplits; ++split) {
        if (options_.data_path_of[split].has_value()) {
          CAIRN_RETURN_IF_ERROR(AddOwn(*options_.data_path_of[split], split));
        }
      }
    } else {
      CAIRN_RETURN_IF_ERROR(AddShared(*options_.data_path));
    }
    return SortedByPrefix();
  }

 private:
  absl::Status AddShared(const DataPath& path) {
    CAIRN_ASSIGN_OR_RETURN(const SplitMatrix matrix, ParseSplit(options_.split));
    split_ = options_.split;
    matrix_ = MatrixJson(matrix);
    for (size_t split = 0; split < kSplits; ++split) {
      if (!path.weights.empty()) CAIRN_RETURN_IF_ERROR(CheckWeighted(split));
      if (!matrix[split].has_value()) continue;
      if (path.prefixes.size() == 1 && path.weights.empty()) {
        AddDataset(path.prefixes[0], split, *matrix[split], options_.samples[split]);
      } else {
        AddBlend(path, split, *matrix[split]);
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddOwn(const DataPath& path, size_t split) {
    constexpr size_t kValid = 1;
    constexpr SplitRange kWhole = {0.0, 1.0};
    if (!path.weights.empty()) CAIRN_RETURN_IF_ERROR(CheckWeighted(split));
    if (path.prefixes.size() == 1 || (split == kValid && options_.multiple_validation_sets)) {
      for (const std::string& prefix : path.prefixes) AddDataset(prefix, split, kWhole, options_.samples[split]);
    } else {
      AddBlend(path, split, kWhole);
    }
    return absl::OkStatus();
  }

  absl::Status CheckWeighted(size_t split) const {
    if (options_.samples[split].has_value()) return absl::OkStatus();
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the ", kSplitNames[split], " split has weights, but no number of samples"),
                     {{"next", "Leave the weights out, or --full-validation."}});
  }

  void AddBlend(const DataPath& path, size_t split, const SplitRange& range) {
    BlendRequest blend;
    blend.split = split;
    blend.samples = options_.samples[split];
    blend.weights = path.weights;
    if (!blend.weights.empty()) {
      blend.weights = Normalize(blend.weights);
      blend.samples = 0;
    }
    for (size_t i = 0; i < path.prefixes.size(); ++i) {
      std::optional<uint64_t> samples;
      if (!blend.weights.empty()) {
        const uint64_t asked = *options_.samples[split];
        samples = SamplesOfShare(asked, blend.weights[i], options_.surplus);
        *blend.samples += SamplesOfShare(asked, blend.weights[i], 0);
      }
      blend.datasets.push_back(AddDataset(path.prefixes[i], split, range, samples));
    }
    // BlendedDataset does it once more, and that may change the last bits.
    if (!blend.weights.empty()) blend.weights = Normalize(blend.weights);
    requests_.blends.push_back(std::move(blend));
  }

  size_t AddDataset(const std::string& prefix, size_t split, const SplitRange& range, std::optional<uint64_t> samples) {
    const auto [known, is_new] = known_.try_emplace({prefix, split, samples}, requests_.datasets.size());
    if (is_new) {
      const Json identifiers = {{"class", "GPTDataset"},
                                {"dataset_path", prefix},
                                {"num_samples", samples.has_value() ? Json(*samples) : Json()},
                                {"index_split", kSplitNames[split]},
                                {"random_seed", options_.seed},
                                {"sequence_length", options_.sequence_length},
                                {"split", split_},
                                {"split_matrix", matrix_},
                                {"tokenizer", options_.tokenizer}};
      requests_.datasets.push_back({prefix, split, range, samples, identifiers});
    }
    return known->second;
  }

  // A pair is read once for all of its splits.
  CacheRequests SortedByPrefix() {
    std::vector<size_t> order(requests_.datasets.size());
    std::iota(order.begin(), order.end(), 0);
    std::map<std::string, size_t> first;
    for (const size_t i : order) first.try_emplace(requests_.datasets[i].prefix, i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return first[requests_.datasets[a].prefix] < first[requests_.datasets[b].prefix];
    });
    CacheRequests sorted;
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      sorted.datasets.push_back(std::move(requests_.datasets[order[i]]));
    }
    sorted.blends = std::move(requests_.blends);
    for (BlendRequest& blend : sorted.blends) {
      for (size_t& dataset : blend.datasets) dataset = place[dataset];
    }
    return sorted;
  }

  const CacheOptions& options_;
  Json split_, matrix_;  // null if each split has a data path of its own
  std::map<std::tuple<std::string, size_t, std::optional<uint64_t>>, size_t> known_;
  CacheRequests requests_;
};

}  // namespace

absl::StatusOr<CacheRequests> RequestsOf(const CacheOptions& options) { return Requests(options).Make(); }

}  // namespace cairn::corpus
