#include "planner/load/common_run.h"

#include <algorithm>
#include <utility>

namespace cairn {
namespace {

int64_t SizeOf(PackedBox box, size_t ndim) {
  int64_t size = 1;
  for (size_t d = 0; d < ndim; ++d) size *= box[ndim + d];
  return size;
}

// Returns the run of two boxes.
std::optional<CommonRun> RunOfBoxes(PackedBox source, PackedBox target, size_t ndim) {
  CommonRun run{0, 0, 1};
  bool scattered = false;
  int64_t source_stride = 1, target_stride = 1;
  // The region is a run in a box if it fills the axes behind the first one along which it has several elements.
  bool fills = true;
  for (size_t d = ndim; d-- > 0;) {
    const int64_t begin = std::max(source[d], target[d]);
    const int64_t size = std::min(source[d] + source[ndim + d], target[d] + target[ndim + d]) - begin;
    if (size <= 0) return CommonRun{};
    scattered |= !fills && size > 1;
    fills &= size == source[ndim + d] && size == target[ndim + d];
    run.source_begin += (begin - source[d]) * source_stride;
    run.target_begin += (begin - target[d]) * target_stride;
    source_stride *= source[ndim + d];
    target_stride *= target[ndim + d];
    run.size *= size;
  }
  return scattered ? std::nullopt : std::optional(run);
}

}  // namespace

std::optional<CommonRun> FindCommonRun(PackedPiece source, PackedPiece target, size_t ndim) {
  if (!source.flat && !target.flat) return RunOfBoxes(source.dims, target.dims, ndim);
  if (!std::equal(source.dims, source.dims + 2 * ndim, target.dims)) return std::nullopt;
  const auto range = [&](PackedPiece piece) {
    return piece.flat ? std::pair(piece.dims[2 * ndim], piece.dims[2 * ndim + 1])
                      : std::pair(int64_t{0}, SizeOf(piece.dims, ndim));
  };
  const auto [source_begin, source_end] = range(source);
  const auto [target_begin, target_end] = range(target);
  const int64_t begin = std::max(source_begin, target_begin), end = std::min(source_end, target_end);
  if (begin >= end) return CommonRun{};
  return CommonRun{begin - source_begin, begin - target_begin, end - begin};
}

}  // namespace cairn
