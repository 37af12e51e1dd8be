#include "planner/layout/validation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/tiling.h"

namespace cairn {
namespace {

// At most this many faults of one tensor are reported; more would not help.
constexpr size_t kFaultsPerTensor = 16;

struct BoxesOfTensor {
  std::vector<PackedBox> boxes;
  std::vector<uint32_t> shards;  // parallel to `boxes`: the shard that a box belongs to
  std::vector<int64_t> pool;     // the boxes that are parts of flat pieces
};

bool SameBox(const LayoutSet& set, uint32_t a, uint32_t b, size_t ndim) {
  return std::equal(set.DimsOf(a), set.DimsOf(a) + 2 * ndim, set.DimsOf(b));
}

void AppendFlatPiece(const LayoutSet& set, uint32_t shard, size_t ndim, std::vector<std::pair<size_t, size_t>>& at,
                     BoxesOfTensor& out) {
  const Box box = set.BoxOf(shard);
  std::vector<Box> parts;
  AppendBoxes(box.shape, *set.FlatRangeOf(shard), parts);
  for (const Box& part : parts) {
    at.emplace_back(out.boxes.size(), out.pool.size());
    for (size_t d = 0; d < ndim; ++d) out.pool.push_back(box.offset[d] + part.offset[d]);
    out.pool.insert(out.pool.end(), part.shape.begin(), part.shape.end());
    out.boxes.push_back(nullptr);  // set when the pool no longer grows, because it moves while it grows
    out.shards.push_back(shard);
  }
}

// Shards come ordered by box, then by flat range, so the pieces of one box are neighbours.
BoxesOfTensor AsBoxes(const LayoutSet& set, std::span<const uint32_t> shards, size_t ndim) {
  BoxesOfTensor out;
  out.boxes.reserve(shards.size());
  out.shards.reserve(shards.size());
  std::vector<std::pair<size_t, size_t>> at;  // index of a box, and its place in the pool
  for (size_t i = 0; i < shards.size();) {
    if (!set.IsFlat(shards[i])) {
      out.boxes.push_back(set.DimsOf(shards[i]));
      out.shards.push_back(shards[i++]);
      continue;
    }
    size_t end = i;
    int64_t filled = 0;
    bool tiled = true;
    while (end < shards.size() && set.IsFlat(shards[end]) && SameBox(set, shards[i], shards[end], ndim)) {
      const FlatRange range = *set.FlatRangeOf(shards[end++]);
      tiled = tiled && range.begin == filled;
      filled = range.end;
    }
    if (tiled && filled == set.BoxOf(shards[i]).size()) {
      out.boxes.push_back(set.DimsOf(shards[i]));
      out.shards.push_back(shards[i]);
    } else {
      for (size_t k = i; k < end; ++k) AppendFlatPiece(set, shards[k], ndim, at, out);
    }
    i = end;
  }
  for (const auto& [box, place] : at) out.boxes[box] = out.pool.data() + place;
  return out;
}

void Report(const LayoutSet& set, const LayoutSet::Tensor& tensor, std::span<const uint32_t> shards,
            const BoxesOfTensor& boxes, const TilingFault& found, FaultList& faults) {
  Fault fault;
  fault.name = tensor.name;
  fault.offset.assign(found.region.offset.begin(), found.region.offset.end());
  fault.shape.assign(found.region.shape.begin(), found.region.shape.end());
  if (found.boxes.empty()) {
    fault.reason = Reason::kShardGap;
    fault.ranks = set.RanksOf(shards);
    fault.message = absl::StrCat("tensor ", tensor.name, " of shape ", ShapeToString(tensor.global_shape),
                                 ": no rank holds ", ToString(found.region));
    if (fault.ranks.empty()) {
      absl::StrAppend(&fault.message, "; it is declared, but no rank holds a part of it");
    } else {
      absl::StrAppend(&fault.message, "; parts of it are held by ", RanksText(fault.ranks));
    }
  } else {
    fault.reason = Reason::kShardOverlap;
    std::vector<uint32_t> overlapping;
    for (uint32_t box : found.boxes) overlapping.push_back(boxes.shards[box]);
    overlapping.erase(std::unique(overlapping.begin(), overlapping.end()), overlapping.end());
    fault.ranks = set.RanksOf(overlapping);
    fault.message =
        absl::StrCat("tensor ", tensor.name, ": ", ToString(found.region), " is held by different shards: ");
    for (size_t i = 0; i < overlapping.size() && i < 4; ++i) {
      absl::StrAppend(&fault.message, i == 0 ? "" : ", ", set.Describe(overlapping[i]), " on ",
                      RanksText(set.RanksOf(std::span(&overlapping[i], 1))));
    }
    if (overlapping.size() > 4) absl::StrAppend(&fault.message, " and ", overlapping.size() - 4, " more");
  }
  faults.Add(std::move(fault));
}

}  // namespace

bool IsTiled(const LayoutSet& set, uint32_t tensor) {
  const Shape& shape = set.tensors()[tensor].global_shape;
  return TilesExactly(shape, AsBoxes(set, set.ShardsOf(tensor), shape.size()).boxes);
}

void ValidateTiling(const LayoutSet& set, FaultList& faults) {
  if (!set.complete()) return;
  if (set.tensors().empty() && set.objects().empty()) {
    if (faults.empty()) {
      faults.Add({Reason::kEmptyLayout, "", {}, {}, {}, "no rank declares a tensor or an object"});
    }
    return;
  }
  for (uint32_t i = 0; i < set.tensors().size(); ++i) {
    const LayoutSet::Tensor& tensor = set.tensors()[i];
    if (tensor.disputed) continue;
    const std::span<const uint32_t> shards = set.ShardsOf(i);
    const BoxesOfTensor boxes = AsBoxes(set, shards, tensor.global_shape.size());
    if (TilesExactly(tensor.global_shape, boxes.boxes)) continue;
    for (const TilingFault& found : FindTilingFaults(tensor.global_shape, boxes.boxes, kFaultsPerTensor)) {
      Report(set, tensor, shards, boxes, found, faults);
    }
  }
}

}  // namespace cairn
