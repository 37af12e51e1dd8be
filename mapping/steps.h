// Describes the steps that source elements take on their way into a target: permute, cast, reshape, in order.
#ifndef CAIRN_MAPPING_STEPS_H_
#define CAIRN_MAPPING_STEPS_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"

namespace cairn::aoa {

struct Step {
  enum class Kind : uint8_t {
    kPermute,  // axis i of the result is axis axes[i] of the input
    kCast,     // to `dtype`
    kReshape,  // [d0*d1, prod(rest)] to [d0, d1, *rest]; `canonical` is the latter; for a part, d0 is smaller
    kFlatten,  // the reverse
  };
  Kind kind;
  Shape axes;                         // kPermute
  DType dtype = DType::kUnspecified;  // kCast
  Shape canonical;                    // kReshape, kFlatten
};

using ChainId = uint32_t;
inline constexpr ChainId kNoSteps = 0;

// All chains of a mapping, each stored once; const access is thread-safe. A chain is 0 or more steps.
class StepTable {
 public:
  StepTable();

  // How many steps all chains have together. Each chain has its own, so a chain of n steps has made about n * n / 2.
  size_t total_steps() const { return total_steps_; }

  // Returns the chain with one more step. `text` is the step as Paddle writes it in a postprocess list.
  ChainId Append(ChainId chain, const Step& step, const std::string& text);

  std::span<const Step> steps(ChainId chain) const { return chains_[chain].steps; }
  std::span<const std::string> texts(ChainId chain) const { return chains_[chain].texts; }
  // Returns the dtype of the last cast; kUnspecified if there is none.
  DType LastCast(ChainId chain) const { return chains_[chain].last_cast; }

  // Finds the box of the source that becomes `part`. Both boxes are relative to the blocks that the whole chain turns
  // into each other; the target's has the shape `block`. Returns false if `part` cuts through what a reshape keeps
  // together, and puts the reason into `*why`.
  bool MapBack(ChainId chain, std::span<const int64_t> offset, std::span<const int64_t> shape, Shape& source_offset,
               Shape& source_shape, std::string* why) const;

 private:
  struct Chain {
    std::vector<Step> steps;
    std::vector<std::string> texts;
    bool reshapes = false;
    Shape net;  // without reshapes: axis i of the result is axis net[i] of the source; empty: all steps are casts
    DType last_cast = DType::kUnspecified;
  };
  std::vector<Chain> chains_;
  size_t total_steps_ = 0;
  absl::flat_hash_map<std::pair<ChainId, std::string>, ChainId> by_text_;
  ChainId last_from_ = UINT32_MAX, last_made_ = kNoSteps;  // most chains are made many times in a row
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_STEPS_H_
