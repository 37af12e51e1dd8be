// Tests the arithmetic of the kernels on the host. Only its memory accesses and shuffles need a GPU (tests/gpu).
#include "gpu/copy/crc_kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/crc64.h"
#include "gpu/testing/crc_block_on_host.h"

namespace cairn {
namespace {

std::vector<unsigned char> RandomBytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> bytes(size);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

uint32_t ByKernel(const unsigned char* data, int64_t bytes) {
  std::vector<uint32_t> raw;
  for (int64_t at = 0; at < bytes; at += crc_lanes::kBlockBytes) {
    raw.push_back(CrcBlockOnHost<crc_lanes::Crc32c>(
        data + at, static_cast<uint32_t>(std::min<int64_t>(crc_lanes::kBlockBytes, bytes - at))));
  }
  EXPECT_EQ(static_cast<int64_t>(raw.size()), CrcBlocksOf(bytes));
  return Crc32cOfBlocks(raw.data(), bytes);
}

TEST(CrcKernelsTest, BlocksOnHost_OfEverySmallSize_MakeTheCrcOfTheBytes) {
  const std::vector<unsigned char> bytes = RandomBytes(1600, 1);
  for (int64_t size = 0; size <= 1600; ++size) {
    ASSERT_EQ(ByKernel(bytes.data(), size), Crc32c(bytes.data(), static_cast<size_t>(size))) << size;
    ASSERT_EQ(CrcBlockOnHost<crc_lanes::Crc64>(bytes.data(), static_cast<uint32_t>(size)),
              ExtendRemainder64(0, bytes.data(), static_cast<size_t>(size)))
        << size;
  }
}

TEST(CrcKernelsTest, BlocksOnHost_OfManyBlocks_MakeTheCrcOfTheBytes) {
  for (const int64_t size : {65535, 65536, 65537, 131072, 200003, 1 << 20}) {
    const std::vector<unsigned char> bytes = RandomBytes(static_cast<size_t>(size), static_cast<unsigned>(size));
    EXPECT_EQ(ByKernel(bytes.data(), size), Crc32c(bytes.data(), bytes.size())) << size;
  }
}

TEST(CrcKernelsTest, Crc64BlockOnHost_OfManyRows_IsTheRemainderOfTheBytes) {
  const std::vector<unsigned char> bytes = RandomBytes(crc_lanes::kBlockBytes, 5);
  for (const uint32_t size : {511u, 512u, 513u, 4096u, 65535u, 65536u}) {
    EXPECT_EQ(CrcBlockOnHost<crc_lanes::Crc64>(bytes.data(), size), ExtendRemainder64(0, bytes.data(), size)) << size;
  }
}

TEST(CrcKernelsTest, BlocksOnHost_ABitFlips_DifferInEveryPlace) {
  std::vector<unsigned char> bytes = RandomBytes(2048 + 17, 3);
  const uint32_t before = ByKernel(bytes.data(), static_cast<int64_t>(bytes.size()));
  for (unsigned char& byte : bytes) {
    byte ^= 4;
    ASSERT_NE(ByKernel(bytes.data(), static_cast<int64_t>(bytes.size())), before);
    byte ^= 4;
  }
}

TEST(CrcKernelsTest, RangeOfBlock_FirstAndLastBlocks_AreThoseOfTheirRange) {
  std::vector<crc_lanes::Range> ranges;
  unsigned long long next = 0;
  for (unsigned i = 0; i < 100; ++i) {
    ranges.push_back({.address = i, .bytes = 1, .first_block = next, .block_bytes = 1});
    next += 1 + i % 7;
  }
  for (unsigned i = 0; i < ranges.size(); ++i) {
    const auto end = i + 1 < ranges.size() ? ranges[i + 1].first_block : next;
    EXPECT_EQ(crc_lanes::RangeOfBlock(ranges.data(), 100, ranges[i].first_block), i);
    EXPECT_EQ(crc_lanes::RangeOfBlock(ranges.data(), 100, end - 1), i);
  }
}

TEST(CrcKernelsTest, Ptx_AsItIsLinked_HasTheKernel) {
  const std::string entry = ".visible .entry ";
  EXPECT_NE(std::string(kCrc32cKernelPtx).find(entry + crc_lanes::Crc32c::kKernelName + "("), std::string::npos);
  EXPECT_NE(std::string(kCrc64KernelPtx).find(entry + crc_lanes::Crc64::kKernelName + "("), std::string::npos);
}

}  // namespace
}  // namespace cairn
