// Finds where words of ASCII end, 64 bytes at a time.
#ifndef CAIRN_CORPUS_WORDPIECE_DELIMITER_MASK_H_
#define CAIRN_CORPUS_WORDPIECE_DELIMITER_MASK_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace cairn::corpus {

// Blanks (tab, line feed, carriage return, space) and punctuation marks of ASCII end a word in every dialect and do not
// change under normalization. Other control characters vanish, so they do not end a word.
inline constexpr bool IsAsciiBlank(unsigned char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
inline constexpr bool IsAsciiPunct(unsigned char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

inline constexpr size_t kMaskBytes = 64;

// Bit i is set if data[i] is such a byte. It reads kMaskBytes bytes.
inline uint64_t DelimiterMask(const char* data) {
#if defined(__SSE2__)
  const auto within = [](__m128i v, char first, char last) {
    // As unsigned numbers: v - first <= last - first.
    const __m128i offset = _mm_sub_epi8(v, _mm_set1_epi8(first));
    const __m128i width = _mm_set1_epi8(static_cast<char>(last - first));
    return _mm_cmpeq_epi8(_mm_min_epu8(offset, width), offset);
  };
  uint64_t mask = 0;
  for (size_t i = 0; i < kMaskBytes; i += 16) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + i));
    // '!'..'/' and the space before it make one range.
    const __m128i ends = _mm_or_si128(_mm_or_si128(_mm_or_si128(within(v, ' ', '/'), within(v, ':', '@')),
                                                   _mm_or_si128(within(v, '[', '`'), within(v, '{', '~'))),
                                      _mm_or_si128(within(v, '\t', '\n'), _mm_cmpeq_epi8(v, _mm_set1_epi8('\r'))));
    mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(ends))) << i;
  }
  return mask;
#elif defined(__aarch64__)
  const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const auto ends = [&](size_t at) {
    const uint8x16_t v = vld1q_u8(reinterpret_cast<const uint8_t*>(data) + at);
    const auto within = [&](uint8_t first, uint8_t last) {
      return vcleq_u8(vsubq_u8(v, vdupq_n_u8(first)), vdupq_n_u8(static_cast<uint8_t>(last - first)));
    };
    const uint8x16_t punct = vorrq_u8(vorrq_u8(within(' ', '/'), within(':', '@')),  // ' ' comes before '!'
                                      vorrq_u8(within('[', '`'), within('{', '~')));
    const uint8x16_t blank = vorrq_u8(within('\t', '\n'), vceqq_u8(v, vdupq_n_u8('\r')));
    return vandq_u8(vorrq_u8(punct, blank), bits);
  };
  // Sums of neighbours, three times, put the bits of eight bytes into one.
  const uint8x16_t sums = vpaddq_u8(vpaddq_u8(ends(0), ends(16)), vpaddq_u8(ends(32), ends(48)));
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
#else
  uint64_t mask = 0;
  for (size_t i = 0; i < kMaskBytes; ++i) {
    const auto c = static_cast<unsigned char>(data[i]);
    mask |= uint64_t{IsAsciiBlank(c) || IsAsciiPunct(c)} << i;
  }
  return mask;
#endif
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_DELIMITER_MASK_H_
