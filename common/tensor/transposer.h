// Copies 2-d planes of elements and transposes them: source rows become target columns. Elements may be cast.
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

// Works tile by tile. Each tile is kRun bytes wide on both sides; with shorter runs memory is many times slower,
// because each run begins on another page. The rows of a tile are prefetched and gathered in a buffer, so that rows
// whose distance is a power of two do not compete for the same cache lines. (They are cast in that buffer if this makes
// them no larger.) Then they are transposed in registers.
//
// A large target is written with stores that bypass the caches, in whole cache lines, because a cached line would have
// to be read first. If the target's rows do not begin at a cache line, the incomplete last line of a tile waits in a
// buffer until the next tile completes it.
//
// The object contains all memory that it uses, 123 KiB. It may copy any number of planes, one after the other. Not
// thread-safe.
class Transposer {
 public:
  static constexpr int64_t kLine = 64;  // bytes of a cache line
  static constexpr int64_t kRun = 256;

  static bool IsTransposable(int64_t element_bytes);

  // `element_bytes` is the size in the source and must be transposable. `casts` must outlive the object; fewer than two
  // entries mean no cast. `large` is true if all planes together exceed the caches near a processor and will not be
  // read soon.
  Transposer(int64_t element_bytes, const CastChain& casts, bool large);

  void Copy(const Plane& plane);
  // Must be called after the last plane. It orders the stores that bypassed the caches before later writes.
  void Finish();

 private:
  static constexpr int64_t kSlot = kLine + kRun;  // bytes of a tile's row in the target, and of a leftover line
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
  // A partial tile is transposed in whole blocks too. Bytes that were never filled are not copied to a target.
  alignas(kLine) std::byte group_[kMostGroup * kRun];
  alignas(kLine) std::byte rows_[kMostColumns * kSlot];
  alignas(kLine) std::byte cast_rows_[kCastRows * kSlot];
  alignas(kLine) std::byte carries_[kArea * kLine];
};

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TRANSPOSER_H_
