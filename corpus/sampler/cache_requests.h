// Decides which datasets a Megatron run will look for in its cache, as BlendedMegatronDatasetBuilder does.
#ifndef CAIRN_CORPUS_SAMPLER_CACHE_REQUESTS_H_
#define CAIRN_CORPUS_SAMPLER_CACHE_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/sampler/cache_options.h"
#include "corpus/sampler/split.h"

namespace cairn::corpus {

// The indices of one split of a pair of files.
struct DatasetRequest {
  std::string prefix;
  size_t split;
  SplitRange range;
  std::optional<uint64_t> samples;
  nlohmann::ordered_json identifiers;
};

// A blend of such datasets.
struct BlendRequest {
  size_t split;
  std::vector<size_t> datasets;  // in CacheRequests::datasets
  std::vector<double> weights;   // normalized; empty: the datasets' sizes decide
  // How many samples the blend has. Nothing: all of its datasets. With sizes as weights, it has no more than these.
  std::optional<uint64_t> samples;
};

struct CacheRequests {
  std::vector<DatasetRequest> datasets;  // no two have the same identifiers; those of one prefix stand together
  std::vector<BlendRequest> blends;
};

// BAD_REQUEST: weights are given for a split without a number of samples, both kinds of data paths are given or none,
// or the split cannot be read.
absl::StatusOr<CacheRequests> RequestsOf(const CacheOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_CACHE_REQUESTS_H_
