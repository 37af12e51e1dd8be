#include "python/native/file_pieces.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace cairn {
namespace {

using Dimension = TiledCopy::Dimension;

// Neighbours in a file are read together if the gap between them is not wider than this.
constexpr int64_t kMergedGap = int64_t{16} << 10;
// So many targets are filled by one read at most.
constexpr size_t kMostCopies = 256;

// Returns the dimensions with the same elements, outermost first in the order of the file, merged where both memories
// allow it. What is contiguous in both becomes part of `element_bytes`.
std::vector<Dimension> Merged(std::span<const Dimension> dimensions, int64_t& element_bytes) {
  std::vector<Dimension> merged;  // innermost first
  for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
    if (d->extent == 1) continue;
    if (merged.empty() && d->source_stride == element_bytes && d->target_stride == element_bytes) {
      element_bytes *= d->extent;
    } else if (!merged.empty() && d->source_stride == merged.back().source_stride * merged.back().extent &&
               d->target_stride == merged.back().target_stride * merged.back().extent) {
      merged.back().extent *= d->extent;
    } else {
      merged.push_back(*d);
    }
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

// Returns the distance in the file from the first byte to behind the last one.
int64_t SpanOf(std::span<const Dimension> dimensions, int64_t element_bytes) {
  int64_t span = element_bytes;
  for (const Dimension& d : dimensions) span += (d.extent - 1) * d.source_stride;
  return span;
}

class Cutter {
 public:
  Cutter(size_t file, int64_t element_bytes, int64_t widest_gap, std::vector<FilePiece>& pieces)
      : file_(file), element_bytes_(element_bytes), widest_gap_(widest_gap), pieces_(pieces) {}

  void Cut(int64_t offset, std::byte* target, std::span<const Dimension> dimensions) {
    if (dimensions.empty()) return CutStraight(offset, target);
    const int64_t span = SpanOf(dimensions, element_bytes_);
    const Dimension outer = dimensions.front();
    const auto inner = dimensions.subspan(1);
    const int64_t inner_span = SpanOf(inner, element_bytes_);
    const bool one_by_one = inner_span > kBounceBytes || outer.source_stride - inner_span > widest_gap_;
    if (span <= kBounceBytes && !one_by_one && !HasWideGap(inner)) return Add(offset, span, target, dimensions);
    if (one_by_one || outer.source_stride > kBounceBytes - inner_span || HasWideGap(inner)) {
      for (int64_t i = 0; i < outer.extent; ++i) {
        Cut(offset + i * outer.source_stride, target + i * outer.target_stride, inner);
      }
      return;
    }
    std::vector<Dimension> part(dimensions.begin(), dimensions.end());
    const int64_t step = (kBounceBytes - inner_span) / outer.source_stride + 1;
    for (int64_t i = 0; i < outer.extent; i += step) {
      part.front().extent = std::min(step, outer.extent - i);
      Add(offset + i * outer.source_stride, SpanOf(part, element_bytes_), target + i * outer.target_stride, part);
    }
  }

 private:
  bool HasWideGap(std::span<const Dimension> dimensions) const {
    for (size_t i = 0; i < dimensions.size(); ++i) {
      const int64_t inner_span = SpanOf(dimensions.subspan(i + 1), element_bytes_);
      if (dimensions[i].source_stride - inner_span > widest_gap_) return true;
    }
    return false;
  }

  void CutStraight(int64_t offset, std::byte* target) {
    const int64_t end = offset + element_bytes_;
    for (int64_t at = offset; at < end;) {
      const int64_t next = std::min(end, (at / kStraightBytes + 1) * kStraightBytes);
      FilePiece& piece = pieces_.emplace_back();
      piece = {.file = file_, .offset = at, .bytes = next - at, .copies = {}};
      TiledCopy copy;
      copy.target = target + (at - offset);
      copy.element_bytes = next - at;
      piece.copies.push_back({0, std::move(copy)});
      at = next;
    }
  }

  void Add(int64_t offset, int64_t span, std::byte* target, std::span<const Dimension> dimensions) {
    FilePiece& piece = pieces_.emplace_back();
    piece = {.file = file_, .offset = offset, .bytes = span, .copies = {}};
    TiledCopy copy;
    copy.target = target;
    copy.element_bytes = element_bytes_;
    copy.dimensions.assign(dimensions.begin(), dimensions.end());
    copy.Simplify();
    piece.copies.push_back({0, std::move(copy)});
  }

  const size_t file_;
  const int64_t element_bytes_;
  const int64_t widest_gap_;
  std::vector<FilePiece>& pieces_;
};

void CutBox(const FileShard& shard, const Box& box, std::byte* target, std::span<const int64_t> target_strides,
            int64_t widest_gap, std::vector<FilePiece>& pieces) {
  if (box.empty()) return;
  const Shape strides = RowMajorStrides(shard.global_shape);
  int64_t offset = shard.position;
  std::vector<Dimension> dimensions;
  for (size_t i = 0; i < box.ndim(); ++i) {
    const int64_t stride = strides[i] * shard.element_bytes;
    offset += (shard.box.offset[i] + box.offset[i]) * stride;
    dimensions.push_back({box.shape[i], stride, target_strides[i]});
  }
  int64_t element_bytes = shard.element_bytes;
  dimensions = Merged(dimensions, element_bytes);
  Cutter(shard.file, element_bytes, widest_gap, pieces).Cut(offset, target, dimensions);
}

void CutShard(const FileShard& shard, int64_t widest_gap, std::vector<FilePiece>& pieces) {
  std::vector<Box> boxes;  // relative to that of the shard
  AppendBoxes(shard.box.shape, shard.range, boxes);
  std::byte* target = shard.target;
  for (const Box& box : boxes) {
    if (!shard.flat) {
      std::byte* first = shard.target;
      for (size_t i = 0; i < box.ndim(); ++i) first += box.offset[i] * shard.target_strides[i];
      CutBox(shard, box, first, shard.target_strides, widest_gap, pieces);
      continue;
    }
    std::vector<int64_t> strides;
    for (const int64_t elements : RowMajorStrides(box.shape)) strides.push_back(elements * shard.target_strides[0]);
    CutBox(shard, box, target, strides, widest_gap, pieces);
    target += box.size() * shard.target_strides[0];
  }
}

// Adds what `next` reads to `piece`, which lies before it, if one read may serve both.
bool Merge(FilePiece& piece, FilePiece& next, int64_t widest_gap) {
  const int64_t gap = next.offset - piece.end();
  if (piece.file != next.file || gap > std::min(kMergedGap, widest_gap) || gap < 0 ||
      next.end() - piece.offset > kBounceBytes || piece.copies.size() + next.copies.size() > kMostCopies) {
    return false;
  }
  for (FilePiece::Copy& copy : next.copies) {
    copy.offset += next.offset - piece.offset;
    piece.copies.push_back(std::move(copy));
  }
  piece.bytes = next.end() - piece.offset;
  return true;
}

}  // namespace

bool FilePiece::straight() const {
  return copies.size() == 1 && copies[0].copy.dimensions.empty() && copies[0].copy.element_bytes == bytes;
}

bool FilePiece::gathered() const {
  int64_t at = 0;
  for (const Copy& each : copies) {
    if (!each.copy.dimensions.empty() || each.offset != at) return false;
    at += each.copy.element_bytes;
  }
  return at == bytes;
}

std::vector<FilePiece> CutShards(const std::vector<FileShard>& shards, int64_t widest_gap) {
  std::vector<FilePiece> pieces;
  for (const FileShard& shard : shards) CutShard(shard, widest_gap, pieces);
  std::sort(pieces.begin(), pieces.end(), [](const FilePiece& a, const FilePiece& b) {
    return std::tie(a.file, a.offset, a.bytes) < std::tie(b.file, b.offset, b.bytes);
  });
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (Merge(pieces[last], pieces[i], widest_gap)) continue;
    ++last;
    if (last != i) pieces[last] = std::move(pieces[i]);
  }
  if (!pieces.empty()) pieces.resize(last + 1);
  return pieces;
}

}  // namespace cairn
