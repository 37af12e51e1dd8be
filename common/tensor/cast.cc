#include "common/tensor/cast.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && !defined(CAIRN_PORTABLE)
#define CAIRN_VECTORS
#include <immintrin.h>
#define CAIRN_CAST_AVX2 __attribute__((target("avx2,f16c")))
#endif

namespace cairn {
namespace {

// A chain of casts is applied to this many elements at a time. Two such rows fit into the first-level cache.
constexpr size_t kRow = 512;

template <DType kDType>
constexpr size_t kBytes = kDType == DType::kFloat64   ? 8
                          : kDType == DType::kFloat32 ? 4
                                                      : 2;

template <typename T>
T Get(const std::byte* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Put(std::byte* to, size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

float FloatOfBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t Bfloat16OfFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#if defined(__aarch64__) && !defined(CAIRN_PORTABLE)
// Every arm64 processor has these two casts, and the compiler makes vectors of them and of all that follows.
float FloatOfFloat16(uint16_t half) { return static_cast<float>(std::bit_cast<__fp16>(half)); }
uint16_t Float16OfFloat(float value) { return std::bit_cast<uint16_t>(static_cast<__fp16>(value)); }
#else
float FloatOfFloat16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0));
  }
  if (exponent == 0) {  // subnormal: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t Float16OfFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float moved = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(moved) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - (uint32_t{112} << 23)) >> 13);
}
#endif

// A float64 is first reduced to the bits that decide how it rounds to 16 bits: 14 bits of precision, the last of which
// is set if any bit was lost. Rounding this number, which was rounded "to odd", gives the same result as rounding the
// original one, because it has at least two bits more than the result (Boldo and Melquiond, "Emulation of FMA and
// correctly rounded sums", IEEE Transactions on Computers, 2008). In float32 it is exact, unless it is too large or too
// small for either 16-bit format.
constexpr uint64_t kLostBits = (uint64_t{1} << 39) - 1;

float FloatToOdd(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t sticky = (bits & kLostBits) != 0 ? kLostBits + 1 : 0;
  return static_cast<float>(std::bit_cast<double>((bits & ~kLostBits) | sticky));
}

// Casts one element through float32, which holds every value of the shorter dtypes.
template <DType kFrom, DType kTo>
void CastOne(const std::byte* source, std::byte* target, size_t i) {
  if constexpr (kFrom == DType::kFloat64 && kTo == DType::kFloat32) {
    return Put(target, i, static_cast<float>(Get<double>(source, i)));
  }
  float value;
  if constexpr (kFrom == DType::kFloat16) value = FloatOfFloat16(Get<uint16_t>(source, i));
  if constexpr (kFrom == DType::kBfloat16) value = FloatOfBfloat16(Get<uint16_t>(source, i));
  if constexpr (kFrom == DType::kFloat32) value = Get<float>(source, i);
  if constexpr (kFrom == DType::kFloat64) value = FloatToOdd(Get<double>(source, i));
  if constexpr (kTo == DType::kFloat16) Put(target, i, Float16OfFloat(value));
  if constexpr (kTo == DType::kBfloat16) Put(target, i, Bfloat16OfFloat(value));
  if constexpr (kTo == DType::kFloat32) Put(target, i, value);
  if constexpr (kTo == DType::kFloat64) Put(target, i, static_cast<double>(value));
}

#if defined(CAIRN_VECTORS)

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}

CAIRN_CAST_AVX2 inline __m256d LoadDoubles(const std::byte* from, bool to_odd) {
  const __m256d value = _mm256_loadu_pd(reinterpret_cast<const double*>(from));
  if (!to_odd) return value;
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(kLostBits));
  const __m256i bits = _mm256_castpd_si256(value);
  const __m256i exact = _mm256_cmpeq_epi64(_mm256_and_si256(bits, mask), _mm256_setzero_si256());
  const __m256i sticky = _mm256_andnot_si256(exact, _mm256_set1_epi64x(static_cast<int64_t>(kLostBits + 1)));
  return _mm256_castsi256_pd(_mm256_or_si256(_mm256_andnot_si256(mask, bits), sticky));
}

template <DType kFrom>
CAIRN_CAST_AVX2 inline __m256 LoadFloats(const std::byte* from, bool to_odd) {
  if constexpr (kFrom == DType::kFloat64) {
    return _mm256_set_m128(_mm256_cvtpd_ps(LoadDoubles(from + 32, to_odd)), _mm256_cvtpd_ps(LoadDoubles(from, to_odd)));
  } else if constexpr (kFrom == DType::kFloat32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  } else {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (kFrom == DType::kFloat16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
}

// Returns eight numbers of 32 bits, whose upper halves are the bfloat16 values.
CAIRN_CAST_AVX2 inline __m256i RoundToBfloat16(__m256 value, bool nan) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i lowest = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lowest, _mm256_set1_epi32(0x7fff)));
  if (!nan) return rounded;
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
}

