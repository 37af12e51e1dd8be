#include "mapping/variables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::aoa {
namespace {

constexpr DType kCastable[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

// A variable with fewer slices than this is searched slice by slice.
constexpr uint32_t kWorthSorting = 8;

// The most slices of all variables together; they take about a gigabyte. Without a limit, lines that merge each result
// with itself would double the slices with each line, until the mapping of one rank fills the coordinator's memory. A
// mapping of a million tensors has a few slices for each.
constexpr size_t kMostSlices = size_t{1} << 23;
constexpr size_t kMostDims = size_t{1} << 27;
// The most steps of all chains together. A chain of n steps takes room for n * n / 2 steps, so this is one chain of 700
// steps, or many short ones.
constexpr size_t kMostSteps = size_t{1} << 18;

absl::Status CheckRoom(size_t slices, size_t dims) {
  if (slices <= kMostSlices && dims <= kMostDims) return absl::OkStatus();
  return MakeError(Reason::kMemoryLimit,
                   absl::StrCat("the mapping cuts its tensors into more than ", kMostSlices,
                                " pieces: does each line merge or split the result of the line before it?"));
}

absl::Status CheckSteps(const StepTable& steps) {
  if (steps.total_steps() <= kMostSteps) return absl::OkStatus();
  return MakeError(Reason::kMemoryLimit,
                   absl::StrCat("the mapping's tensors go through more than ", kMostSteps,
                                " steps: does each line permute, cast or reshape the result of the line before it?"));
}

std::string DtypeText(DType dtype) { return dtype == DType::kUnspecified ? "unknown" : std::string(NameOf(dtype)); }

}  // namespace

bool IsCastable(DType dtype) {
  return std::find(std::begin(kCastable), std::end(kCastable), dtype) != std::end(kCastable);
}

std::string CastableNames() {
  std::string names;
  for (DType dtype : kCastable) absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(NameOf(dtype)));
  return names;
}

SourceId Variables::AddSource(SourceTensor tensor) {
  sources_.push_back(std::move(tensor));
  return static_cast<SourceId>(sources_.size() - 1);
}

void Variables::Reserve(size_t sources, size_t more) {
  sources_.reserve(sources_.size() + sources);
  variables_.reserve(variables_.size() + more);
  slices_.reserve(slices_.size() + more);
  dims_.reserve(dims_.size() + 10 * more);
}

uint32_t Variables::AddDims(std::span<const int64_t> dims) {
  const auto at = static_cast<uint32_t>(dims_.size());
  dims_.insert(dims_.end(), dims.begin(), dims.end());
  return at;
}

VariableId Variables::AddVariable(std::span<const int64_t> shape, uint32_t first_slice, DType source_dtype,
                                  DType dtype) {
  Variable variable{.first_slice = first_slice,
                    .slice_count = static_cast<uint32_t>(slices_.size()) - first_slice,
                    .shape = AddDims(shape),
                    .ndim = static_cast<uint8_t>(shape.size()),
                    .sorted_axis = -1,
                    .source_dtype = source_dtype,
                    .dtype = dtype};
  if (variable.slice_count >= kWorthSorting) {
    for (size_t axis = 0; axis < shape.size() && variable.sorted_axis < 0; ++axis) {
      bool sorted = true;
      int64_t end = 0;
      for (uint32_t i = 0; i < variable.slice_count && sorted; ++i) {
        const int64_t* own = OwnOffset(slices_[first_slice + i]);
        sorted = own[axis] >= end;
        end = own[axis] + own[axis + shape.size()];
      }
      if (sorted) variable.sorted_axis = static_cast<int8_t>(axis);
    }
  }
  variables_.push_back(variable);
  return static_cast<VariableId>(variables_.size() - 1);
}

