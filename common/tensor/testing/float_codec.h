// Encodes and decodes floating-point formats by their definition, slowly: an oracle that shares no code with casts.
#ifndef CAIRN_COMMON_TENSOR_TESTING_FLOAT_CODEC_H_
#define CAIRN_COMMON_TENSOR_TESTING_FLOAT_CODEC_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/tensor/dtype.h"

namespace cairn::testing {

struct FloatFormat {
  int precision;
  int emax;
};

inline FloatFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {11, 15};
    case DType::kBfloat16:
      return {8, 127};
    case DType::kFloat32:
      return {24, 127};
    default:
      return {53, 1023};
  }
}

// Returns the nearest value of a dtype, ties to even.
inline double RoundTo(double value, DType dtype) {
  if (std::isnan(value) || std::isinf(value) || value == 0 || dtype == DType::kFloat64) return value;
  const FloatFormat format = FormatOf(dtype);
  int exponent;
  std::frexp(value, &exponent);
  const int quantum = std::max(exponent - format.precision, 2 - format.emax - format.precision);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, 1 - format.precision), format.emax);
  return std::abs(rounded) > largest ? std::copysign(HUGE_VAL, value) : rounded;
}

// Writes a value, a number or an infinity, that the dtype can represent exactly.
inline void Encode(double value, DType dtype, std::byte* to) {
  if (dtype == DType::kFloat64) {
    std::memcpy(to, &value, 8);
    return;
  }
  if (dtype == DType::kFloat32 || dtype == DType::kBfloat16) {
    const auto narrow = static_cast<float>(value);
    const auto bits = std::bit_cast<uint32_t>(narrow);
    const uint16_t half = static_cast<uint16_t>(bits >> 16);
    std::memcpy(to, dtype == DType::kFloat32 ? static_cast<const void*>(&bits) : &half,
                dtype == DType::kFloat32 ? 4 : 2);
    return;
  }
  uint16_t bits = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (std::isinf(value)) {
    bits |= 0x7c00;
  } else if (magnitude >= 0x1p-14) {
    int exponent;
    const double mantissa = std::frexp(magnitude, &exponent);  // [0.5, 1)
    bits = static_cast<uint16_t>(bits | (exponent + 14) << 10 | (static_cast<int>(std::ldexp(mantissa, 11)) & 0x3ff));
  } else {
    bits = static_cast<uint16_t>(bits | static_cast<int>(std::ldexp(magnitude, 24)));
  }
  std::memcpy(to, &bits, 2);
}

// Returns the value of an element, which may be NaN or an infinity.
inline double Decode(const std::byte* from, DType dtype) {
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, from, 8);
    return value;
  }
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  const FloatFormat format = FormatOf(dtype);
  const int mantissa_bits = format.precision - 1, exponent_bits = 15 - mantissa_bits;
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return sign * (mantissa != 0 ? std::nan("") : HUGE_VAL);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.emax - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - format.emax);
}

}  // namespace cairn::testing

#endif  // CAIRN_COMMON_TENSOR_TESTING_FLOAT_CODEC_H_
