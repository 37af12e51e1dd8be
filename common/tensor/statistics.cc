#include "common/tensor/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/tensor/cast.h"

#if defined(__x86_64__) && !defined(CAIRN_PORTABLE)
#define CAIRN_VECTORS
#endif

namespace cairn {
namespace {

constexpr size_t kLanes = TensorStatistics::kLanes;
// So many elements are converted, and then summed up in float32, at a time.
constexpr size_t kRow = 512;

// The signs of the elements 64 * block to 64 * block + 63: the mixer of SplitMix64 (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", 2014).
uint64_t SignsOf(uint64_t block) {
  uint64_t bits = (block + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

template <typename T>
void AddOne(uint64_t position, T element, TensorStatistics& to) {
  const auto value = static_cast<double>(element);
  if (!std::isfinite(value)) {
    ++to.non_finite;
    return;
  }
  to.zeros += value == 0;
  to.min = std::min(to.min, value);
  to.max = std::max(to.max, value);
  to.sum += value;
  to.sum_squares += value * value;
  const bool negative = (SignsOf(position / 64) >> position % 64 & 1) != 0;
  to.sketch[position % kLanes] += negative ? -value : value;
}

template <typename T>
void AddSlowly(uint64_t position, const char* elements, size_t count, TensorStatistics& to) {
  for (size_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, elements + i * sizeof(T), sizeof(T));
    AddOne(position + i, element, to);
  }
}

using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Bits = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

// Adds `groups` groups of eight floats to `to`, the first of which has a position that is a multiple of eight. Returns
// false, and adds nothing, if a sum does not fit into a float32.
inline __attribute__((always_inline)) bool AddGroups(uint64_t position, const float* elements, size_t groups,
                                                     TensorStatistics& to) {
  Floats sum = {}, squares = {}, sketch = {};
  Floats low = Floats{} + INFINITY, high = Floats{} - INFINITY;
  Bits zeros = {}, non_finite = {};
  const Bits to_sign = {31, 30, 29, 28, 27, 26, 25, 24};
  uint64_t signs = SignsOf(position / 64);
  for (size_t group = 0; group < groups; ++group, position += kLanes) {
    if (position % 64 == 0) signs = SignsOf(position / 64);
    Bits bits;
    std::memcpy(&bits, elements + group * kLanes, sizeof(bits));
    const Bits magnitude = bits & 0x7fffffff;
    const Bits bad = magnitude >= 0x7f800000;
    bits &= ~bad;
    const auto value = __builtin_bit_cast(Floats, bits);
    non_finite -= bad;
    zeros -= magnitude == 0;
    const Floats for_low = bad ? low : value, for_high = bad ? high : value;
    low = for_low < low ? for_low : low;
    high = for_high > high ? for_high : high;
    sum += value;
    squares += value * value;
    const Bits sign = (Bits{} + static_cast<int32_t>(signs >> position % 64 & 0xff)) << to_sign & INT32_MIN;
    sketch += __builtin_bit_cast(Floats, bits ^ sign);
  }
  double all = 0, all_squares = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    all += static_cast<double>(sum[lane]);
    all_squares += static_cast<double>(squares[lane]);
  }
  if (!std::isfinite(all_squares) || !std::isfinite(all)) return false;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    to.zeros += static_cast<uint64_t>(zeros[lane]);
    to.non_finite += static_cast<uint64_t>(non_finite[lane]);
    to.min = std::min(to.min, static_cast<double>(low[lane]));
    to.max = std::max(to.max, static_cast<double>(high[lane]));
    to.sketch[lane] += static_cast<double>(sketch[lane]);
  }
  to.sum += all;
  to.sum_squares += all_squares;
  return true;
}

#if defined(CAIRN_VECTORS)
__attribute__((target("avx2"))) bool AddGroupsByAvx2(uint64_t position, const float* elements, size_t groups,
                                                     TensorStatistics& to) {
  return AddGroups(position, elements, groups, to);
}
#endif

// Adds at most kRow floats.
void AddRow(uint64_t position, const float* elements, size_t count, TensorStatistics& to) {
  for (; count > 0 && position % kLanes != 0; ++position, ++elements, --count) AddOne(position, *elements, to);
  const size_t groups = count / kLanes;
#if defined(CAIRN_VECTORS)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  const auto add = has_avx2 ? AddGroupsByAvx2 : AddGroups;
#else
  const auto add = AddGroups;
#endif
  size_t done = 0;
  if (groups > 0 && add(position, elements, groups, to)) done = groups * kLanes;
  for (size_t i = done; i < count; ++i) AddOne(position + i, elements[i], to);
}

// Returns the values of an 8-bit floating-point format that has no infinity if `finite` ("fn").
std::array<float, 256> Float8Values(int exponent_bits, bool finite) {
  const int mantissa_bits = 7 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponents = 1 << exponent_bits, mantissas = 1 << mantissa_bits;
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) {
    const int exponent = i >> mantissa_bits & (exponents - 1), mantissa = i & (mantissas - 1);
    const bool last = exponent == exponents - 1;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                                : std::ldexp(static_cast<float>(mantissas + mantissa), exponent - bias - mantissa_bits);
    if (finite ? last && mantissa == mantissas - 1 : last) value = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(i)] = i >> 7 != 0 ? -value : value;
  }
  return values;
}

