#include "common/base/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace cairn {
namespace {

// Computes the CRC bit by bit, from the definition.
uint32_t Oracle(const std::vector<uint8_t>& data) {
  uint32_t crc = 0xffffffff;
  for (uint8_t byte : data) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = (crc & 1) ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32cTest, ExtendCrc32c_VectorsOfRfc3720_AreEqual) {
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0).data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xff).data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Crc32cTest, Crc32c_ExtendedAndCombined_EqualsTheDefinition) {
  std::mt19937 random(7);
  for (size_t size : {0, 1, 2, 7, 8, 63, 64, 65, 1000, 4096, 5000}) {
    std::vector<uint8_t> data(size);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
    const uint32_t whole = Oracle(data);
    EXPECT_EQ(Crc32c(data.data(), size), whole);
    for (int i = 0; i < 8; ++i) {
      const size_t cut = size == 0 ? 0 : random() % (size + 1);
      const uint32_t a = Crc32c(data.data(), cut);
      EXPECT_EQ(ExtendCrc32c(a, data.data() + cut, size - cut), whole);
      EXPECT_EQ(CombineCrc32c(a, Crc32c(data.data() + cut, size - cut), size - cut), whole);
    }
  }
}

TEST(Crc32cTest, ExtendCrc32cByZeros_AnyCount_EqualsTheDefinition) {
  std::vector<uint8_t> data = {1, 2, 3, 0};
  for (size_t length : {0u, 1u, 3u, 4u}) {
    for (size_t zeros : {0u, 1u, 7u, 4095u, 70000u}) {
      std::vector<uint8_t> padded(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(length));
      padded.resize(length + zeros);
      EXPECT_EQ(ExtendCrc32cByZeros(Crc32c(data.data(), length), zeros), Oracle(padded)) << length << " " << zeros;
    }
  }
}

}  // namespace
}  // namespace cairn
