// How tensor parallelism has cut the parameters of a model, as a checkpoint of DeepSpeed says it.
//
// Source: merge_tp_slices of deepspeed/checkpoint/ds_to_universal.py, and deepspeed/checkpoint/constants.py, of
// DeepSpeed 0.19. Patterns are those of Python's `re.match`: they count from the beginning of a name on.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_PARALLEL_RULES_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_PARALLEL_RULES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"

namespace cairn {

// The dict `universal_checkpoint_info`, as it stands in the files of a model.
struct ParallelInfo {
  // Parameters that are several parameters in one, each of which is cut by itself: query, key and value, for example.
  struct SubParameters {
    std::vector<std::string> patterns;
    // The shape of the whole parameter, in which a dimension may be -1. The dimension that is cut is given as the
    // sizes of the sub-parameters, or as their number in `shape`.
    Shape shape;
    std::vector<int64_t> sizes;  // empty: their number counts
    int64_t dimension = 0;
  };

  double version = 0;
  int64_t vocabulary = 0;  // how many rows of the vocabulary are no padding; 0: the file does not say
  std::vector<std::string> vocabulary_patterns;
  std::vector<std::string> pipeline_replicated;  // what several stages of a pipeline have
  std::vector<std::string> replicated;           // what all parts have
  std::vector<std::string> averaged;
  std::vector<std::string> by_column;  // cut along dimension 1; DeepSpeed says "row parallelism"
  std::vector<std::string> two_halves;
  std::vector<SubParameters> sub_parameters;
  // By pattern: how much of each sub-parameter each part has.
  std::map<std::string, std::vector<std::vector<int64_t>>> widths;
  std::map<std::string, std::string> unsupported;  // patterns, and why no rule describes the cut

  // Returns true if it says something about the cut of any parameter. A dict without patterns stands where a program
  // only marks its checkpoints as convertible.
  bool HasPatterns() const;
};

// Where the slices of a parameter, one of each part, lie in it. The strips make up the parameter, and all of them are
// ranges of one dimension.
struct MergedShape {
  struct Strip {
    uint32_t part = 0;
    int64_t begin = 0;  // [begin, end) of the slice
    int64_t end = 0;
    int64_t target = 0;  // where `begin` lies in the parameter
  };
  Shape shape;
  size_t dimension = 0;
  std::vector<Strip> strips;
};

class ParallelRules {
 public:
  // UNIMPLEMENTED (UNSUPPORTED): a pattern is none that Cairn can match as Python does, or they take too much memory
  // together.
  static absl::StatusOr<ParallelRules> Create(ParallelInfo info);

  ParallelRules(ParallelRules&&) noexcept;
  ParallelRules& operator=(ParallelRules&&) noexcept;
  ~ParallelRules();

  // Returns true if several stages of a pipeline have the parameter, of which one counts.
  bool IsPipelineReplicated(const std::string& name) const;
  // Finds how slices of the given shapes make up a parameter. Without a pattern they follow one another in dimension 0.
  // DATA_LOSS (BAD_FOREIGN_FILE): they do not fit one another, or what the file says about them. UNIMPLEMENTED
  // (UNSUPPORTED): the parameter is the average of its slices, or is cut in a way that the file does not describe, or
  // its name is not ASCII where patterns have classes of Unicode.
  absl::StatusOr<MergedShape> Merge(const std::string& name, std::span<const Shape> slices) const;

 private:
  struct Patterns;
  ParallelRules(ParallelInfo info, std::unique_ptr<Patterns> patterns);

  ParallelInfo info_;
  std::unique_ptr<Patterns> patterns_;
};

// Returns how slices that are all of the parameter, each, make it up: the first one is taken. Fails as Merge does.
absl::StatusOr<MergedShape> MergeReplicas(const std::string& name, std::span<const Shape> slices);

// A box of a slice, whose elements lie row-major and without gaps from `offset` on, counted in elements.
struct BoxAt {
  Box box;
  int64_t offset = 0;
};
// Appends the boxes of the parameter that `piece`, a box of the slice of a part, makes up: each is as contiguous as
// `piece` is. Returns false if they were more than `most` with those that are there.
bool AppendMerged(const MergedShape& merged, uint32_t part, const BoxAt& piece, size_t most, std::vector<BoxAt>& boxes);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_PARALLEL_RULES_H_
