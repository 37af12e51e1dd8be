#include "corpus/bpe/merge_words.h"

#include <cstddef>
#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace cairn::corpus {
namespace {

struct Choice {
  uint64_t merge;  // MergeTable::kNone if no pair is left
  size_t place;
};

// A processor that reads many bytes at once waits until the numbers among them that it has just written are in its
// cache. So each turn first reads of all words and then writes of all. A function for some processors can be inlined
// only into one for the same, and no template is for several, so this is written out for each.
#define CAIRN_MERGE_WORDS(LEAST)                                      \
  while (!words.empty()) {                                            \
    size_t left = 0;                                                  \
    for (ShortWord* const word : words) {                             \
      const Choice least = LEAST(*word);                              \
      if (least.merge == MergeTable::kNone) continue;                 \
      word->Merge(table, least.merge, least.place);                   \
      words[left++] = word;                                           \
    }                                                                 \
    words = words.first(left);                                        \
    for (ShortWord* const word : words) {                             \
      word->merges[word->at] = table.Find(word->with_next);           \
      word->merges[word->previous] = table.Find(word->with_previous); \
    }                                                                 \
  }

// No branch depends on what is compared, because no processor could predict it.
Choice LeastOf(const ShortWord& word) {
  Choice best[2] = {{word.merges[0], 0}, {word.merges[1], 1}};
  for (size_t i = 2; i < word.merges_end; i += 2) {
    for (size_t k = 0; k < 2; ++k) {
      const uint64_t merge = word.merges[i + k];
      const bool less = merge < best[k].merge;
      best[k].merge = less ? merge : best[k].merge;
      best[k].place = less ? i + k : best[k].place;
    }
  }
  const bool first = best[0].merge < best[1].merge || (best[0].merge == best[1].merge && best[0].place < best[1].place);
  return first ? best[0] : best[1];
}

void MergeWordsPortable(const MergeTable& table, std::span<ShortWord*> words) { CAIRN_MERGE_WORDS(LeastOf) }

#ifdef __x86_64__

// Returns the first place from `place` on where `merge` stands. It is there.
inline size_t PlaceOf(const ShortWord& word, uint64_t merge, size_t place) {
  while (word.merges[place] != merge) ++place;
  return place;
}

#define CAIRN_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt"), always_inline)) inline

CAIRN_AVX2 __m256i LeastAvx2(__m256i a, __m256i b) { return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)); }
CAIRN_AVX2 __m256i MergesAvx2(const ShortWord& word, size_t place) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(word.merges + place));
}

CAIRN_AVX2 Choice LeastOfAvx2(const ShortWord& word) {
  const __m256i merges[] = {MergesAvx2(word, 0), MergesAvx2(word, 4), MergesAvx2(word, 8), MergesAvx2(word, 12)};
  __m256i least = LeastAvx2(LeastAvx2(merges[0], merges[1]), LeastAvx2(merges[2], merges[3]));
  if (word.merges_end > ShortWord::kFew) [[unlikely]] {
    for (size_t i = ShortWord::kFew; i < word.merges_end; i += 4) least = LeastAvx2(least, MergesAvx2(word, i));
  }
  least = LeastAvx2(least, _mm256_permute4x64_epi64(least, 0x4E));
  least = LeastAvx2(least, _mm256_shuffle_epi32(least, 0x4E));
  const uint64_t merge = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm256_castsi256_si128(least)));
  uint32_t places = 0;
  for (int i = 0; i < 4; ++i) {
    const __m256d same = _mm256_castsi256_pd(_mm256_cmpeq_epi64(merges[i], least));
    places |= static_cast<uint32_t>(_mm256_movemask_pd(same)) << 4 * i;
  }
  if (places == 0) [[unlikely]]
    return {merge, PlaceOf(word, merge, ShortWord::kFew)};
  return {merge, static_cast<size_t>(__builtin_ctz(places))};
}

__attribute__((target("avx2,bmi,bmi2,lzcnt"))) void MergeWordsAvx2(const MergeTable& table,
                                                                   std::span<ShortWord*> words){
    CAIRN_MERGE_WORDS(LeastOfAvx2)}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // wrong, of GCC 12's own header (its bug 105593)
#endif
#define CAIRN_AVX512 __attribute__((target("avx512f,bmi,bmi2,lzcnt"), always_inline)) inline

CAIRN_AVX512 Choice LeastOfAvx512(const ShortWord& word) {
  const __m512i low = _mm512_load_si512(word.merges), high = _mm512_load_si512(word.merges + 8);
  __m512i least = _mm512_min_epu64(low, high);
  if (word.merges_end > ShortWord::kFew) [[unlikely]] {
    for (size_t i = ShortWord::kFew; i < word.merges_end; i += 8) {
      least = _mm512_min_epu64(least, _mm512_load_si512(word.merges + i));
    }
  }
  least = _mm512_min_epu64(least, _mm512_shuffle_i64x2(least, least, 0x4E));
  least = _mm512_min_epu64(least, _mm512_shuffle_i64x2(least, least, 0xB1));
  least = _mm512_min_epu64(least, _mm512_permutex_epi64(least, 0xB1));
  const auto merge = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(least)));
  const uint32_t places = uint32_t{_mm512_cmpeq_epi64_mask(low, least)} | uint32_t{_mm512_cmpeq_epi64_mask(high, least)}
                                                                              << 8;
  if (places == 0) [[unlikely]]
    return {merge, PlaceOf(word, merge, ShortWord::kFew)};
  return {merge, static_cast<size_t>(__builtin_ctz(places))};
}

__attribute__((target("avx512f,bmi,bmi2,lzcnt"))) void MergeWordsAvx512(const MergeTable& table,
                                                                        std::span<ShortWord*> words) {
  CAIRN_MERGE_WORDS(LeastOfAvx512)
}

#endif

}  // namespace

std::span<const MergeWords> MergeWordsHere() {
#ifdef __x86_64__
  static constexpr MergeWords kAll[] = {MergeWordsPortable, MergeWordsAvx2, MergeWordsAvx512};
  static const size_t kCount = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("lzcnt"))
      return 1;
    return __builtin_cpu_supports("avx512f") ? 3 : 2;
  }();
  return std::span(kAll).first(kCount);
#else
  // Vectors of arm64 have no least of 64 bits, and as many steps as numbers.
  static constexpr MergeWords kAll[] = {MergeWordsPortable};
  return kAll;
#endif
}

}  // namespace cairn::corpus