template <DType kTo>
CAIRN_CAST_AVX2 inline void StoreFloats(std::byte* to, __m256 low, __m256 high) {
  if constexpr (kTo == DType::kBfloat16) {
    const bool nan = _mm256_movemask_ps(_mm256_cmp_ps(low, high, _CMP_UNORD_Q)) != 0;  // rarely true
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(RoundToBfloat16(low, nan), 16),
                                               _mm256_srli_epi32(RoundToBfloat16(high, nan), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
  } else {
    for (const __m256 value : {low, high}) {
      if constexpr (kTo == DType::kFloat16) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
        to += 16;
      } else if constexpr (kTo == DType::kFloat32) {
        _mm256_storeu_ps(reinterpret_cast<float*>(to), value);
        to += 32;
      } else {
        _mm256_storeu_pd(reinterpret_cast<double*>(to), _mm256_cvtps_pd(_mm256_castps256_ps128(value)));
        _mm256_storeu_pd(reinterpret_cast<double*>(to + 32), _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1)));
        to += 64;
      }
    }
  }
}

constexpr size_t kVector = 16;

// Casts at least kVector elements. If `count` is no multiple of kVector, the last vector overlaps the one before it.
template <DType kFrom, DType kTo>
CAIRN_CAST_AVX2 void CastVectors(const std::byte* source, std::byte* target, size_t count) {
  constexpr bool kToOdd = kTo != DType::kFloat32;
  for (size_t i = 0;; i = std::min(i + kVector, count - kVector)) {
    const std::byte* from = source + i * kBytes<kFrom>;
    StoreFloats<kTo>(target + i * kBytes<kTo>, LoadFloats<kFrom>(from, kToOdd),
                     LoadFloats<kFrom>(from + 8 * kBytes<kFrom>, kToOdd));
    if (i + kVector == count) return;
  }
}
#endif

template <DType kFrom, DType kTo>
void CastRow(const std::byte* source, std::byte* target, size_t count) {
  if constexpr (kFrom == kTo) {
    std::memcpy(target, source, count * kBytes<kFrom>);
    return;
  }
#if defined(CAIRN_VECTORS)
  if (count >= kVector && HasAvx2()) return CastVectors<kFrom, kTo>(source, target, count);
#endif
  for (size_t i = 0; i < count; ++i) CastOne<kFrom, kTo>(source, target, i);
}

template <DType kFrom>
CastFunction FindCastTo(DType to) {
  switch (to) {
    case DType::kFloat16:
      return CastRow<kFrom, DType::kFloat16>;
    case DType::kBfloat16:
      return CastRow<kFrom, DType::kBfloat16>;
    case DType::kFloat32:
      return CastRow<kFrom, DType::kFloat32>;
    default:
      return CastRow<kFrom, DType::kFloat64>;
  }
}

}  // namespace

bool IsCastable(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

bool IsLossless(DType from, DType to) {
  return from == to || to == DType::kFloat64 || (to == DType::kFloat32 && from != DType::kFloat64);
}

CastChain SimplifyCasts(DType source, std::span<const DType> casts) {
  CastChain chain = {source};
  for (DType cast : casts) {
    // Another cast follows. So the last entry is not needed if the cast to it loses nothing.
    while (chain.size() > 1 && IsLossless(chain[chain.size() - 2], chain.back())) chain.pop_back();
    if (chain.back() != cast) chain.push_back(cast);
  }
  return chain;
}

CastFunction FindCast(DType from, DType to) {
  switch (from) {
    case DType::kFloat16:
      return FindCastTo<DType::kFloat16>(to);
    case DType::kBfloat16:
      return FindCastTo<DType::kBfloat16>(to);
    case DType::kFloat32:
      return FindCastTo<DType::kFloat32>(to);
    default:
      return FindCastTo<DType::kFloat64>(to);
  }
}

void CastElements(std::span<const DType> chain, const std::byte* source, std::byte* target, size_t count) {
  if (chain.size() == 2) return FindCast(chain[0], chain[1])(source, target, count);
  alignas(64) std::byte rows[2][kRow * sizeof(double)];
  for (size_t i = 0; i < count; i += kRow) {
    const size_t n = std::min(kRow, count - i);
    const std::byte* from = source + i * static_cast<size_t>(BytesOf(chain.front()));
    for (size_t step = 1; step + 1 < chain.size(); ++step) {
      FindCast(chain[step - 1], chain[step])(from, rows[step % 2], n);
      from = rows[step % 2];
    }
    FindCast(chain[chain.size() - 2], chain.back())(from, target + i * static_cast<size_t>(BytesOf(chain.back())), n);
  }
}

}  // namespace cairn
