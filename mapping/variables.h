// The variables of a mapping. A variable consists of boxes of source tensors. Operations make new variables.
#ifndef CAIRN_MAPPING_VARIABLES_H_
#define CAIRN_MAPPING_VARIABLES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "mapping/steps.h"
#include "mapping/symbol_table.h"

namespace cairn::aoa {

inline constexpr size_t kMaxDims = 32;

using SourceId = uint32_t;
using VariableId = uint32_t;
inline constexpr VariableId kNoVariable = UINT32_MAX;

struct SourceTensor {
  Symbol name;
  DType dtype;  // kUnspecified: not known
  Shape shape;
};

// A box of a source tensor, and the box of the variable that it becomes by the steps of its chain.
struct Slice {
  SourceId source;
  ChainId chain;
  uint32_t dims;  // the index of its four vectors: source offset and shape, own offset and shape
};

struct Variable {
  uint32_t first_slice;
  uint32_t slice_count;
  uint32_t shape;  // the index of its shape
  uint8_t ndim;
  int8_t sorted_axis;  // the slices ascend along this axis and do not overlap; -1: no such axis is known
  DType source_dtype;  // of all sources, before casts
  DType dtype;         // after casts
};

// All variables of a mapping. A variable never changes, so a temporary may have any number of readers. A renamed
// variable shares its slices with the old one. Const methods are thread-safe.
//
// Operations return the new variable, or an error with kMappingShape or kMappingDtype. Memory is linear in the slices,
// of which there may be 2^31 in all.
class Variables {
 public:
  SourceId AddSource(SourceTensor tensor);
  const SourceTensor& source(SourceId id) const { return sources_[id]; }

  // Makes room for the sources and about `more` other variables, of one slice and two dimensions each.
  void Reserve(size_t sources, size_t more);

  VariableId Whole(SourceId source);

  const Variable& variable(VariableId id) const { return variables_[id]; }
  std::span<const int64_t> shape(VariableId id) const {
    return {dims_.data() + variables_[id].shape, variables_[id].ndim};
  }
  std::span<const Slice> slices(VariableId id) const {
    return {slices_.data() + variables_[id].first_slice, variables_[id].slice_count};
  }
  const StepTable& steps() const { return steps_; }

  VariableId Rename(VariableId from);
  // A function that returns the name of a part, by its index, for errors.
  using PartName = std::function<std::string(size_t)>;
  absl::StatusOr<VariableId> Merge(std::span<const VariableId> parts, int64_t axis, const PartName& name);
  // `sizes` must add up to the axis' length.
  absl::StatusOr<std::vector<VariableId>> Split(VariableId from, int64_t axis, std::span<const int64_t> sizes);
  absl::StatusOr<VariableId> Permute(VariableId from, const Shape& axes, const std::string& text);
  absl::StatusOr<VariableId> Cast(VariableId from, DType dtype);
  // Changes [d0, d1, *rest] to [d0*d1, prod(rest)], or the reverse, depending on the shape of `from`. `canonical` is
  // the first of the two shapes. `wanted` is the target's shape, or null if it is not known: a variable that already
  // has this shape stays as it is.
  absl::StatusOr<VariableId> Reshape(VariableId from, const Shape& canonical, const std::string& text,
                                     const Shape* wanted);

  // A part of a box of a variable, and the source box that fills it.
  struct Part {
    Box target;
    SourceId source;
    Box source_box;
    ChainId chain;
  };
  absl::Status Find(VariableId id, const Box& box, std::vector<Part>& found) const;

 private:
  uint32_t AddDims(std::span<const int64_t> dims);
  absl::Status CheckAxis(VariableId id, int64_t axis) const;
  VariableId AddVariable(std::span<const int64_t> shape, uint32_t first_slice, DType source_dtype, DType dtype);
  // Returns the slices that may meet [from, to) along `axis`, as indexes relative to the variable's first slice.
  std::pair<uint32_t, uint32_t> Near(const Variable& variable, int64_t axis, int64_t from, int64_t to) const;
  size_t SourceDims(const Slice& slice) const { return sources_[slice.source].shape.size(); }
  const int64_t* SourceOffset(const Slice& slice) const { return dims_.data() + slice.dims; }
  const int64_t* OwnOffset(const Slice& slice) const { return SourceOffset(slice) + 2 * SourceDims(slice); }

  std::vector<SourceTensor> sources_;
  std::vector<Variable> variables_;
  std::vector<Slice> slices_;
  std::vector<int64_t> dims_;
  StepTable steps_;
};

// Returns false if both dtypes are known and differ.
inline bool MayBeEqual(DType a, DType b) { return a == b || a == DType::kUnspecified || b == DType::kUnspecified; }

// Returns true for dtypes between which a mapping may cast: plain floating point. Casts of the others would be wrong
// without scales (float8, float4, quantised integers), or they are no weights.
bool IsCastable(DType dtype);
std::string CastableNames();

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_VARIABLES_H_
