#include "python/native/fingerprint_box.h"

#include <span>

#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"

namespace cairn {
namespace {

constexpr int64_t kMaxAxes = 64;

}  // namespace

std::optional<FingerprintPart> ReadFingerprintBox(const int64_t*& boxes, int64_t bytes) {
  const int64_t element = *boxes++, axes = *boxes++;
  if (element < 1 || element > 16 || axes < 0 || axes > kMaxAxes) return std::nullopt;
  const std::span<const int64_t> global(boxes, static_cast<size_t>(axes));
  const int64_t *offset = boxes + axes, *shape = offset + axes;
  const Box box = {{offset, shape}, {shape, shape + axes}};
  const FlatRange range = {shape[axes], shape[axes + 1]};
  boxes = shape + axes + 2;
  if (!ElementCount(global).has_value() || !Contains(global, box)) return std::nullopt;
  if (range.begin < 0 || range.begin > range.end || range.end > box.size()) return std::nullopt;
  if (bytes / element != range.size() || bytes % element != 0) return std::nullopt;
  return FingerprintPart(global, box, range, static_cast<int>(element));
}

}  // namespace cairn
