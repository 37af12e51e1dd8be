#include "common/tensor/fingerprint.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace cairn {
namespace {

// A table pays off after so many uses.
constexpr uint64_t kUsesWithoutTable = 64;
// So many sizes of blocks are remembered.
constexpr size_t kMostSizes = 8;

}  // namespace

FingerprintPart::FingerprintPart(std::span<const int64_t> global_shape, const Box& box, FlatRange range,
                                 int element_bytes) {
  const auto element = static_cast<uint64_t>(element_bytes);
  const Shape strides = RowMajorStrides(global_shape);
  // Axes at the end that the box has whole make one run with the axis before them.
  size_t outer = box.ndim();
  while (outer > 0 && box.shape[outer - 1] == global_shape[outer - 1]) --outer;
  if (outer > 0) --outer;
  int64_t run_elements = 1;
  for (size_t axis = outer; axis < box.ndim(); ++axis) run_elements *= box.shape[axis];
  run_bytes_ = static_cast<uint64_t>(run_elements) * element;
  left_ = range.empty() ? 0 : static_cast<uint64_t>(range.size()) * element;
  if (left_ == 0) return;

  uint64_t begin = 0;  // of the range's first run, in elements of the tensor
  for (size_t axis = 0; axis < box.ndim(); ++axis) {
    begin += static_cast<uint64_t>(box.offset[axis]) * static_cast<uint64_t>(strides[axis]);
  }
  int64_t run = range.begin / run_elements;
  const auto within = static_cast<uint64_t>(range.begin % run_elements);
  axes_.resize(outer);
  uint64_t inner = static_cast<uint64_t>(run_elements);  // from the begin of a run to the end of the last one within
  for (size_t axis = outer; axis-- > 0;) {
    const auto stride = static_cast<uint64_t>(strides[axis]);
    axes_[axis].count = box.shape[axis];
    axes_[axis].index = run % box.shape[axis];
    axes_[axis].gap.count = (stride - inner) * element;
    run /= box.shape[axis];
    begin += static_cast<uint64_t>(axes_[axis].index) * stride;
    inner += static_cast<uint64_t>(box.shape[axis] - 1) * stride;
  }
  run_left_ = run_bytes_ - within * element;
  total_ = element;
  for (const int64_t size : global_shape) total_ *= static_cast<uint64_t>(size);
  behind_ = total_ - (begin + within) * element;
}

uint64_t FingerprintPart::Zeros::Append(uint64_t remainder) {
  if (!table.has_value() && ++uses > kUsesWithoutTable) table.emplace(count);
  return table.has_value() ? table->Append(remainder) : AppendZeros64(remainder, count);
}

void FingerprintPart::NextRun() {
  for (size_t i = axes_.size(); i-- > 0;) {
    Axis& axis = axes_[i];
    if (++axis.index == axis.count) {
      axis.index = 0;
      continue;
    }
    remainder_ = axis.gap.Append(remainder_);
    behind_ -= axis.gap.count;
    break;
  }
  run_left_ = run_bytes_;
}

uint64_t FingerprintPart::NextRunBytes() {
  if (left_ == 0) return 0;
  if (run_left_ == 0) NextRun();
  return std::min(run_left_, left_);
}

void FingerprintPart::Add(const char* bytes, size_t size) {
  while (size > 0 && left_ > 0) {
    const uint64_t count = std::min(uint64_t{size}, NextRunBytes());
    remainder_ = ExtendRemainder64(remainder_, bytes, count);
    bytes += count;
    size -= count;
    run_left_ -= count;
    left_ -= count;
    behind_ -= count;
  }
}

void FingerprintPart::AddRemainder(uint64_t remainder, uint64_t size) {
  NextRunBytes();
  auto known = std::find_if(sizes_.begin(), sizes_.end(), [&](const Zeros& zeros) { return zeros.count == size; });
  if (known == sizes_.end()) {
    if (sizes_.size() == kMostSizes) sizes_.clear();
    known = sizes_.insert(sizes_.end(), Zeros{.count = size});
  }
  remainder_ = known->Append(remainder_) ^ remainder;
  run_left_ -= size;
  left_ -= size;
  behind_ -= size;
}

uint64_t FingerprintPart::Value() const { return AppendZeros64(remainder_, behind_); }

uint64_t FingerprintFromParts(uint64_t parts, uint64_t tensor_bytes) { return Crc64FromRemainder(parts, tensor_bytes); }

std::string FingerprintText(uint64_t fingerprint) { return absl::StrFormat("%016x", fingerprint); }

}  // namespace cairn
