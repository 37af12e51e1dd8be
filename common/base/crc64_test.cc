#include "common/base/crc64.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace cairn {
namespace {

// The definition: one bit after the other.
uint64_t Slowly(const std::string& bytes) {
  uint64_t crc = ~uint64_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ 0xc96c5795d7870f42 : crc >> 1;
  }
  return ~crc;
}

std::string Random(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

uint64_t Crc64(const std::string& bytes) {
  return Crc64FromRemainder(ExtendRemainder64(0, bytes.data(), bytes.size()), bytes.size());
}

TEST(Crc64Test, Crc64_CheckOfTheCatalogue) { EXPECT_EQ(Crc64("123456789"), 0x995dc9bbdf1939fa); }

TEST(Crc64Test, Crc64_AnyBytes_AreThoseOfTheDefinition) {
  std::mt19937_64 random(1);
  for (const size_t size : {0, 1, 7, 8, 63, 64, 65, 1000, 4097}) {
    const std::string bytes = Random(random, size);
    EXPECT_EQ(Crc64(bytes), Slowly(bytes)) << size;
  }
}

TEST(Crc64Test, ExtendRemainder64_InPieces_IsThatOfTheWhole) {
  std::mt19937_64 random(2);
  const std::string bytes = Random(random, 5000);
  for (const size_t cut : {0, 1, 100, 4999, 5000}) {
    const uint64_t first = ExtendRemainder64(0, bytes.data(), cut);
    EXPECT_EQ(ExtendRemainder64(first, bytes.data() + cut, bytes.size() - cut),
              ExtendRemainder64(0, bytes.data(), bytes.size()));
  }
}

TEST(Crc64Test, AppendZeros64_AndTheAppender_DoWhatZerosDo) {
  std::mt19937_64 random(3);
  for (const size_t count : {0, 1, 2, 255, 256, 70'000}) {
    const std::string bytes = Random(random, 40);
    const uint64_t remainder = ExtendRemainder64(0, bytes.data(), bytes.size());
    const std::string zeros(count, '\0');
    const uint64_t expected = ExtendRemainder64(remainder, zeros.data(), zeros.size());
    EXPECT_EQ(AppendZeros64(remainder, count), expected) << count;
    EXPECT_EQ(ZeroAppender64(count).Append(remainder), expected) << count;
  }
}

}  // namespace
}  // namespace cairn
