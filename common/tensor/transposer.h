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

// It works tile by tile. Each tile is kRun bytes wide on either side, because with shorter runs memory is many times
// slower: each run begins on another page. The rows of a tile are fetched ahead and gathered (and cast, if that makes
// them no larger) in a buffer, so that rows a power of two apart do not compete for the same lines of the cache, then
// transposed in registers.
//
// A large target is written past the caches, by whole lines, as it would have to be read first otherwise. Where its
// rows do not begin with a line, a tile's last line waits in a buffer for the rest of it, which the next tile has.
//
// All memory is that of the object, 123 KiB. Not thread-safe; any number of planes, one after the other.
class Transposer {
 public:
  static constexpr int64_t kLine = 64;  // bytes of a cache line
  static constexpr int64_t kRun = 256;

  static bool IsTransposable(int64_t element_bytes);

  // `element_bytes`: of the source, transposable. `casts` must outlive the object; with fewer than two entries there is
  // none. `large`: all planes together are larger than the caches near a processor and will not be read soon.
  Transposer(int64_t element_bytes, const CastChain& casts, bool large);

  void Copy(const Plane& plane);
  // After the last plane: what was written past the caches is seen by other threads as other writes are.
  void Finish();

 private:
  static constexpr int64_t kSlot = kLine + kRun;  // of a row of the target, with the line that the last tile left
  static constexpr int64_t kMostGroup = 32;       // rows that are transposed at once
  static constexpr int64_t kMostColumns = kRun;   // of a tile
  static constexpr int64_t kCastRows = 8;         // rows of the target that are cast, then written
  static constexpr int64_t kArea = 512;           // columns

  struct Tile;
  void Gather(const Tile& tile, int64_t row, int64_t rows);
  void Transpose(const Tile& tile, int64_t row, int64_t rows);
  void Write(const Tile& tile);
  void Cast(const std::byte* from, std::byte* to, int64_t count) const;

  const CastChain& casts_;
  CastFunction cast_ = nullptr;  // of the only cast
  const int64_t source_bytes_;
  const int64_t target_bytes_;
  const int64_t bytes_;  // the smaller of both: elements are transposed while they are small
  const bool cast_first_;
  const bool cast_last_;
  const bool large_;
  // Whole blocks are transposed even of a partial tile: what was never filled is never written to a target.
  alignas(kLine) std::byte group_[kMostGroup * kRun];
  alignas(kLine) std::byte rows_[kMostColumns * kSlot];
  alignas(kLine) std::byte cast_rows_[kCastRows * kSlot];
  alignas(kLine) std::byte carries_[kArea * kLine];
};

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TRANSPOSER_H_
