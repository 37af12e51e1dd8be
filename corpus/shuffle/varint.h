// Encodes LEB128 numbers and zigzag differences, as protocol buffers do.
#ifndef CAIRN_CORPUS_SHUFFLE_VARINT_H_
#define CAIRN_CORPUS_SHUFFLE_VARINT_H_

#include <cstddef>
#include <cstdint>

namespace cairn::corpus {

inline constexpr size_t kMaxVarintBytes = 10;

// Writes at most kMaxVarintBytes and returns the end.
inline char* PutVarint(char* out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// Returns the end, or null if no number ends before `end`.
inline const char* GetVarint(const char* in, const char* end, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 64 && in < end; shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(*in++);
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = result;
      return in;
    }
  }
  return nullptr;
}

constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_VARINT_H_
