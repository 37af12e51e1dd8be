#include "common/tensor/statistics.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"

namespace cairn {
namespace {

using Random = std::mt19937_64;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorStatistics Whole(DType dtype, const std::string& bytes) {
  StatisticsOf statistics(dtype);
  statistics.Add(0, bytes.data(), bytes.size() / static_cast<size_t>(BytesOf(dtype)));
  return statistics.value();
}

std::vector<float> Normal(Random& random, size_t count, double scale = 1) {
  std::normal_distribution<double> distribution(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

void ExpectNear(const TensorStatistics& found, const TensorStatistics& wanted, double tolerance) {
  EXPECT_EQ(found.zeros, wanted.zeros);
  EXPECT_EQ(found.non_finite, wanted.non_finite);
  EXPECT_EQ(found.min, wanted.min);
  EXPECT_EQ(found.max, wanted.max);
  EXPECT_NEAR(found.sum, wanted.sum, tolerance);
  EXPECT_NEAR(found.sum_squares, wanted.sum_squares, tolerance);
  for (size_t lane = 0; lane < TensorStatistics::kLanes; ++lane) {
    EXPECT_NEAR(found.sketch[lane], wanted.sketch[lane], tolerance) << lane;
  }
}

// The same numbers as float64 take another way through the code, one element at a time.
TEST(StatisticsTest, FloatsGiveWhatDoublesGive) {
  Random random(1);
  for (size_t count : {1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 5000}) {
    std::vector<float> floats = Normal(random, count);
    floats[count / 2] = 0;
    floats[count / 3] = -0.0f;
    if (count > 8) {
      floats[3] = std::numeric_limits<float>::quiet_NaN();
      floats[8] = -std::numeric_limits<float>::infinity();
    }
    const std::vector<double> doubles(floats.begin(), floats.end());
    ExpectNear(Whole(DType::kFloat32, Bytes(floats)), Whole(DType::kFloat64, Bytes(doubles)),
               1e-5 * std::sqrt(static_cast<double>(count)));
  }
}

TEST(StatisticsTest, KnowsWhatTheyAre) {
  const TensorStatistics found =
      Whole(DType::kFloat32, Bytes(std::vector<float>{0, 1, -3, INFINITY, 2, NAN, -0.0f, 0.5f, 1, 1}));
  EXPECT_EQ(found.zeros, 2);
  EXPECT_EQ(found.non_finite, 2);
  EXPECT_EQ(found.min, -3);
  EXPECT_EQ(found.max, 2);
  EXPECT_EQ(found.sum, 2.5);
  EXPECT_EQ(found.sum_squares, 1 + 9 + 4 + 0.25 + 1 + 1);
  EXPECT_EQ(Whole(DType::kInt64, Bytes(std::vector<int64_t>{41, -2})).sum, 39);
  EXPECT_EQ(Whole(DType::kUint8, Bytes(std::vector<uint8_t>{200, 0})).max, 200);
  EXPECT_EQ(Whole(DType::kBool, Bytes(std::vector<uint8_t>{1, 0, 1})).sum, 2);
  EXPECT_EQ(Whole(DType::kBfloat16, Bytes(std::vector<uint16_t>{0x3f80, 0xc000, 0x7f80})).min, -2);
  EXPECT_EQ(Whole(DType::kFloat16, Bytes(std::vector<uint16_t>{0x3c00, 0x4000})).sum, 3);
}

// The values are those of the formats' definitions (Micikevicius and others, "FP8 formats for deep learning", 2022).
TEST(StatisticsTest, Float8) {
  const TensorStatistics e4m3 = Whole(DType::kFloat8E4m3fn, Bytes(std::vector<uint8_t>{0x7e, 0x01, 0x7f, 0xb8}));
  EXPECT_EQ(e4m3.max, 448);
  EXPECT_EQ(e4m3.min, -1);
  EXPECT_EQ(e4m3.non_finite, 1);
  EXPECT_EQ(e4m3.sum, 448 - 1 + std::ldexp(1, -9));
  const TensorStatistics e5m2 = Whole(DType::kFloat8E5m2, Bytes(std::vector<uint8_t>{0x7b, 0x01, 0x7c, 0x7f, 0xbc}));
  EXPECT_EQ(e5m2.max, 57344);
  EXPECT_EQ(e5m2.min, -1);
  EXPECT_EQ(e5m2.non_finite, 2);
  EXPECT_EQ(e5m2.sum, 57344 - 1 + std::ldexp(1, -16));
}

// The squares of these do not fit into a float32.
TEST(StatisticsTest, LargeFloats) {
  const std::vector<float> large(100, 1e30f);
  const TensorStatistics found = Whole(DType::kFloat32, Bytes(large));
  EXPECT_NEAR(found.sum_squares / 1e62, 1, 1e-6);
  EXPECT_NEAR(found.sum / 1e32, 1, 1e-6);
  EXPECT_EQ(found.non_finite, 0);
}

TEST(StatisticsTest, PartsAddUp) {
  Random random(2);
  const std::vector<float> values = Normal(random, 3000);
  const std::string bytes = Bytes(values);
  const TensorStatistics whole = Whole(DType::kFloat32, bytes);
  for (int trial = 0; trial < 50; ++trial) {
    TensorStatistics sum;
    for (size_t at = 0; at < values.size();) {
      const size_t count = std::min(values.size() - at, std::uniform_int_distribution<size_t>(1, 900)(random));
      StatisticsOf part(DType::kFloat32);
      part.Add(at, bytes.data() + at * sizeof(float), count);
      sum.Add(part.value());
      at += count;
    }
    ExpectNear(sum, whole, 1e-3);
  }
}

TEST(StatisticsTest, TheSketchTellsTheDistance) {
  Random random(3);
  constexpr size_t kCount = 4096;
  int below = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const std::vector<float> before = Normal(random, kCount);
    std::vector<float> after = before;
    const std::vector<float> step = Normal(random, kCount, 0.01);
    double squares = 0;
    for (size_t i = 0; i < kCount; ++i) {
      after[i] += step[i];
      squares += static_cast<double>(step[i]) * static_cast<double>(step[i]);
    }
    const double distance =
        EstimatedDistance(Whole(DType::kFloat32, Bytes(before)), Whole(DType::kFloat32, Bytes(after)));
    EXPECT_LT(distance, 2.5 * std::sqrt(squares));
    below += distance < std::sqrt(squares) / 3;
  }
  EXPECT_LE(below, 4);
}

// A transposed matrix has the same elements, and yet its sketch is far from the other one.
TEST(StatisticsTest, TheSketchDependsOnTheOrder) {
  Random random(4);
  const std::vector<float> matrix = Normal(random, 64 * 64);
  std::vector<float> transposed(matrix.size());
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 64; ++j) transposed[j * 64 + i] = matrix[i * 64 + j];
  }
  const TensorStatistics a = Whole(DType::kFloat32, Bytes(matrix)), b = Whole(DType::kFloat32, Bytes(transposed));
  EXPECT_NEAR(a.sum_squares, b.sum_squares, 1e-2);
  EXPECT_GT(EstimatedDistance(a, b), 0.5 * std::sqrt(a.sum_squares));
}

// tests/trust/test_reference.py has the same numbers.
TEST(StatisticsTest, TheSignsOfTheSketch) {
  std::vector<float> values(80);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::array<double, 8> wanted = {54, 208, 40, 112, 98, -348, -88, 24};
  EXPECT_EQ(Whole(DType::kFloat32, Bytes(values)).sketch, wanted);
}

TEST(StatisticsTest, NamesTheDTypes) {
  for (const DTypeInfo& info : DTypeTable()) {
    if (!HasStatistics(info.dtype)) continue;
    const std::string bytes(64, '\0');
    EXPECT_EQ(Whole(info.dtype, bytes).zeros, 64 / static_cast<size_t>(info.bytes)) << info.name;
  }
}

}  // namespace
}  // namespace cairn
