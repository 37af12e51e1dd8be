// What a Megatron run says about its data, by which its cache of indices is filled.
#ifndef CAIRN_CORPUS_SAMPLER_CACHE_OPTIONS_H_
#define CAIRN_CORPUS_SAMPLER_CACHE_OPTIONS_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "corpus/sampler/data_path.h"
#include "corpus/sampler/split.h"

namespace cairn::corpus {

struct CacheOptions {
  // Either one data path for all splits and how it is split (the text too, because it is in the names of files), or
  // one for each split that is wanted.
  std::optional<DataPath> data_path;
  std::string split;
  std::array<std::optional<DataPath>, kSplits> data_path_of;
  // How many samples each split needs at least. Nothing: one epoch, which excludes weights.
  std::array<std::optional<uint64_t>, kSplits> samples;
  uint32_t seed = 1234;
  uint32_t sequence_length = 0;  // in tokens, at least 2
  double surplus = 0.005;        // --mid-level-dataset-surplus
  bool multiple_validation_sets = false;
  nlohmann::ordered_json tokenizer;  // its unique_identifiers
  std::string cache_path;            // the directory is made if it is missing
  bool rebuild = false;              // builds files anew that are there already
  int threads = 1;                   // datasets that are built at the same time
  uint64_t memory = 0;               // the most bytes that lengths and indices under construction take together
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_CACHE_OPTIONS_H_