VariableId Variables::Whole(SourceId id) {
  const SourceTensor& source = sources_[id];
  const size_t n = source.shape.size();
  const auto first = static_cast<uint32_t>(slices_.size());
  const auto dims = static_cast<uint32_t>(dims_.size());
  dims_.resize(dims + 4 * n);  // both offsets, in the source and in the variable, are 0
  std::copy_n(source.shape.begin(), n, dims_.begin() + dims + n);
  const auto shape = static_cast<uint32_t>(dims + 3 * n);
  std::copy_n(source.shape.begin(), n, dims_.begin() + shape);
  slices_.push_back({id, kNoSteps, dims});
  variables_.push_back({.first_slice = first,
                        .slice_count = 1,
                        .shape = shape,
                        .ndim = static_cast<uint8_t>(n),
                        .sorted_axis = -1,
                        .source_dtype = source.dtype,
                        .dtype = source.dtype});
  return static_cast<VariableId>(variables_.size() - 1);
}

VariableId Variables::Rename(VariableId from) {
  variables_.push_back(Variable(variables_[from]));
  return static_cast<VariableId>(variables_.size() - 1);
}

absl::Status Variables::CheckAxis(VariableId id, int64_t axis) const {
  const Variable& variable = variables_[id];
  if (axis >= 0 && axis < variable.ndim) return absl::OkStatus();
  return MakeError(Reason::kMappingShape,
                   absl::StrCat("axis ", axis, " is out of range for shape ", ShapeToString(shape(id)), " with ",
                                static_cast<int>(variable.ndim), " dimensions"));
}

absl::StatusOr<VariableId> Variables::Merge(std::span<const VariableId> parts, int64_t axis, const PartName& name) {
  CAIRN_RETURN_IF_ERROR(CheckAxis(parts[0], axis));
  const auto first_shape = shape(parts[0]);
  Shape merged(first_shape.begin(), first_shape.end());
  merged[axis] = 0;
  DType source_dtype = DType::kUnspecified, dtype = DType::kUnspecified;
  bool same_source = true, same_dtype = true;
  size_t new_dims = merged.size(), new_slices = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Variable& part = variables_[parts[p]];
    const auto part_shape = shape(parts[p]);
    bool fits = part_shape.size() == merged.size();
    for (size_t i = 0; fits && i < merged.size(); ++i) {
      fits = static_cast<int64_t>(i) == axis || part_shape[i] == merged[i];
    }
    if (!fits) {
      return MakeError(
          Reason::kMappingShape,
          absl::StrCat("a merge along axis ", axis, " needs equal other dimensions, but ", name(0), " has shape ",
                       ShapeToString(shape(parts[0])), " and ", name(p), " has ", ShapeToString(part_shape)));
    }
    if (__builtin_add_overflow(merged[axis], part_shape[axis], &merged[axis])) {
      return MakeError(Reason::kShapeOverflow, "the merged dimension exceeds 2^63");
    }
    same_source &= MayBeEqual(source_dtype, part.source_dtype);
    same_dtype &= MayBeEqual(dtype, part.dtype);
    if (!same_source && !same_dtype) {
      return MakeError(Reason::kMappingDtype,
                       absl::StrCat("all parts of a merge must have the same dtype, but ", name(p), " is ",
                                    DtypeText(part.dtype), " and those before it are ", DtypeText(dtype)));
    }
    if (source_dtype == DType::kUnspecified) source_dtype = part.source_dtype;
    if (dtype == DType::kUnspecified) dtype = part.dtype;
    new_slices += part.slice_count;
    new_dims += part.slice_count * 4 * merged.size();
  }
  if (!ElementCount(merged).has_value()) {
    return MakeError(Reason::kShapeOverflow, absl::StrCat("shape ", ShapeToString(merged), " exceeds 2^63 elements"));
  }
  CAIRN_RETURN_IF_ERROR(CheckRoom(slices_.size() + new_slices, dims_.size() + new_dims));
  const auto first = static_cast<uint32_t>(slices_.size());
  int64_t shift = 0;
  for (VariableId id : parts) {
    const Variable part = variables_[id];
    for (uint32_t i = 0; i < part.slice_count; ++i) {
      Slice slice = slices_[part.first_slice + i];
      const size_t source_dims = 2 * SourceDims(slice), count = source_dims + 2 * merged.size();
      const uint32_t from = slice.dims;
      slice.dims = static_cast<uint32_t>(dims_.size());
      dims_.resize(dims_.size() + count);
      std::copy_n(dims_.begin() + from, count, dims_.begin() + slice.dims);
      dims_[slice.dims + source_dims + axis] += shift;
      slices_.push_back(slice);
    }
    shift += shape(id)[axis];
  }
  return AddVariable(merged, first, same_source ? source_dtype : DType::kUnspecified,
                     same_dtype ? dtype : DType::kUnspecified);
}

