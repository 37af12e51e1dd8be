#include "foreign/compare/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <utility>

namespace cairn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
double Apart(DType dtype, T one, T other) {
  const double there =
      AbsoluteDifference(dtype, reinterpret_cast<const char*>(&one), reinterpret_cast<const char*>(&other));
  const double back =
      AbsoluteDifference(dtype, reinterpret_cast<const char*>(&other), reinterpret_cast<const char*>(&one));
  EXPECT_TRUE(there == back || (std::isnan(there) && std::isnan(back))) << there << " " << back;
  return there;
}

TEST(DifferenceTest, AbsoluteDifference_Integers_DoNotOverflow) {
  EXPECT_EQ(Apart<uint8_t>(DType::kBool, 0, 1), 1);
  EXPECT_EQ(Apart<uint8_t>(DType::kUint8, 0, 255), 255);
  EXPECT_EQ(Apart<int8_t>(DType::kInt8, -128, 127), 255);
  EXPECT_EQ(Apart<int16_t>(DType::kInt16, -32768, 32767), 65535);
  EXPECT_EQ(Apart<int32_t>(DType::kInt32, INT32_MIN, INT32_MAX), 4294967295.0);
  EXPECT_EQ(Apart<int64_t>(DType::kInt64, INT64_MIN, INT64_MAX), 0x1p64);
  EXPECT_EQ(Apart<int64_t>(DType::kInt64, (int64_t{1} << 53) + 1, int64_t{1} << 53), 1) << "not by way of float64";
  EXPECT_EQ(Apart<uint64_t>(DType::kUint64, 0, UINT64_MAX), 0x1p64);
}

TEST(DifferenceTest, AbsoluteDifference_Floats_AreThatOfTheirNumbers) {
  EXPECT_EQ(Apart<float>(DType::kFloat32, -1.5f, 2.25f), 3.75);
  EXPECT_EQ(Apart<double>(DType::kFloat64, 1, 1 + 0x1p-52), 0x1p-52);
  EXPECT_EQ(Apart<uint16_t>(DType::kFloat16, 0x3c00, 0x3c01), 0x1p-10);
  EXPECT_EQ(Apart<uint16_t>(DType::kBfloat16, 0x3f80, 0xbf80), 2);
  EXPECT_EQ(Apart<float>(DType::kFloat32, 0.0f, -0.0f), 0);
  EXPECT_EQ(Apart<float>(DType::kFloat32, 1, INFINITY), kInfinity);
  EXPECT_EQ(Apart<float>(DType::kFloat32, INFINITY, INFINITY), 0);
  EXPECT_TRUE(std::isnan(Apart<float>(DType::kFloat32, 1, NAN)));
  EXPECT_EQ(Apart<uint32_t>(DType::kFloat32, 0x7fc00001, 0x7fc00002), 0) << "two NaNs with other bits";
  EXPECT_EQ((Apart<std::complex<float>>(DType::kComplex64, {1, 2}, {4, 6})), 5);
  EXPECT_EQ((Apart<std::complex<double>>(DType::kComplex128, {1, INFINITY}, {4, INFINITY})), 3);
}

// The numbers are those of PyTorch's tensors of these dtypes.
TEST(DifferenceTest, AbsoluteDifference_SmallFloats_AreThoseOfTheirFormats) {
  const auto from_zero = [](DType dtype, uint8_t bits) { return Apart<uint8_t>(dtype, 0, bits); };
  EXPECT_EQ(from_zero(DType::kFloat8E4m3fn, 0x01), 0x1p-9);
  EXPECT_EQ(from_zero(DType::kFloat8E4m3fn, 0x38), 1);
  EXPECT_EQ(from_zero(DType::kFloat8E4m3fn, 0xfe), 448);
  EXPECT_TRUE(std::isnan(from_zero(DType::kFloat8E4m3fn, 0x7f)));
  EXPECT_EQ(from_zero(DType::kFloat8E5m2, 0x01), 0x1p-16);
  EXPECT_EQ(from_zero(DType::kFloat8E5m2, 0x3c), 1);
  EXPECT_EQ(from_zero(DType::kFloat8E5m2, 0x7b), 57344);
  EXPECT_EQ(from_zero(DType::kFloat8E5m2, 0x7c), kInfinity);
  EXPECT_EQ(from_zero(DType::kFloat8E4m3fnuz, 0x01), 0x1p-10);
  EXPECT_EQ(from_zero(DType::kFloat8E4m3fnuz, 0x40), 1);
  EXPECT_EQ(from_zero(DType::kFloat8E4m3fnuz, 0x7f), 240);
  EXPECT_TRUE(std::isnan(from_zero(DType::kFloat8E4m3fnuz, 0x80)));
  EXPECT_EQ(from_zero(DType::kFloat8E5m2fnuz, 0x01), 0x1p-17);
  EXPECT_EQ(from_zero(DType::kFloat8E5m2fnuz, 0x40), 1);
  EXPECT_EQ(from_zero(DType::kFloat8E5m2fnuz, 0x7f), 57344);
  EXPECT_EQ(Apart<uint8_t>(DType::kFloat8E8m0fnu, 127, 129), 3);
  EXPECT_EQ(from_zero(DType::kFloat4E2m1fnX2, 0x71), 6);
  EXPECT_EQ(from_zero(DType::kFloat4E2m1fnX2, 0x0b), 1.5);
}

}  // namespace
}  // namespace cairn
