// Copies planes of elements whose rows in one memory are columns in the other, with casts on the way.
#ifndef CAIRN_COMMON_TENSOR_TRANSPOSER_H_
#define CAIRN_COMMON_TENSOR_TRANSPOSER_H_

#include <cstddef>
#include <cstdint>

#include "common/tensor/cast.h"

namespace cairn {

// Element (r, c) goes from source + r * source_stride + c * (its bytes) to target + c * target_stride + r * (its bytes
// there). Strides are in bytes and may be negative. Neither memory needs to be aligned.
struct Plane {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t source_stride = 0;
  int64_t target_stride = 0;
};

// Works tile by tile. Each tile is kRun bytes wide on either side; with shorter runs memory is many times slower,
// because each run begins on another page. The rows of a tile are fetched ahead and gathered in a buffer (and cast
// there, if that makes them no larger), so that rows a power of two apart do not compete for the same lines of the
// cache. Then they are transposed in registers.
//
// A large target is written past the caches, in whole lines, because a cached line would have to be read first. Where
// its rows do not begin with a line, a tile's last line waits in a buffer until the next tile brings the rest of it.
//
// The object holds all memory that it uses, 123 KiB. Not thread-safe. It may copy any number of planes, one after the
// other.
class Transposer {
 public:
  static constexpr int64_t kLine = 64;  // bytes of a cache line
  static constexpr int64_t kRun = 256;

  static bool IsTransposable(int64_t element_bytes);

  // `element_bytes` is the size in the source and must be transposable. `casts` must outlive the object; fewer than two
  // entries mean no cast. `large` says that all planes together exceed the caches near a processor and will not be read
  // soon.
  Transposer(int64_t element_bytes, const CastChain& casts, bool large);

  void Copy(const Plane& plane);
  // Must be called after the last plane. It makes other threads see what was written past the caches as they see other
  // writes.
  void Finish();

 private:
  static constexpr int64_t kSlot = kLine + kRun;  // a row of the target, with the line that the last tile left
  static constexpr int64_t kMostGroup = 32;       // rows that are transposed at once
  static constexpr int64_t kMostColumns = kRun;   // columns of a tile
  static constexpr int64_t kCastRows = 8;         // rows of the target that are cast together, then written
  static constexpr int64_t kArea = 512;           // columns

  struct Tile;
  void Gather(const Tile& tile, int64_t row, int64_t rows);
  void Transpose(const Tile& tile, int64_t row, int64_t rows);
  void Write(const Tile& tile);
  void Cast(const std::byte* from, std::byte* to, int64_t count) const;

  const CastChain& casts_;
  CastFunction cast_ = nullptr;  // the cast, if there is exactly one
  const int64_t source_bytes_;
  const int64_t target_bytes_;
  const int64_t bytes_;  // the smaller size of the two: elements are transposed while they are small
  const bool cast_first_;
  const bool cast_last_;
  const bool large_;
  // Whole blocks are transposed even in a partial tile; bytes that were never filled never go to a target.
  alignas(kLine) std::byte group_[kMostGroup * kRun];
  alignas(kLine) std::byte rows_[kMostColumns * kSlot];
  alignas(kLine) std::byte cast_rows_[kCastRows * kSlot];
  alignas(kLine) std::byte carries_[kArea * kLine];
};

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TRANSPOSER_H_
