#include "corpus/bpe/ascii_masks.h"

#include <cstddef>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace cairn::corpus {

void AsciiMasksPortable(const uint8_t* p, AsciiMasks& masks) {
  masks = {};
  for (int i = 0; i < 64; ++i) {
    const uint8_t byte = p[i];
    const uint64_t bit = uint64_t{1} << i;
    const uint8_t lower = byte | 0x20;
    if (byte >= 0x80) masks.beyond |= bit;
    if (lower >= 'a' && lower <= 'z') masks.letters |= bit;
    if (byte >= '0' && byte <= '9') masks.numbers |= bit;
    if (byte == ' ' || (byte >= '\t' && byte <= '\r')) masks.spaces |= bit;
    if (byte == '\n' || byte == '\r') masks.lines |= bit;
    if (byte == ' ') masks.blanks |= bit;
    if (byte == '\'') masks.quotes |= bit;
  }
}

#ifdef __x86_64__
namespace {

// Sixteen bytes as every x86-64 processor takes them. Comparisons are of signed bytes, so a range is moved to the
// smallest numbers.
void AsciiMasksSse2(const uint8_t* p, AsciiMasks& masks) {
  masks = {};
  for (int i = 0; i < 64; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
    const auto in_range = [](__m128i value, char first, char count) {
      const __m128i moved = _mm_add_epi8(value, _mm_set1_epi8(static_cast<char>(0x80 - first)));
      return _mm_cmplt_epi8(moved, _mm_set1_epi8(static_cast<char>(0x80 + count)));
    };
    const auto is = [&](char c) { return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(c)); };
    const auto bits = [&](__m128i value) {
      return static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(value))) << i;
    };
    const __m128i blanks = is(' ');
    masks.letters |= bits(in_range(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), 'a', 26));
    masks.numbers |= bits(in_range(bytes, '0', 10));
    masks.spaces |= bits(_mm_or_si128(blanks, in_range(bytes, '\t', 5)));
    masks.lines |= bits(_mm_or_si128(is('\n'), is('\r')));
    masks.blanks |= bits(blanks);
    masks.quotes |= bits(is('\''));
    masks.beyond |= bits(bytes);
  }
}

__attribute__((target("avx2"))) void AsciiMasksAvx2(const uint8_t* p, AsciiMasks& masks) {
  masks = {};
  for (int i = 0; i < 64; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
    // A lambda would not inherit the target, so the steps are written out.
    const __m256i lower = _mm256_or_si256(bytes, _mm256_set1_epi8(0x20));
    const __m256i letters = _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(0x80 + 26)),
                                              _mm256_add_epi8(lower, _mm256_set1_epi8(static_cast<char>(0x80 - 'a'))));
    const __m256i numbers = _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(0x80 + 10)),
                                              _mm256_add_epi8(bytes, _mm256_set1_epi8(static_cast<char>(0x80 - '0'))));
    const __m256i controls =
        _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(0x80 + 5)),
                          _mm256_add_epi8(bytes, _mm256_set1_epi8(static_cast<char>(0x80 - '\t'))));
    const __m256i blanks = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(' '));
    const __m256i lines = _mm256_or_si256(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\n')),
                                          _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\r')));
    const __m256i quotes = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\''));
    masks.letters |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(letters))) << i;
    masks.numbers |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(numbers))) << i;
    masks.spaces |=
        static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_or_si256(blanks, controls)))) << i;
    masks.lines |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(lines))) << i;
    masks.blanks |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(blanks))) << i;
    masks.quotes |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(quotes))) << i;
    masks.beyond |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(bytes))) << i;
  }
}

__attribute__((target("avx512f,avx512bw"))) void AsciiMasksAvx512(const uint8_t* p, AsciiMasks& masks) {
  const __m512i bytes = _mm512_loadu_si512(p);
  const __m512i lower = _mm512_or_si512(bytes, _mm512_set1_epi8(0x20));
  masks.letters = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(lower, _mm512_set1_epi8('a')), _mm512_set1_epi8(26));
  masks.numbers = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8('0')), _mm512_set1_epi8(10));
  masks.blanks = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(' '));
  masks.spaces =
      masks.blanks | _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8('\t')), _mm512_set1_epi8(5));
  masks.lines =
      _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\n')) | _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\r'));
  masks.quotes = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\''));
  masks.beyond = _mm512_movepi8_mask(bytes);
}

}  // namespace

std::span<const MakeAsciiMasks> AsciiMasksHere() {
  static constexpr MakeAsciiMasks kAll[] = {AsciiMasksPortable, AsciiMasksSse2, AsciiMasksAvx2, AsciiMasksAvx512};
  static const size_t kCount = [] {
    if (__builtin_cpu_supports("avx512bw")) return 4;
    return __builtin_cpu_supports("avx2") ? 3 : 2;
  }();
  return std::span(kAll).first(kCount);
}
#else
std::span<const MakeAsciiMasks> AsciiMasksHere() {
  static constexpr MakeAsciiMasks kAll[] = {AsciiMasksPortable};
  return kAll;
}
#endif

}  // namespace cairn::corpus
