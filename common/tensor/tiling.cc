#include "common/tensor/tiling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace cairn {
namespace {

// A box whose first axes have been replaced by one of their ends: bit i of `sides` says which end of axis i.
struct Face {
  uint32_t box;
  uint32_t sides;
  int32_t weight;
};

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

class FaceSum {
 public:
  // `axes`: the axes that boxes cut, in the order in which they are replaced by ends.
  FaceSum(size_t ndim, std::vector<size_t> axes, std::span<const PackedBox> boxes, PackedBox whole)
      : ndim_(ndim), axes_(std::move(axes)), boxes_(boxes), whole_(whole) {}

  bool IsZero() {
    std::vector<Face> faces;
    faces.reserve(boxes_.size() + 1);
    for (uint32_t i = 0; i < boxes_.size(); ++i) faces.push_back({i, 0, 1});
    faces.push_back({static_cast<uint32_t>(boxes_.size()), 0, -1});
    for (size_t step = 0; step < axes_.size() && !faces.empty(); ++step) faces = Differentiate(faces, step);
    return faces.empty();
  }

 private:
  static constexpr size_t kAhead = 16;

  PackedBox At(uint32_t box) const { return box < boxes_.size() ? boxes_[box] : whole_; }

  int64_t End(PackedBox box, size_t axis, uint32_t side) const {
    return side ? box[axis] + box[ndim_ + axis] : box[axis];
  }

  uint64_t Hash(PackedBox box, uint32_t sides, size_t fixed) const {
    uint64_t hash = 0;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const size_t axis = axes_[i];
      if (i < fixed) {
        hash = Mix(hash, static_cast<uint64_t>(End(box, axis, sides >> i & 1)));
      } else {
        hash = Mix(hash, static_cast<uint64_t>(box[axis]));
        hash = Mix(hash, static_cast<uint64_t>(box[ndim_ + axis]));
      }
    }
    return Mix(hash, hash >> 32);
  }

  bool Equal(const Face& a, PackedBox b, uint32_t b_sides, size_t fixed) const {
    PackedBox box = At(a.box);
    for (size_t i = 0; i < axes_.size(); ++i) {
      const size_t axis = axes_[i];
      if (i < fixed) {
        if (End(box, axis, a.sides >> i & 1) != End(b, axis, b_sides >> i & 1)) return false;
      } else if (box[axis] != b[axis] || box[ndim_ + axis] != b[ndim_ + axis]) {
        return false;
      }
    }
    return true;
  }

  // Replaces each face by its two ends in the axis axes_[step], adds up equal ones, and keeps those that do not cancel.
  std::vector<Face> Differentiate(const std::vector<Face>& faces, size_t step) {
    const size_t size = std::bit_ceil(faces.size() * 3 + 8);
    const uint64_t mask = size - 1;
    // Holds an index into `sums` plus 1, and 32 bits of the hash.
    std::vector<std::pair<uint32_t, uint32_t>> table(size, {0, 0});
    std::vector<Face> sums;
    sums.reserve(faces.size() + 2);
    std::array<std::pair<uint64_t, uint64_t>, 2 * kAhead> hashes;  // a ring
    const auto hash_both = [&](size_t i) {
      const Face& face = faces[i];
      auto& both = hashes[i % hashes.size()];
      both = {Hash(At(face.box), face.sides, step + 1), Hash(At(face.box), face.sides | 1u << step, step + 1)};
      __builtin_prefetch(&table[both.first & mask]);
      __builtin_prefetch(&table[both.second & mask]);
    };
    for (size_t i = 0; i < std::min(kAhead, faces.size()); ++i) hash_both(i);
    for (size_t i = 0; i < faces.size(); ++i) {
      if (i + kAhead < faces.size()) hash_both(i + kAhead);
      for (uint32_t side = 0; side < 2; ++side) {
        const Face face = {faces[i].box, faces[i].sides | side << step, side ? -faces[i].weight : faces[i].weight};
        const uint64_t hash = side ? hashes[i % hashes.size()].second : hashes[i % hashes.size()].first;
        const auto tag = static_cast<uint32_t>(hash >> 32);
        for (uint64_t slot = hash & mask;; slot = (slot + 1) & mask) {
          auto& [index, slot_tag] = table[slot];
          if (index == 0) {
            sums.push_back(face);
            index = static_cast<uint32_t>(sums.size());
            slot_tag = tag;
            break;
          }
          if (slot_tag == tag && Equal(sums[index - 1], At(face.box), face.sides, step + 1)) {
            sums[index - 1].weight += face.weight;
            break;
          }
        }
      }
    }
    std::erase_if(sums, [](const Face& face) { return face.weight == 0; });
    return sums;
  }

  size_t ndim_;
  std::vector<size_t> axes_;
  std::span<const PackedBox> boxes_;
  PackedBox whole_;
};

bool TilesInOneAxis(std::span<const PackedBox> boxes, size_t axis, size_t ndim, int64_t size) {
  const auto begins_before = [&](PackedBox a, PackedBox b) { return a[axis] < b[axis]; };
  std::vector<PackedBox> sorted;
  if (!std::is_sorted(boxes.begin(), boxes.end(), begins_before)) {
    sorted.assign(boxes.begin(), boxes.end());
    std::sort(sorted.begin(), sorted.end(), begins_before);
    boxes = sorted;
  }
  int64_t end = 0;
  for (PackedBox box : boxes) {
    if (box[axis] != end) return false;
    end += box[ndim + axis];
  }
  return end == size;
}

}  // namespace

namespace {

// An axis that no box cuts does not matter.
std::vector<size_t> CutAxes(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes) {
  const size_t ndim = global_shape.size();
  std::vector<size_t> axes;
  for (size_t d = 0; d < ndim; ++d) {
    const auto cuts = [&](PackedBox box) { return box[ndim + d] != global_shape[d]; };
    if (std::any_of(boxes.begin(), boxes.end(), cuts)) axes.push_back(d);
  }
  return axes;
}

}  // namespace

