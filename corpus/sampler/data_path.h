// Reads Megatron's --data-path: prefixes of .bin/.idx pairs, with or without a weight before each.
#ifndef CAIRN_CORPUS_SAMPLER_DATA_PATH_H_
#define CAIRN_CORPUS_SAMPLER_DATA_PATH_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

struct DataPath {
  std::vector<std::string> prefixes;
  std::vector<double> weights;  // one for each prefix, or empty: then the sizes decide
};

// Reads as get_blend_from_list: words are weights and prefixes in turns if their number is even and every other word is
// a number, else prefixes. A space around a prefix is dropped. BAD_REQUEST: there is no word; some of the words in the
// places of weights are numbers and some are not; a weight is not positive; there are 32,767 prefixes or more, which
// is Megatron's limit.
absl::StatusOr<DataPath> ParseDataPath(std::span<const std::string> words);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_DATA_PATH_H_
