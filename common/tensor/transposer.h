// Copies of planes of elements whose rows in one memory are columns in the other, with casts on the way.
#ifndef CAIRN_COMMON_TENSOR_TRANSPOSER_H_
#define CAIRN_COMMON_TENSOR_TRANSPOSER_H_

#include <cstddef>
#include <cstdint>

#include "common/tensor/cast.h"

namespace cairn {

// Element (r, c) goes from source + r * source_stride + c * (its bytes) to target + c * target_stride + r * (its bytes
// there). Strides in bytes, of any sign; neither memory needs to be aligned.
struct Plane {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t source_stride = 0;
  int64_t target_stride = 0;
};

// Works tile by tile, each 256 bytes wide on either side: runs of fewer bytes than that reach a fraction of the
// memory's speed only (each is another page, and on common processors another bank of memory). Rows of a tile are
// fetched ahead, gathered (and cast, if that makes them no larger) in a buffer whose rows compete for no cache line,
// and transposed in registers.
//
// A target much larger than the caches is written past them, in whole cache lines. Where its rows do not begin with a
// line, the last one of each tile waits in a buffer for its other half, which the next tile has.
//
// All memory is that of the object, 120 KiB. Not thread-safe; any number of planes, one after the other.
class Transposer {
 public:
  static bool IsTransposable(int64_t element_bytes);

  // `element_bytes`: of the source, transposable. `casts` must outlive the object; with fewer than two entries there is
  // none. `past_caches`: the target is large and will not be read soon.
  Transposer(int64_t element_bytes, const CastChain& casts, bool past_caches);

  void Copy(const Plane& plane);
  // After the last plane: what was written past the caches is seen by other threads as other writes are.
  void Finish();

 private:
  static constexpr int64_t kMostGroup = 32;  // rows that are transposed at once
  static constexpr int64_t kMostColumns = 256;
  static constexpr int64_t kCastRows = 8;  // rows of the target that are cast, then written
  static constexpr int64_t kArea = 512;    // columns

  struct Tile;
  void Gather(const Tile& tile, int64_t row, int64_t rows);
  void Transpose(const Tile& tile, int64_t row);
  void Write(const Tile& tile);
  void Cast(const std::byte* from, std::byte* to, int64_t count) const;

  const CastChain& casts_;
  CastFunction cast_ = nullptr;  // of the only cast
  const int64_t source_bytes_;
  int64_t target_bytes_;
  int64_t bytes_;  // the smaller of both: elements are transposed while they are small
  bool cast_first_ = false;
  bool cast_last_ = false;
  const bool past_caches_;
  // Whole blocks are transposed even of a partial tile: what was never filled is never written to a target.
  alignas(64) std::byte group_[kMostGroup * 256];
  // Rows of the target, each with room before it for the line that the last tile left.
  alignas(64) std::byte rows_[kMostColumns * (64 + 256)];
  alignas(64) std::byte cast_rows_[kCastRows * (64 + 256)];
  alignas(64) std::byte carries_[kArea * 64];
};

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TRANSPOSER_H_