bool TilesExactly(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes) {
  const size_t ndim = global_shape.size();
  if (std::find(global_shape.begin(), global_shape.end(), 0) != global_shape.end()) return boxes.empty();
  if (boxes.empty()) return false;
  std::vector<size_t> axes = CutAxes(global_shape, boxes);
  if (axes.empty()) return boxes.size() == 1;
  if (axes.size() == 1) return TilesInOneAxis(boxes, axes[0], ndim, global_shape[axes[0]]);
  std::vector<int64_t> whole(ndim, 0);
  whole.insert(whole.end(), global_shape.begin(), global_shape.end());
  if (axes.size() > kMostCutAxes) return false;
  return FaceSum(ndim, std::move(axes), boxes, whole.data()).IsZero();
}

namespace {

struct Part {
  Box region;
  std::vector<uint32_t> boxes;
};

// Merges two faults whose regions share a whole face and have the same boxes.
bool Merge(TilingFault& a, const TilingFault& b) {
  if (a.boxes != b.boxes) return false;
  size_t differing = a.region.ndim();
  for (size_t d = 0; d < a.region.ndim(); ++d) {
    if (a.region.offset[d] == b.region.offset[d] && a.region.shape[d] == b.region.shape[d]) continue;
    if (differing != a.region.ndim()) return false;
    differing = d;
  }
  if (differing == a.region.ndim()) return false;
  const int64_t a_begin = a.region.offset[differing], a_end = a_begin + a.region.shape[differing];
  const int64_t b_begin = b.region.offset[differing], b_end = b_begin + b.region.shape[differing];
  if (a_end != b_begin && b_end != a_begin) return false;
  a.region.offset[differing] = std::min(a_begin, b_begin);
  a.region.shape[differing] += b.region.shape[differing];
  return true;
}

void MergeAll(std::vector<TilingFault>& faults) {
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < faults.size(); ++i) {
      for (size_t j = i + 1; j < faults.size();) {
        if (Merge(faults[i], faults[j])) {
          faults.erase(faults.begin() + static_cast<std::ptrdiff_t>(j));
          again = true;
        } else {
          ++j;
        }
      }
    }
  }
}

}  // namespace

std::vector<TilingFault> FindTilingFaults(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes,
                                          size_t limit) {
  const size_t ndim = global_shape.size();
  std::vector<TilingFault> faults;
  if (std::find(global_shape.begin(), global_shape.end(), 0) != global_shape.end()) return faults;
  if (CutAxes(global_shape, boxes).size() > kMostCutAxes) return {{WholeBox(global_shape), {}}};
  // One fault may first be found as many regions, which are merged in the end.
  const size_t collected = limit * 16;
  std::vector<Part> stack;
  {
    Part whole{WholeBox(global_shape), {}};
    whole.boxes.resize(boxes.size());
    for (uint32_t i = 0; i < boxes.size(); ++i) whole.boxes[i] = i;
    stack.push_back(std::move(whole));
  }
  std::vector<int64_t> pool;
  std::vector<PackedBox> clipped;
  std::vector<int64_t> cuts;
  while (!stack.empty() && faults.size() < collected) {
    Part part = std::move(stack.back());
    stack.pop_back();
    if (part.boxes.empty()) {
      faults.push_back({part.region, {}});
      continue;
    }
    pool.clear();
    for (uint32_t i : part.boxes) {
      for (size_t d = 0; d < ndim; ++d)
        pool.push_back(std::max(boxes[i][d], part.region.offset[d]) - part.region.offset[d]);
      for (size_t d = 0; d < ndim; ++d) {
        const int64_t end = std::min(boxes[i][d] + boxes[i][ndim + d], part.region.offset[d] + part.region.shape[d]);
        pool.push_back(end - std::max(boxes[i][d], part.region.offset[d]));
      }
    }
    clipped.clear();
    for (size_t i = 0; i < part.boxes.size(); ++i) clipped.push_back(pool.data() + i * 2 * ndim);
    if (TilesExactly(part.region.shape, clipped)) continue;
    // The part is divided in the axis with the most borders inside it, at the median border.
    size_t axis = 0, most = 0;
    int64_t cut = 0;
    for (size_t d = 0; d < ndim; ++d) {
      cuts.clear();
      for (PackedBox box : clipped) {
        if (box[d] > 0) cuts.push_back(box[d]);
        if (box[d] + box[ndim + d] < part.region.shape[d]) cuts.push_back(box[d] + box[ndim + d]);
      }
      if (cuts.size() <= most) continue;
      most = cuts.size();
      axis = d;
      auto middle = cuts.begin() + static_cast<std::ptrdiff_t>(cuts.size() / 2);
      std::nth_element(cuts.begin(), middle, cuts.end());
      cut = *middle;
    }
    if (most == 0) {  // every box covers the whole part
      faults.push_back({part.region, part.boxes});
      continue;
    }
    Part low{part.region, {}}, high{part.region, {}};
    low.region.shape[axis] = cut;
    high.region.offset[axis] += cut;
    high.region.shape[axis] -= cut;
    for (size_t i = 0; i < part.boxes.size(); ++i) {
      if (clipped[i][axis] < cut) low.boxes.push_back(part.boxes[i]);
      if (clipped[i][axis] + clipped[i][ndim + axis] > cut) high.boxes.push_back(part.boxes[i]);
    }
    stack.push_back(std::move(high));
    stack.push_back(std::move(low));
  }
  MergeAll(faults);
  if (faults.size() > limit) faults.resize(limit);
  return faults;
}

}  // namespace cairn
