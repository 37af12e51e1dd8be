// Reads Megatron's --split: which share of each dataset is for training, validation and test.
#ifndef CAIRN_CORPUS_SAMPLER_SPLIT_H_
#define CAIRN_CORPUS_SAMPLER_SPLIT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::corpus {

inline constexpr size_t kSplits = 3;
inline constexpr std::array<const char*, kSplits> kSplitNames = {"train", "valid", "test"};

// From where to where a split reaches in a dataset, as shares of it.
struct SplitRange {
  double begin;
  double end;
};
// Nothing: the split is empty, and has no dataset.
using SplitMatrix = std::array<std::optional<SplitRange>, kSplits>;

// Reads "99,1,0" or "969, 30, 1" as parse_and_normalize_split and convert_split_vector_to_split_matrix do; what is
// missing at the end is 0. BAD_REQUEST: what stands between numbers is no comma, blank or the like; a number cannot be
// read, there are more than three, or all are 0.
absl::StatusOr<SplitMatrix> ParseSplit(const std::string& text);

// Returns the first sequence of a split, or the one behind its last: the product rounded to the nearest integer, halves
// to even.
uint64_t SequenceAt(double share, uint64_t sequences);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_SPLIT_H_