std::pair<uint32_t, uint32_t> Variables::Near(const Variable& variable, int64_t axis, int64_t from, int64_t to) const {
  if (variable.sorted_axis != axis) return {0, variable.slice_count};
  const Slice* slices = slices_.data() + variable.first_slice;
  const auto begin = std::partition_point(slices, slices + variable.slice_count, [&](const Slice& slice) {
    const int64_t* own = OwnOffset(slice);
    return own[axis] + own[axis + variable.ndim] <= from;
  });
  const auto end = std::partition_point(begin, slices + variable.slice_count,
                                        [&](const Slice& slice) { return OwnOffset(slice)[axis] < to; });
  return {static_cast<uint32_t>(begin - slices), static_cast<uint32_t>(end - slices)};
}

absl::StatusOr<std::vector<VariableId>> Variables::Split(VariableId from, int64_t axis,
                                                         std::span<const int64_t> sizes) {
  CAIRN_RETURN_IF_ERROR(CheckAxis(from, axis));
  const Variable whole = variables_[from];
  const auto whole_shape = shape(from);
  Shape piece(whole_shape.begin(), whole_shape.end());
  const size_t n = piece.size();
  std::vector<VariableId> pieces;
  pieces.reserve(sizes.size());
  Shape offset, extent, source_offset, source_shape;
  std::string why;
  int64_t start = 0;
  for (int64_t size : sizes) {
    const auto first = static_cast<uint32_t>(slices_.size());
    const auto [begin, end] = Near(whole, axis, start, start + size);
    for (uint32_t i = begin; i < end; ++i) {
      Slice slice = slices_[whole.first_slice + i];
      const int64_t* own = OwnOffset(slice);
      const int64_t low = std::max(start, own[axis]);
      const int64_t high = std::min(start + size, own[axis] + own[n + axis]);
      if (low >= high) continue;
      CAIRN_RETURN_IF_ERROR(CheckRoom(slices_.size() + 1, dims_.size() + 4 * kMaxDims));
      // Offsets are relative to the slice while the source box is searched, and then relative to the piece.
      offset.assign(n, 0);
      extent.assign(own + n, own + 2 * n);
      offset[axis] = low - own[axis];
      extent[axis] = high - low;
      if (!steps_.MapBack(slice.chain, offset, extent, source_offset, source_shape, &why)) {
        return MakeError(Reason::kMappingShape, why);
      }
      for (size_t k = 0; k < source_offset.size(); ++k) source_offset[k] += SourceOffset(slice)[k];
      offset.assign(own, own + n);
      offset[axis] = low - start;
      slice.dims = AddDims(source_offset);
      AddDims(source_shape);
      AddDims(offset);
      AddDims(extent);
      slices_.push_back(slice);
    }
    piece[axis] = size;
    pieces.push_back(AddVariable(piece, first, whole.source_dtype, whole.dtype));
    start += size;
  }
  return pieces;
}

