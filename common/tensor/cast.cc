#include "common/tensor/cast.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define CAIRN_CAST_AVX2 __attribute__((target("avx2,f16c")))
#endif

namespace cairn {
namespace {

// Elements that are cast at once through float32; two such rows stay in the first cache.
constexpr size_t kRow = 512;

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

float FloatOfFloat16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0));
  }
  if (exponent == 0) {  // a subnormal number is mantissa * 2^-24
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
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 leaves multiples of 2^-24, rounded by the addition itself
    const float moved = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(moved) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - (uint32_t{112} << 23)) >> 13);
}

// Round to odd: an inexact result has its last bit set. Rounding it again to fewer bits (at least two fewer) then gives
// what rounding the first number once would give (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
// IEEE Transactions on Computers, 2008).
float FloatToOdd(double value) {
  const auto rounded = static_cast<float>(value);
  if (value != value || static_cast<double>(rounded) == value) return rounded;
  auto bits = std::bit_cast<uint32_t>(rounded);
  const double back = rounded;
  if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1);
}

#if defined(__x86_64__)

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}

// Each does as many elements as whole vectors hold and answers how many.

CAIRN_CAST_AVX2 size_t WidenBfloat16(const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + 2 * i));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + 4 * i), wide);
  }
  return i;
}

CAIRN_CAST_AVX2 __m256i RoundToBfloat16(__m256i bits) {
  const __m256i lowest = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(lowest, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}

CAIRN_CAST_AVX2 size_t NarrowBfloat16(const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i low = RoundToBfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + 4 * i)));
    const __m256i high = RoundToBfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + 4 * i + 32)));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + 2 * i), packed);
  }
  return i;
}

CAIRN_CAST_AVX2 size_t WidenFloat16(const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + 2 * i));
    _mm256_storeu_ps(reinterpret_cast<float*>(target + 4 * i), _mm256_cvtph_ps(half));
  }
  return i;
}

CAIRN_CAST_AVX2 size_t NarrowFloat16(const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 wide = _mm256_loadu_ps(reinterpret_cast<const float*>(source + 4 * i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + 2 * i), _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

CAIRN_CAST_AVX2 size_t WidenFloat32(const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m128 narrow = _mm_loadu_ps(reinterpret_cast<const float*>(source + 4 * i));
    _mm256_storeu_pd(reinterpret_cast<double*>(target + 8 * i), _mm256_cvtps_pd(narrow));
  }
  return i;
}

CAIRN_CAST_AVX2 size_t NarrowFloat64(const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256d wide = _mm256_loadu_pd(reinterpret_cast<const double*>(source + 8 * i));
    _mm_storeu_ps(reinterpret_cast<float*>(target + 4 * i), _mm256_cvtpd_ps(wide));
  }
  return i;
}

#define CAIRN_CAST_VECTORS(name) (HasAvx2() ? name(source, target, count) : 0)
#else
#define CAIRN_CAST_VECTORS(name) 0
#endif

// From a dtype to float32; exact, but for float64, which is rounded to odd.
void ToFloat(DType from, const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  switch (from) {
    case DType::kBfloat16:
      i = CAIRN_CAST_VECTORS(WidenBfloat16);
      for (; i < count; ++i) Put(target, i, FloatOfBfloat16(Get<uint16_t>(source, i)));
      return;
    case DType::kFloat16:
      i = CAIRN_CAST_VECTORS(WidenFloat16);
      for (; i < count; ++i) Put(target, i, FloatOfFloat16(Get<uint16_t>(source, i)));
      return;
    case DType::kFloat64:
      for (; i < count; ++i) Put(target, i, FloatToOdd(Get<double>(source, i)));
      return;
    default:
      std::memcpy(target, source, count * sizeof(float));
  }
}

void FromFloat(DType to, const std::byte* source, std::byte* target, size_t count) {
  size_t i = 0;
  switch (to) {
    case DType::kBfloat16:
      i = CAIRN_CAST_VECTORS(NarrowBfloat16);
      for (; i < count; ++i) Put(target, i, Bfloat16OfFloat(Get<float>(source, i)));
      return;
    case DType::kFloat16:
      i = CAIRN_CAST_VECTORS(NarrowFloat16);
      for (; i < count; ++i) Put(target, i, Float16OfFloat(Get<float>(source, i)));
      return;
    case DType::kFloat64:
      i = CAIRN_CAST_VECTORS(WidenFloat32);
      for (; i < count; ++i) Put(target, i, static_cast<double>(Get<float>(source, i)));
      return;
    default:
      std::memcpy(target, source, count * sizeof(float));
  }
}

void CastOnce(DType from, DType to, const std::byte* source, std::byte* target, size_t count) {
  if (from == to) {
    std::memcpy(target, source, count * static_cast<size_t>(BytesOf(from)));
  } else if (from == DType::kFloat32) {
    FromFloat(to, source, target, count);
  } else if (from == DType::kFloat64 && to == DType::kFloat32) {
    size_t i = CAIRN_CAST_VECTORS(NarrowFloat64);
    for (; i < count; ++i) Put(target, i, static_cast<float>(Get<double>(source, i)));
  } else if (to == DType::kFloat32) {
    ToFloat(from, source, target, count);
  } else {
    alignas(64) std::byte row[kRow * sizeof(float)];
    for (size_t i = 0; i < count; i += kRow) {
      const size_t n = std::min(kRow, count - i);
      ToFloat(from, source + i * static_cast<size_t>(BytesOf(from)), row, n);
      FromFloat(to, row, target + i * static_cast<size_t>(BytesOf(to)), n);
    }
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
    // What the last cast kept whole may as well be cast from where it came.
    while (chain.size() > 1 && IsLossless(chain[chain.size() - 2], chain.back())) chain.pop_back();
    if (chain.back() != cast) chain.push_back(cast);
  }
  return chain;
}

void CastElements(std::span<const DType> chain, const std::byte* source, std::byte* target, size_t count) {
  if (chain.size() == 2) return CastOnce(chain[0], chain[1], source, target, count);
  alignas(64) std::byte rows[2][kRow * sizeof(double)];
  for (size_t i = 0; i < count; i += kRow) {
    const size_t n = std::min(kRow, count - i);
    const std::byte* from = source + i * static_cast<size_t>(BytesOf(chain.front()));
    for (size_t step = 1; step + 1 < chain.size(); ++step) {
      CastOnce(chain[step - 1], chain[step], from, rows[step % 2], n);
      from = rows[step % 2];
    }
    CastOnce(chain[chain.size() - 2], chain.back(), from, target + i * static_cast<size_t>(BytesOf(chain.back())), n);
  }
}

}  // namespace cairn
