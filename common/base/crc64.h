// CRC-64/XZ: the checksum of which fingerprints of tensors are made. Its polynomial is that of ECMA-182, reflected.
//
// A CRC is linear but for two inversions, at its begin and its end. So the arithmetic here is on remainders, which have
// none: the remainder of bytes that are put together from parts is the exclusive or of the remainders that the parts
// have where they stand, with zeros around them.
#ifndef CAIRN_COMMON_BASE_CRC64_H_
#define CAIRN_COMMON_BASE_CRC64_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn {

// Returns the remainder of `data` appended to bytes whose remainder is `remainder`; that of nothing is 0. About 10 GB/s
// on one core.
uint64_t ExtendRemainder64(uint64_t remainder, const void* data, size_t size);

// Returns the remainder of `count` zeros appended to such bytes. O(log count).
uint64_t AppendZeros64(uint64_t remainder, uint64_t count);

// Appends a number of zeros that stays the same, in a few nanoseconds. To make one takes some microseconds.
class ZeroAppender64 {
 public:
  explicit ZeroAppender64(uint64_t count);
  uint64_t Append(uint64_t remainder) const;

 private:
  std::array<std::array<uint64_t, 256>, 8> products_;  // by byte of the remainder
};

// Returns the CRC-64/XZ of `size` bytes from their remainder.
uint64_t Crc64FromRemainder(uint64_t remainder, uint64_t size);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_CRC64_H_