absl::StatusOr<VariableId> Variables::Permute(VariableId from, const Shape& axes, const std::string& text) {
  const Variable variable = variables_[from];
  const size_t n = variable.ndim;
  bool seen[kMaxDims] = {};
  bool valid = axes.size() == n;
  for (size_t i = 0; valid && i < n; ++i) {
    valid = axes[i] >= 0 && axes[i] < static_cast<int64_t>(n) && !std::exchange(seen[axes[i]], true);
  }
  if (!valid) {
    return MakeError(Reason::kMappingShape, absl::StrCat("permute='", text, "' is no permutation of the ", n,
                                                         " axes of shape ", ShapeToString(shape(from))));
  }
  const Step step{.kind = Step::Kind::kPermute, .axes = axes};
  const auto first = static_cast<uint32_t>(slices_.size());
  for (uint32_t i = 0; i < variable.slice_count; ++i) {
    Slice slice = slices_[variable.first_slice + i];
    const size_t source_dims = 2 * SourceDims(slice), count = source_dims + 2 * n;
    const uint32_t old = slice.dims;
    CAIRN_RETURN_IF_ERROR(CheckRoom(slices_.size() + 1, dims_.size() + count));
    slice.dims = static_cast<uint32_t>(dims_.size());
    dims_.resize(dims_.size() + count);
    std::copy_n(dims_.begin() + old, source_dims, dims_.begin() + slice.dims);
    for (size_t k = 0; k < n; ++k) {
      dims_[slice.dims + source_dims + k] = dims_[old + source_dims + axes[k]];
      dims_[slice.dims + source_dims + n + k] = dims_[old + source_dims + n + axes[k]];
    }
    CAIRN_RETURN_IF_ERROR(CheckSteps(steps_));
    slice.chain = steps_.Append(slice.chain, step, text);
    slices_.push_back(slice);
  }
  Shape permuted(n);
  for (size_t k = 0; k < n; ++k) permuted[k] = shape(from)[axes[k]];
  return AddVariable(permuted, first, variable.source_dtype, variable.dtype);
}

absl::StatusOr<VariableId> Variables::Cast(VariableId from, DType dtype) {
  const Variable variable = variables_[from];
  const auto first = static_cast<uint32_t>(slices_.size());
  const Step step{.kind = Step::Kind::kCast, .dtype = dtype};
  const std::string name(NameOf(dtype));
  for (uint32_t i = 0; i < variable.slice_count; ++i) {
    Slice slice = slices_[variable.first_slice + i];
    const DType source = sources_[slice.source].dtype;
    if (source != DType::kUnspecified && !IsCastable(source)) {
      return MakeError(Reason::kMappingDtype,
                       absl::StrCat("a cast of ", DtypeText(source), " to ", DtypeText(dtype),
                                    " is not safe: a mapping casts between ", CastableNames(), " only"));
    }
    CAIRN_RETURN_IF_ERROR(CheckRoom(slices_.size() + 1, dims_.size()));
    CAIRN_RETURN_IF_ERROR(CheckSteps(steps_));
    slice.chain = steps_.Append(slice.chain, step, name);
    slices_.push_back(slice);
  }
  const auto same = shape(from);
  return AddVariable(Shape(same.begin(), same.end()), first, variable.source_dtype, dtype);
}

