// Fills Megatron's cache of dataset indices ahead of a training run, as its tools/prepare_cache.py does: afterwards
// BlendedMegatronDatasetBuilder finds every file there and builds nothing.
#ifndef CAIRN_CORPUS_SAMPLER_PREPARE_CACHE_H_
#define CAIRN_CORPUS_SAMPLER_PREPARE_CACHE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/sampler/cache_options.h"

namespace cairn::corpus {

// Another thread may read it meanwhile.
struct PrepareCacheProgress {
  std::atomic<uint64_t> datasets{0}, datasets_total{0};  // pairs of files
  std::atomic<uint64_t> values{0}, values_total{0};      // grows with each dataset that is opened
};

// One dataset of the cache: the indices of a split of a pair, or a blend.
struct CachedDataset {
  std::string split;
  std::string prefix;  // empty: a blend
  std::string name;    // what the names of its files begin with
  uint64_t samples = 0;
  uint64_t epochs = 0;  // 0: a blend
  bool kept = false;    // the files were there
};

// Builds what is not there. Each set of files gets its names when it is whole, so an interrupted run is continued by
// the same call. Memory: `options.memory`, and some 2 MiB for each thread, or 5 MiB if its pair is in an object store.
// BAD_REQUEST: the options contradict each other, a split has no tokens, or a blend takes more samples of a dataset
// than it has (Megatron refuses it too). INPUT_UNREADABLE, INDEX_CORRUPT: a pair cannot be read. MEMORY_LIMIT.
// NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR, FSYNC_FAILED. INTERRUPTED: `stop` was set. Errors name prefix and split.
absl::StatusOr<std::vector<CachedDataset>> PrepareCache(const CacheOptions& options, const std::atomic<bool>& stop,
                                                        PrepareCacheProgress& progress);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_PREPARE_CACHE_H_
