#include "foreign/compare/difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/tensor/cast.h"

namespace cairn {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
T Get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Not every integer of 64 bits is a number of float64. So the difference is computed as an integer and rounded only
// once.
template <typename T>
double OfIntegers(const char* one, const char* other) {
  const T a = Get<T>(one), b = Get<T>(other);
  return static_cast<double>(a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                   : static_cast<uint64_t>(b) - static_cast<uint64_t>(a));
}

double OfNumbers(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  return a == b ? 0 : std::fabs(a - b);  // without the test, two equal infinities would give NaN
}

double OfCastable(DType dtype, const char* one, const char* other) {
  const auto number = [dtype](const char* from) {
    if (dtype == DType::kFloat64) return Get<double>(from);
    double value;
    FindCast(dtype, DType::kFloat64)(reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(&value), 1);
    return value;
  };
  return OfNumbers(number(one), number(other));
}

double OfComplex(DType part, const char* one, const char* other) {
  const auto bytes = static_cast<size_t>(BytesOf(part));
  return std::hypot(OfCastable(part, one, other), OfCastable(part, one + bytes, other + bytes));
}

// Formats of eight bits, described by their numbers of bits and their bias. Sources: OCP 8-bit Floating Point
// Specification; for those without infinities and negative zero "8-bit Numerical Formats for Deep Neural Networks".
double NumberOfFloat8(DType dtype, uint8_t bits) {
  if (dtype == DType::kFloat8E8m0fnu) return bits == 0xff ? kNan : std::ldexp(1.0, bits - 127);
  const bool short_mantissa = dtype == DType::kFloat8E5m2 || dtype == DType::kFloat8E5m2fnuz;
  const bool unsigned_zero = dtype == DType::kFloat8E4m3fnuz || dtype == DType::kFloat8E5m2fnuz;
  if (unsigned_zero && bits == 0x80) return kNan;
  if (dtype == DType::kFloat8E4m3fn && (bits & 0x7f) == 0x7f) return kNan;
  const int mantissa_bits = short_mantissa ? 2 : 3;
  const int bias = (short_mantissa ? 15 : 7) + (unsigned_zero ? 1 : 0);
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if (dtype == DType::kFloat8E5m2 && exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : kNan;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double NumberOfFloat4(uint8_t bits) {
  constexpr std::array<double, 8> kNumbers = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -kNumbers[bits & 7] : kNumbers[bits & 7];
}

}  // namespace

double AbsoluteDifference(DType dtype, const char* one, const char* other) {
  switch (dtype) {
    case DType::kUnspecified:
      return kNan;
    case DType::kBool:
    case DType::kUint8:
      return OfIntegers<uint8_t>(one, other);
    case DType::kInt8:
      return OfIntegers<int8_t>(one, other);
    case DType::kUint16:
      return OfIntegers<uint16_t>(one, other);
    case DType::kInt16:
      return OfIntegers<int16_t>(one, other);
    case DType::kUint32:
      return OfIntegers<uint32_t>(one, other);
    case DType::kInt32:
      return OfIntegers<int32_t>(one, other);
    case DType::kUint64:
      return OfIntegers<uint64_t>(one, other);
    case DType::kInt64:
      return OfIntegers<int64_t>(one, other);
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return OfCastable(dtype, one, other);
    case DType::kComplex32:
      return OfComplex(DType::kFloat16, one, other);
    case DType::kComplex64:
      return OfComplex(DType::kFloat32, one, other);
    case DType::kComplex128:
      return OfComplex(DType::kFloat64, one, other);
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E8m0fnu:
      return OfNumbers(NumberOfFloat8(dtype, Get<uint8_t>(one)), NumberOfFloat8(dtype, Get<uint8_t>(other)));
    case DType::kFloat4E2m1fnX2: {
      const auto a = Get<uint8_t>(one), b = Get<uint8_t>(other);
      return std::max(OfNumbers(NumberOfFloat4(a & 15), NumberOfFloat4(b & 15)),
                      OfNumbers(NumberOfFloat4(a >> 4), NumberOfFloat4(b >> 4)));
    }
  }
  return kNan;
}

}  // namespace cairn
