#include "agent/reader/round_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "store/storage/stored_file.h"

namespace cairn {
namespace {

constexpr uint64_t kChunk = 4 * kReadAlignment;

// Returns reads that lie behind each other in the buffer, with and without gaps, in any order.
v1::ReadRound RandomRound(std::mt19937& random) {
  const auto up_to = [&random](uint64_t most) { return std::uniform_int_distribution<uint64_t>(0, most)(random); };
  std::vector<v1::Read> reads(1 + up_to(6));
  uint64_t end = 0;
  for (v1::Read& read : reads) {
    const uint64_t offset = end + (up_to(1) ? up_to(2 * kReadAlignment) : 0);
    read.set_buffer_offset(offset);
    read.set_file_offset(kReadAlignment * up_to(9) + offset % kReadAlignment);
    read.set_bytes(up_to(5) == 0 ? 0 : up_to(up_to(1) ? kReadAlignment : 3 * kChunk));
    end = offset + read.bytes();
  }
  std::shuffle(reads.begin(), reads.end(), random);
  v1::ReadRound round;
  for (v1::Read& read : reads) *round.add_reads() = std::move(read);
  round.set_buffer_bytes(end);
  return round;
}

TEST(RoundChunksTest, Cut_AnyRound_CoversEachReadInOrder) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const v1::ReadRound round = RandomRound(random);
    size_t next = 0;
    const std::vector<RoundChunk> chunks = CutIntoChunks(round, kChunk);
    for (size_t r = 0; r < static_cast<size_t>(round.reads_size()); ++r) {
      const v1::Read& read = round.reads(static_cast<int>(r));
      uint64_t done = 0;
      for (; next < chunks.size() && chunks[next].read == r; ++next) {
        EXPECT_EQ(chunks[next].file_offset, read.file_offset() + done);
        EXPECT_EQ(chunks[next].buffer_offset, read.buffer_offset() + done);
        EXPECT_GT(chunks[next].bytes, 0u);
        EXPECT_LE(chunks[next].bytes, kChunk);
        done += chunks[next].bytes;
      }
      EXPECT_EQ(done, read.bytes());
    }
    EXPECT_EQ(next, chunks.size());
  }
}

TEST(RoundChunksTest, Cut_AnyRound_WholeBlocksInPlaceHoldNoOtherChunk) {
  std::mt19937 random(2);
  size_t in_place = 0, apart = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<RoundChunk> chunks = CutIntoChunks(RandomRound(random), kChunk);
    for (const RoundChunk& chunk : chunks) {
      ++(chunk.in_place ? in_place : apart);
      if (!chunk.in_place) continue;
      const uint64_t begin = chunk.buffer_offset / kReadAlignment * kReadAlignment;
      const uint64_t end = (chunk.buffer_offset + chunk.bytes + kReadAlignment - 1) / kReadAlignment * kReadAlignment;
      for (const RoundChunk& other : chunks) {
        if (&other == &chunk) continue;
        EXPECT_TRUE(other.buffer_offset >= end || other.buffer_offset + other.bytes <= begin)
            << "round " << i << ": " << other.buffer_offset << " is within [" << begin << ", " << end << ")";
      }
    }
  }
  // Blocks that are shared are few: all others are read in place.
  EXPECT_GT(apart, 500u);
  EXPECT_GT(in_place, apart);
}

TEST(RoundChunksTest, Order_ReadsInAnyOrder_IsThatOfTheBuffer) {
  v1::ReadRound round;
  for (const uint64_t offset : {8192, 0, 4096}) round.add_reads()->set_buffer_offset(offset);
  EXPECT_EQ(ReadsInBufferOrder(round), (std::vector<size_t>{1, 2, 0}));
}

}  // namespace
}  // namespace cairn