void FromFloat8(DType dtype, const char* elements, float* row, size_t count) {
  static const std::array<float, 256> e4m3 = Float8Values(4, /*finite=*/true);
  static const std::array<float, 256> e5m2 = Float8Values(5, /*finite=*/false);
  const auto& values = dtype == DType::kFloat8E4m3fn ? e4m3 : e5m2;
  for (size_t i = 0; i < count; ++i) row[i] = values[static_cast<uint8_t>(elements[i])];
}

}  // namespace

void TensorStatistics::Add(const TensorStatistics& other) {
  zeros += other.zeros;
  non_finite += other.non_finite;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  sum_squares += other.sum_squares;
  for (size_t lane = 0; lane < kLanes; ++lane) sketch[lane] += other.sketch[lane];
}

bool HasStatistics(DType dtype) {
  switch (dtype) {
    case DType::kUnspecified:
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E8m0fnu:
    case DType::kFloat4E2m1fnX2:
      return false;
    default:
      return true;
  }
}

void StatisticsOf::Add(uint64_t position, const char* elements, size_t count) {
  switch (dtype_) {
    case DType::kBool:
    case DType::kUint8:
      return AddSlowly<uint8_t>(position, elements, count, value_);
    case DType::kInt8:
      return AddSlowly<int8_t>(position, elements, count, value_);
    case DType::kUint16:
      return AddSlowly<uint16_t>(position, elements, count, value_);
    case DType::kInt16:
      return AddSlowly<int16_t>(position, elements, count, value_);
    case DType::kUint32:
      return AddSlowly<uint32_t>(position, elements, count, value_);
    case DType::kInt32:
      return AddSlowly<int32_t>(position, elements, count, value_);
    case DType::kUint64:
      return AddSlowly<uint64_t>(position, elements, count, value_);
    case DType::kInt64:
      return AddSlowly<int64_t>(position, elements, count, value_);
    case DType::kFloat64:
      return AddSlowly<double>(position, elements, count, value_);
    default:
      break;
  }
  const auto element_bytes = static_cast<size_t>(BytesOf(dtype_));
  alignas(64) float row[kRow];
  while (count > 0) {
    const size_t part = std::min(count, kRow);
    if (dtype_ == DType::kFloat8E4m3fn || dtype_ == DType::kFloat8E5m2) {
      FromFloat8(dtype_, elements, row, part);
    } else {
      FindCast(dtype_, DType::kFloat32)(reinterpret_cast<const std::byte*>(elements), reinterpret_cast<std::byte*>(row),
                                        part);
    }
    AddRow(position, row, part, value_);
    position += part;
    elements += part * element_bytes;
    count -= part;
  }
}

double EstimatedDistance(const TensorStatistics& a, const TensorStatistics& b) {
  double squares = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const double difference = a.sketch[lane] - b.sketch[lane];
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

}  // namespace cairn
