// The fingerprint of a tensor: the CRC-64/XZ of its bytes in row-major order, little-endian. It depends on dtype, shape
// and elements alone, and not on how ranks or files share the tensor, because parts can be put together: the parts of
// boxes that tile a tensor, taken by exclusive or, make its fingerprint. docs/storage_format.md has test vectors.
//
// It finds every change of up to 64 bits in a row, and any other change but for a chance of 2^-64. It is no protection
// from somebody who chooses the bytes.
#ifndef CAIRN_COMMON_TENSOR_FINGERPRINT_H_
#define CAIRN_COMMON_TENSOR_FINGERPRINT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/crc64.h"
#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"

namespace cairn {

// Computes a part, from bytes that come one after the other. Not thread-safe.
class FingerprintPart {
 public:
  // The part has the elements `range` of a flattened box. The tensor contains the box, and the box the range.
  FingerprintPart(std::span<const int64_t> global_shape, const Box& box, FlatRange range, int element_bytes);

  // Takes the next bytes of the part; pieces may end anywhere. It takes at most as many as the part has.
  void Add(const char* bytes, size_t size);
  // Takes the next `size` bytes by their remainder (ExtendRemainder64(0, bytes, size)). They lie in one run: `size` is
  // at most NextRunBytes().
  void AddRemainder(uint64_t remainder, uint64_t size);
  // Returns how many of the next bytes of the part, at least 1, lie together in the tensor; 0 after the last one.
  uint64_t NextRunBytes();
  // Returns where the next byte stands among the tensor's, row-major. Call it after NextRunBytes has returned more than
  // 0.
  uint64_t position() const { return total_ - behind_; }
  // Returns the part, after all its bytes have come.
  uint64_t Value() const;

 private:
  // Appends the same number of zeros many times.
  struct Zeros {
    uint64_t count = 0;
    std::optional<ZeroAppender64> table;
    uint64_t uses = 0;

    uint64_t Append(uint64_t remainder);
  };
  // An axis along which runs of bytes that are contiguous in the tensor follow one another.
  struct Axis {
    int64_t count = 0;
    int64_t index = 0;
    Zeros gap;  // bytes of the tensor between the last run before a step along this axis and the next one
  };
  // Goes to where the next run begins.
  void NextRun();

  std::vector<Axis> axes_;    // outermost first
  std::vector<Zeros> sizes_;  // of what came by its remainder; few, since blocks have one size
  uint64_t run_bytes_ = 0;
  uint64_t run_left_ = 0;
  uint64_t left_ = 0;    // bytes of the part
  uint64_t behind_ = 0;  // bytes of the tensor behind those that have come
  uint64_t total_ = 0;   // bytes of the tensor
  uint64_t remainder_ = 0;
};

// Returns a tensor's fingerprint from the exclusive or of its parts.
uint64_t FingerprintFromParts(uint64_t parts, uint64_t tensor_bytes);

// Returns 16 hexadecimal digits.
std::string FingerprintText(uint64_t fingerprint);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_FINGERPRINT_H_
