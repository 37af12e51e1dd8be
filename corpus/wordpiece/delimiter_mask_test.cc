#include "corpus/wordpiece/delimiter_mask.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace cairn::corpus {
namespace {

uint64_t ByteAfterByte(const std::string& data) {
  uint64_t mask = 0;
  for (size_t i = 0; i < kMaskBytes; ++i) {
    const auto c = static_cast<unsigned char>(data[i]);
    mask |= uint64_t{IsAsciiBlank(c) || IsAsciiPunct(c)} << i;
  }
  return mask;
}

TEST(DelimiterMaskTest, DelimiterMask_EachByteAtEachPlace_IsThatOfTheByte) {
  for (int byte = 0; byte < 256; ++byte) {
    for (size_t at = 0; at < kMaskBytes; ++at) {
      std::string data(kMaskBytes, 'x');
      data[at] = static_cast<char>(byte);
      ASSERT_EQ(DelimiterMask(data.data()), ByteAfterByte(data)) << byte << " at " << at;
    }
  }
}

TEST(DelimiterMaskTest, DelimiterMask_RandomBytes_IsThatOfEachByte) {
  std::mt19937 random(5);
  for (int round = 0; round < 10000; ++round) {
    std::string data(kMaskBytes, '\0');
    for (char& byte : data) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 128));
    ASSERT_EQ(DelimiterMask(data.data()), ByteAfterByte(data)) << round;
  }
}

}  // namespace
}  // namespace cairn::corpus
