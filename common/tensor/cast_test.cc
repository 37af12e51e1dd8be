#include "common/tensor/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/testing/float_codec.h"

namespace cairn {
namespace {

constexpr DType kFloats[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

double Value(DType dtype, uint64_t bits) { return testing::Decode(reinterpret_cast<const std::byte*>(&bits), dtype); }

uint64_t Get(const std::vector<std::byte>& bytes, DType dtype, size_t i) {
  uint64_t bits = 0;
  const auto width = static_cast<size_t>(BytesOf(dtype));
  std::memcpy(&bits, bytes.data() + i * width, width);
  return bits;
}

std::vector<std::byte> Pack(const std::vector<uint64_t>& values, DType dtype) {
  const auto width = static_cast<size_t>(BytesOf(dtype));
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(bytes.data() + i * width, &values[i], width);
  return bytes;
}

// Returns all patterns of 16 bits. For longer dtypes it returns random bits, random values in the range of halves, and
// neighbours of the values that lie half-way between two halves.
std::vector<uint64_t> Patterns(DType dtype) {
  std::vector<uint64_t> values;
  if (BytesOf(dtype) == 2) {
    for (uint64_t i = 0; i < 65536; ++i) values.push_back(i);
    return values;
  }
  std::mt19937_64 random(7);
  const auto add = [&](double value) {
    values.push_back(dtype == DType::kFloat64 ? std::bit_cast<uint64_t>(value)
                                              : std::bit_cast<uint32_t>(static_cast<float>(value)));
  };
  for (int i = 0; i < 20000; ++i) {
    values.push_back(dtype == DType::kFloat64 ? random() : random() & 0xffffffff);
    add(std::ldexp(static_cast<double>(static_cast<int64_t>(random())), static_cast<int>(random() % 60) - 100));
  }
  for (DType half : {DType::kFloat16, DType::kBfloat16}) {
    for (uint64_t bits = 0; bits < 65535; bits += 7) {
      const double a = Value(half, bits), b = Value(half, bits + 1);
      if (!std::isfinite(a) || !std::isfinite(b)) continue;
      const double middle = a / 2 + b / 2;
      for (double value : {middle, std::nextafter(middle, 1e300), std::nextafter(middle, -1e300)}) add(value);
      add(std::nextafterf(static_cast<float>(middle), 1e30f));
    }
  }
  for (double value : {0.0, -0.0, 65504.0, 65519.99, 65520.0, 3.4e38, 3.3961775e38, 1e-45, 1e-320, 1e308, -1e308}) {
    add(value);
  }
  for (double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) add(value);
  return values;
}

TEST(CastTest, CastElements_AnyDtypeToAnyOther_IsTheNearestValue) {
  for (DType from : kFloats) {
    const std::vector<uint64_t> values = Patterns(from);
    const std::vector<std::byte> source = Pack(values, from);
    for (DType to : kFloats) {
      if (from == to) continue;
      const CastChain chain = {from, to};
      std::vector<std::byte> target(values.size() * static_cast<size_t>(BytesOf(to)));
      CastElements(chain, source.data(), target.data(), values.size());
      size_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double wanted = testing::RoundTo(Value(from, values[i]), to), got = Value(to, Get(target, to, i));
        const bool same =
            std::isnan(wanted) ? std::isnan(got) : wanted == got && std::signbit(wanted) == std::signbit(got);
        if (!same && ++wrong < 5) {
          ADD_FAILURE() << NameOf(from) << " to " << NameOf(to) << ": " << std::hex << values[i] << " became "
                        << Get(target, to, i) << std::dec << " = " << got << ", not " << wanted;
        }
        // The elements that vectors cast and those left over at the end must agree.
        std::vector<std::byte> one(8);
        CastElements(chain, source.data() + i * static_cast<size_t>(BytesOf(from)), one.data(), 1);
        if (!std::isnan(wanted)) {
          ASSERT_EQ(std::memcmp(one.data(), target.data() + i * static_cast<size_t>(BytesOf(to)),
                                static_cast<size_t>(BytesOf(to))),
                    0);
        } else {
          ASSERT_TRUE(std::isnan(Value(to, Get(one, to, 0))));
        }
      }
      EXPECT_EQ(wrong, 0u) << NameOf(from) << " to " << NameOf(to);
    }
  }
}

// IEEE 754 leaves open which NaN a cast makes. All our ways keep its sign and its leading bits. They make it quiet, but
// for bfloat16 to float32, which only adds zeros.
TEST(CastTest, CastElements_NotANumber_KeepsSignAndLeadingBits) {
  const auto mantissa_bits = [](DType dtype) {
    return dtype == DType::kFloat64 ? 52 : dtype == DType::kFloat32 ? 23 : dtype == DType::kFloat16 ? 10 : 7;
  };
  const auto infinity = [&](DType dtype) {
    const int bits = static_cast<int>(8 * BytesOf(dtype)) - 1;
    return ((uint64_t{1} << bits) - 1) >> mantissa_bits(dtype) << mantissa_bits(dtype);
  };
  std::mt19937_64 random(11);
  for (DType from : kFloats) {
    const int bits = mantissa_bits(from), sign = static_cast<int>(8 * BytesOf(from)) - 1;
    std::vector<uint64_t> values;
    while (values.size() < 1003) {
      const uint64_t mantissa = (random() & ((uint64_t{1} << bits) - 1)) >> random() % static_cast<uint64_t>(bits);
      if (mantissa != 0) values.push_back((random() & 1) << sign | infinity(from) | mantissa);
    }
    const std::vector<std::byte> source = Pack(values, from);
    for (DType to : kFloats) {
      if (from == to) continue;
      const CastChain chain = {from, to};
      std::vector<std::byte> target(values.size() * static_cast<size_t>(BytesOf(to)));
      CastElements(chain, source.data(), target.data(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const int wanted_bits = mantissa_bits(to);
        const uint64_t mantissa = values[i] & ((uint64_t{1} << bits) - 1);
        const uint64_t leading =
            wanted_bits < bits ? mantissa >> (bits - wanted_bits) : mantissa << (wanted_bits - bits);
        const bool quiet = from != DType::kBfloat16 || to != DType::kFloat32;
        const uint64_t wanted = (values[i] >> sign) << (8 * BytesOf(to) - 1) | infinity(to) |
                                uint64_t{quiet} << (wanted_bits - 1) | leading;
        ASSERT_EQ(Get(target, to, i), wanted) << NameOf(from) << " to " << NameOf(to) << ": " << std::hex << values[i];
        std::vector<std::byte> one(8);
        CastElements(chain, source.data() + i * static_cast<size_t>(BytesOf(from)), one.data(), 1);
        ASSERT_EQ(Get(one, to, 0), wanted) << NameOf(from) << " to " << NameOf(to) << ", alone";
      }
    }
  }
}

TEST(CastTest, CastElements_UnalignedMemory_Works) {
  std::vector<std::byte> source(1 + 4 * 1000), target(3 + 2 * 1000), aligned(2 * 1000);
  for (size_t i = 0; i < 1000; ++i) {
    const float value = 1.0f / static_cast<float>(i + 1);
    std::memcpy(source.data() + 1 + 4 * i, &value, 4);
  }
  const CastChain chain = {DType::kFloat32, DType::kBfloat16};
  CastElements(chain, source.data() + 1, target.data() + 3, 1000);
  for (size_t i = 0; i < 1000; ++i) CastElements(chain, source.data() + 1 + 4 * i, aligned.data() + 2 * i, 1);
  EXPECT_EQ(std::memcmp(target.data() + 3, aligned.data(), aligned.size()), 0);
}

TEST(SimplifyCastsTest, SimplifyCasts_StepsThatLoseNothing_AreLeftOut) {
  const auto chain = [](DType source, std::vector<DType> casts) {
    std::string text;
    for (DType dtype : SimplifyCasts(source, casts)) text += std::string(NameOf(dtype)) + " ";
    return text;
  };
  EXPECT_EQ(chain(DType::kFloat32, {}), "float32 ");
  EXPECT_EQ(chain(DType::kInt64, {DType::kInt64}), "int64 ");
  EXPECT_EQ(chain(DType::kBfloat16, {DType::kFloat32, DType::kFloat16}), "bfloat16 float16 ");
  EXPECT_EQ(chain(DType::kBfloat16, {DType::kFloat64, DType::kFloat32, DType::kBfloat16}), "bfloat16 ");
  EXPECT_EQ(chain(DType::kFloat32, {DType::kBfloat16, DType::kFloat32}), "float32 bfloat16 float32 ");
  EXPECT_EQ(chain(DType::kFloat64, {DType::kFloat32, DType::kFloat16}), "float64 float32 float16 ");
}

TEST(SimplifyCastsTest, SimplifyCasts_RandomChains_GiveTheSameElements) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const DType source = kFloats[random() % 4];
    std::vector<DType> casts(1 + random() % 6);
    for (DType& cast : casts) cast = kFloats[random() % 4];
    std::vector<uint64_t> values(1500);
    for (uint64_t& value : values) {
      const double number =
          std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -(40 + static_cast<int>(random() % 60)));
      value = source == DType::kFloat64   ? std::bit_cast<uint64_t>(number)
              : source == DType::kFloat32 ? std::bit_cast<uint32_t>(static_cast<float>(number))
                                          : random() & 0xffff;
    }
    const std::vector<std::byte> bytes = Pack(values, source);
    const CastChain chain = SimplifyCasts(source, casts);
    ASSERT_EQ(chain.back(), casts.back());
    std::vector<std::byte> target = bytes;
    if (chain.size() > 1) {
      target.resize(values.size() * static_cast<size_t>(BytesOf(chain.back())));
      CastElements(chain, bytes.data(), target.data(), values.size());
    }
    for (size_t i = 0; i < values.size(); ++i) {
      double wanted = Value(source, values[i]);
      for (DType cast : casts) wanted = testing::RoundTo(wanted, cast);
      const double got = Value(chain.back(), Get(target, chain.back(), i));
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : wanted == got) << wanted << " " << got;
    }
  }
}

}  // namespace
}  // namespace cairn
