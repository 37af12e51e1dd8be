// The steps that convert source elements to target elements, in order: permute, cast, reshape.
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
    // [d0*d1, prod(rest)] to [d0, d1, *rest]. `canonical` is the second shape; for a part of the tensor d0 is smaller
    kReshape,
    kFlatten,  // the reverse of kReshape
  };
  Kind kind;
  Shape axes;                         // kPermute
  DType dtype = DType::kUnspecified;  // kCast
  Shape canonical;                    // kReshape, kFlatten
};

using ChainId = uint32_t;
inline constexpr ChainId kNoSteps = 0;

// A chain is a list of 0 or more steps. The table stores each chain of a mapping once. Const methods are thread-safe.
class StepTable {
 public:
  StepTable();

  // Returns the number of steps of all chains together. Each chain has its own copy of its steps, so building a chain
  // of n steps adds about n * n / 2.
  size_t total_steps() const { return total_steps_; }

  // Returns the chain with one more step. `text` is the step as Paddle writes it in a postprocess list.
  ChainId Append(ChainId chain, const Step& step, const std::string& text);

  std::span<const Step> steps(ChainId chain) const { return chains_[chain].steps; }
  std::span<const std::string> texts(ChainId chain) const { return chains_[chain].texts; }
  // Returns the dtype in which elements that are stored as `stored` come out of the chain: that of the last cast, or
  // `stored` if there is none.
  DType DtypeAfter(ChainId chain, DType stored) const {
    const DType last_cast = chains_[chain].last_cast;
    return last_cast == DType::kUnspecified ? stored : last_cast;
  }

  // Finds the source box that becomes the target box (`offset`, `shape`). The chain turns a whole block of the source
  // into a whole block of the target; both boxes are relative to these blocks. Returns false, with the reason in
  // `*why`, if the box cuts through elements that a reshape keeps together.
  bool MapBack(ChainId chain, std::span<const int64_t> offset, std::span<const int64_t> shape, Shape& source_offset,
               Shape& source_shape, std::string* why) const;

 private:
  struct Chain {
    std::vector<Step> steps;
    std::vector<std::string> texts;
    bool reshapes = false;
    Shape net;  // only without reshapes: axis i of the result is axis net[i] of the source; empty: all steps are casts
    DType last_cast = DType::kUnspecified;
  };
  std::vector<Chain> chains_;
  size_t total_steps_ = 0;
  absl::flat_hash_map<std::pair<ChainId, std::string>, ChainId> by_text_;
  ChainId last_from_ = UINT32_MAX, last_made_ = kNoSteps;  // most chains are made many times in a row
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_STEPS_H_
