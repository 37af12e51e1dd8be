// Cuts what a program wants of tensors in files into pieces that threads can read one by one.
#ifndef CAIRN_PYTHON_NATIVE_FILE_PIECES_H_
#define CAIRN_PYTHON_NATIVE_FILE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"
#include "common/tensor/tiled_copy.h"

namespace cairn {

// A piece that is read straight into its target has at most so many bytes, and begins and ends at multiples of this in
// the file where it can.
inline constexpr int64_t kStraightBytes = int64_t{4} << 20;
// Every other piece has at most so many bytes, so that a buffer of this size stays in a processor's cache.
inline constexpr int64_t kBounceBytes = int64_t{1} << 20;

// A part of a tensor in a file, and where its elements go. The caller answers for the memory at `target`.
struct FileShard {
  size_t file = 0;
  int64_t position = 0;  // of the tensor's first byte in the file
  int64_t element_bytes = 0;
  Shape global_shape;
  // The elements `range` of the flattened `box`. Contains(global_shape, box), and the tensor's bytes fit 63 bits.
  Box box;
  FlatRange range;
  std::byte* target = nullptr;
  // In bytes: one for each axis of the box. If `flat`, one: the target is the range alone, with one axis.
  std::vector<int64_t> target_strides;
  bool flat = false;
};

// Bytes of one file, and where they go.
struct FilePiece {
  struct Copy {
    int64_t offset = 0;  // of the copy's first byte in the piece
    TiledCopy copy;      // simplified; its source is not set
  };

  size_t file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::vector<Copy> copies;  // by offset

  int64_t end() const { return offset + bytes; }
  // True if all bytes go, in their order, to one address.
  bool straight() const;
  // True if the bytes go, in their order, to several addresses, and none is left out.
  bool gathered() const;
};

// Cuts shards into pieces, in the order of the files and of their bytes, so that programs that read the same files at
// the same time want the same bytes at about the same time. A gap of up to `widest_gap` bytes between wanted bytes is
// read and dropped; a wider one never is.
std::vector<FilePiece> CutShards(const std::vector<FileShard>& shards, int64_t widest_gap);

}  // namespace cairn

#endif  // CAIRN_PYTHON_NATIVE_FILE_PIECES_H_
