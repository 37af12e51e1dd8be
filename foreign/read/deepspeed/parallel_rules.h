// The rules by which tensor parallelism has cut the parameters of a model, as a checkpoint of DeepSpeed describes them.
//
// Source: merge_tp_slices of deepspeed/checkpoint/ds_to_universal.py, and deepspeed/checkpoint/constants.py, of
// DeepSpeed 0.19. Patterns are those of Python's `re.match`: they match at the beginning of a name.
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

// The dict `universal_checkpoint_info`, from a `*_model_states.pt`.
struct ParallelInfo {
  // Parameters that consist of several parameters (query, key and value, for example), each of which is cut by itself.
  struct SubParameters {
    std::vector<std::string> patterns;
    // The shape of the whole parameter, in which a dimension may be -1. The sub-parameters lie along the dimension that
    // is cut. Their sizes are in `sizes`; or, if they are equal, `shape` has their number in the place of this
    // dimension.
    Shape shape;
    std::vector<int64_t> sizes;  // empty: `shape` has their number
    int64_t dimension = 0;
  };

  double version = 0;
  int64_t vocabulary = 0;  // the number of rows of the vocabulary without padding; 0: the file does not say
  std::vector<std::string> vocabulary_patterns;
  std::vector<std::string> pipeline_replicated;  // several stages of a pipeline have them
  std::vector<std::string> replicated;           // all parts have them
  std::vector<std::string> averaged;
  std::vector<std::string> by_column;  // cut along dimension 1; DeepSpeed says "row parallelism"
  std::vector<std::string> two_halves;
  std::vector<SubParameters> sub_parameters;
  // By pattern: for each sub-parameter the size of the part that each slice has.
  std::map<std::string, std::vector<std::vector<int64_t>>> widths;
  std::map<std::string, std::string> unsupported;  // patterns, and why no rule describes the cut

  // Returns true if there is a pattern for any parameter. Some programs write a dict without patterns, only to mark
  // their checkpoints as convertible.
  bool HasPatterns() const;
};

// The places of the slices of a parameter in the whole parameter. Each slice consists of strips: ranges of one
// dimension. Together all strips make up the parameter.
struct MergedShape {
  struct Strip {
    uint32_t part = 0;
    int64_t begin = 0;  // [begin, end) in the slice
    int64_t end = 0;
    int64_t target = 0;  // the index in the parameter that `begin` has
  };
  Shape shape;
  size_t dimension = 0;
  std::vector<Strip> strips;
};

class ParallelRules {
 public:
  // UNIMPLEMENTED (UNSUPPORTED): Cairn cannot match a pattern as Python does, or the patterns together take too much
  // memory.
  static absl::StatusOr<ParallelRules> Create(ParallelInfo info);

  ParallelRules(ParallelRules&&) noexcept;
  ParallelRules& operator=(ParallelRules&&) noexcept;
  ~ParallelRules();

  // Returns true if several stages of a pipeline have copies of the parameter, so that one copy must be used.
  bool IsPipelineReplicated(const std::string& name) const;
  // Finds how slices of the given shapes make up a parameter. Without a pattern they follow one another in dimension 0.
  // DATA_LOSS (BAD_FOREIGN_FILE): the shapes contradict one another or the file's description. UNIMPLEMENTED
  // (UNSUPPORTED): the parameter is the average of its slices, or is cut in a way that the file does not describe, or
  // its name is not ASCII where patterns have classes of Unicode.
  absl::StatusOr<MergedShape> Merge(const std::string& name, std::span<const Shape> slices) const;

 private:
  struct Patterns;
  ParallelRules(ParallelInfo info, std::unique_ptr<Patterns> patterns);

  ParallelInfo info_;
  std::unique_ptr<Patterns> patterns_;
};

// Returns the shape of a parameter of which each slice is a whole copy: it consists of the first slice. Fails as Merge
// does.
absl::StatusOr<MergedShape> MergeReplicas(const std::string& name, std::span<const Shape> slices);

// A box of a tensor. Its elements lie row-major and without gaps from element `offset` of the data on.
struct BoxAt {
  Box box;
  int64_t offset = 0;
};
// Converts `piece`, a box of the slice of `part`, to boxes of the whole parameter and appends them to `boxes`. The
// elements of each are contiguous, as those of `piece` are. Returns false if `boxes` would have more than `most`
// entries.
bool AppendMerged(const MergedShape& merged, uint32_t part, const BoxAt& piece, size_t most, std::vector<BoxAt>& boxes);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_PARALLEL_RULES_H_