absl::StatusOr<VariableId> Variables::Reshape(VariableId from, const Shape& canonical, const std::string& text,
                                              const Shape* wanted) {
  const Variable variable = variables_[from];
  const auto view = shape(from);
  const Shape have(view.begin(), view.end());
  if (canonical.size() < 3) {
    return MakeError(Reason::kMappingShape,
                     absl::StrCat("reshape='", text, "' must have at least 3 dimensions: [d0, d1, ...]"));
  }
  const std::span<const int64_t> dims(canonical);
  if (canonical.size() > kMaxDims || !ElementCount(dims.first(2)).has_value() ||
      !ElementCount(dims.subspan(2)).has_value() || !ElementCount(dims).has_value()) {
    return MakeError(Reason::kMappingShape, absl::StrCat("reshape='", text, "' is too large"));
  }
  Shape flat = {canonical[0] * canonical[1], 1};
  for (size_t i = 2; i < canonical.size(); ++i) flat[1] *= canonical[i];
  if (wanted != nullptr && *wanted == have) return Rename(from);
  const bool flattens = have == canonical;
  if ((!flattens && have != flat) || (wanted != nullptr && *wanted != (flattens ? flat : canonical))) {
    return MakeError(Reason::kMappingShape,
                     absl::StrCat("reshape='", text, "' maps between ", ShapeToString(canonical), " and ",
                                  ShapeToString(flat), ", but the source has shape ", ShapeToString(have),
                                  wanted == nullptr ? std::string()
                                                    : absl::StrCat(" and the destination ", ShapeToString(*wanted))));
  }
  const auto first = static_cast<uint32_t>(slices_.size());
  const size_t n = have.size(), m = flattens ? 2 : canonical.size();
  const int64_t width = canonical[1];
  const std::string marker = absl::StrCat(flattens ? "flatten:" : "reshape:", text);
  const Step step{.kind = flattens ? Step::Kind::kFlatten : Step::Kind::kReshape, .canonical = canonical};
  for (uint32_t i = 0; i < variable.slice_count; ++i) {
    Slice slice = slices_[variable.first_slice + i];
    const size_t source_dims = 2 * SourceDims(slice);
    const Shape own(OwnOffset(slice), OwnOffset(slice) + 2 * n);
    bool aligned = true;
    if (flattens) {
      for (size_t k = 1; k < n; ++k) aligned &= own[k] == 0 && own[n + k] == canonical[k];
    } else {
      aligned = width > 0 && own[0] % width == 0 && own[2] % width == 0 && own[1] == 0 && own[3] == flat[1];
    }
    if (!aligned) {
      return MakeError(
          Reason::kMappingShape,
          absl::StrCat("reshape='", text, "': the part at ",
                       ToString(Box{Shape(own.begin(), own.begin() + n), Shape(own.begin() + n, own.end())}),
                       " is not aligned to blocks of ", width, " whole rows"));
    }
    CAIRN_RETURN_IF_ERROR(CheckRoom(slices_.size() + 1, dims_.size() + source_dims + 2 * m));
    const uint32_t old = slice.dims;
    slice.dims = static_cast<uint32_t>(dims_.size());
    dims_.resize(dims_.size() + source_dims + 2 * m);
    std::copy_n(dims_.begin() + old, source_dims, dims_.begin() + slice.dims);
    int64_t* offset = dims_.data() + slice.dims + source_dims;
    int64_t* extent = offset + m;
    if (flattens) {
      offset[0] = own[0] * width;
      offset[1] = 0;
      extent[0] = own[n] * width;
      extent[1] = flat[1];
    } else {
      std::fill(offset, offset + m, 0);
      std::copy(canonical.begin(), canonical.end(), extent);
      offset[0] = own[0] / width;
      extent[0] = own[2] / width;
    }
    CAIRN_RETURN_IF_ERROR(CheckSteps(steps_));
    slice.chain = steps_.Append(slice.chain, step, marker);
    slices_.push_back(slice);
  }
  return AddVariable(flattens ? flat : canonical, first, variable.source_dtype, variable.dtype);
}

absl::Status Variables::Find(VariableId id, const Box& box, std::vector<Part>& found) const {
  const Variable& variable = variables_[id];
  const size_t n = variable.ndim;
  std::pair<uint32_t, uint32_t> near = {0, variable.slice_count};
  if (variable.sorted_axis >= 0) {
    const auto axis = static_cast<size_t>(variable.sorted_axis);
    near = Near(variable, variable.sorted_axis, box.offset[axis], box.offset[axis] + box.shape[axis]);
  }
  Shape offset(n);
  std::string why;
  for (uint32_t i = near.first; i < near.second; ++i) {
    const Slice& slice = slices_[variable.first_slice + i];
    const int64_t* own = OwnOffset(slice);
    Part part;
    part.target.offset.resize(n);
    part.target.shape.resize(n);
    bool meets = true;
    for (size_t k = 0; k < n && meets; ++k) {
      const int64_t low = std::max(box.offset[k], own[k]);
      const int64_t high = std::min(box.offset[k] + box.shape[k], own[k] + own[n + k]);
      meets = low < high;
      part.target.offset[k] = low;
      part.target.shape[k] = high - low;
      offset[k] = low - own[k];
    }
    if (!meets) continue;
    if (!steps_.MapBack(slice.chain, offset, part.target.shape, part.source_box.offset, part.source_box.shape, &why)) {
      return MakeError(Reason::kMappingShape, why);
    }
    const int64_t* base = SourceOffset(slice);
    for (size_t k = 0; k < part.source_box.offset.size(); ++k) part.source_box.offset[k] += base[k];
    part.source = slice.source;
    part.chain = slice.chain;
    found.push_back(std::move(part));
  }
  return absl::OkStatus();
}

}  // namespace cairn::aoa
