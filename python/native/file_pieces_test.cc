#include "python/native/file_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/box.h"

namespace cairn {
namespace {

// Counts bytes from a begin, so that every byte tells where it stood.
std::string CountedBytes(int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251 + i / 65536);
  return bytes;
}

// Does what a reader does with pieces of one file.
void CopyAll(const std::vector<FilePiece>& pieces, const std::string& file) {
  for (const FilePiece& piece : pieces) {
    for (const FilePiece::Copy& each : piece.copies) {
      TiledCopy copy = each.copy;
      copy.source = reinterpret_cast<const std::byte*>(file.data()) + piece.offset + each.offset;
      Execute(copy);
    }
  }
}

// A whole tensor at `position`, contiguous in the target.
FileShard Whole(int64_t position, const Shape& shape, std::byte* target) {
  FileShard shard;
  shard.position = position;
  shard.element_bytes = 1;
  shard.global_shape = shape;
  shard.box = WholeBox(shape);
  shard.range = {0, shard.box.size()};
  shard.target = target;
  const Shape strides = RowMajorStrides(shape);
  shard.target_strides.assign(strides.begin(), strides.end());
  return shard;
}

class RandomShard {
 public:
  explicit RandomShard(unsigned seed) : chance_(seed) {
    const size_t axes = Number(0, 4);
    const int64_t widths[] = {1, 2, 4, 8, 16};
    shard_.element_bytes = widths[Number(0, 4)];
    shard_.position = static_cast<int64_t>(Number(0, 5000));
    for (size_t i = 0; i < axes; ++i) {
      const auto size = static_cast<int64_t>(Number(1, 9));
      const auto begin = static_cast<int64_t>(Number(0, static_cast<size_t>(size) - 1));
      shard_.global_shape.push_back(size);
      shard_.box.offset.push_back(begin);
      shard_.box.shape.push_back(static_cast<int64_t>(Number(0, static_cast<size_t>(size - begin))));
    }
    const int64_t held = shard_.box.size();
    shard_.range = {0, held};
    shard_.flat = Number(0, 1) == 0;
    if (shard_.flat) {
      shard_.range.begin = static_cast<int64_t>(Number(0, static_cast<size_t>(held)));
      shard_.range.end =
          static_cast<int64_t>(Number(static_cast<size_t>(shard_.range.begin), static_cast<size_t>(held)));
      shard_.target_strides = {shard_.element_bytes * static_cast<int64_t>(Number(1, 2))};
    } else {
      // The axes lie in the target in any order, with room between elements.
      std::vector<size_t> order(axes);
      std::iota(order.begin(), order.end(), size_t{0});
      if (Number(0, 1) == 0) std::shuffle(order.begin(), order.end(), chance_);
      shard_.target_strides.resize(axes);
      int64_t stride = shard_.element_bytes * static_cast<int64_t>(Number(1, 2));
      for (size_t i = axes; i-- > 0;) {
        shard_.target_strides[order[i]] = stride;
        stride *= std::max<int64_t>(shard_.box.shape[order[i]], 1);
      }
    }
    memory_.assign(1 << 18, '\0');
    shard_.target = reinterpret_cast<std::byte*>(memory_.data());
  }

  size_t Number(size_t least, size_t most) { return std::uniform_int_distribution<size_t>(least, most)(chance_); }
  const FileShard& shard() const { return shard_; }
  const std::string& memory() const { return memory_; }

  // Returns what the memory must be, from the definition of a shard, one element after the other.
  std::string Expected(const std::string& file) const {
    std::string expected(memory_.size(), '\0');
    const Shape strides = RowMajorStrides(shard_.global_shape);
    const Shape inside = RowMajorStrides(shard_.box.shape);
    for (int64_t element = shard_.range.begin; element < shard_.range.end; ++element) {
      int64_t from = 0, to = 0, rest = element;
      for (size_t i = 0; i < shard_.box.ndim(); ++i) {
        const int64_t index = rest / inside[i];
        rest %= inside[i];
        from += (shard_.box.offset[i] + index) * strides[i];
        if (!shard_.flat) to += index * shard_.target_strides[i];
      }
      if (shard_.flat) to = (element - shard_.range.begin) * shard_.target_strides[0];
      std::memcpy(expected.data() + to, file.data() + shard_.position + from * shard_.element_bytes,
                  static_cast<size_t>(shard_.element_bytes));
    }
    return expected;
  }

 private:
  std::mt19937 chance_;
  FileShard shard_;
  std::string memory_;
};

TEST(FilePiecesTest, CutShards_AnyShard_FillsWhatItSaysAndNothingElse) {
  const std::string file = CountedBytes(300'000);
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RandomShard random(seed);
    const auto gap = static_cast<int64_t>(random.Number(0, 64));
    const auto pieces = CutShards({random.shard()}, gap);
    CopyAll(pieces, file);
    ASSERT_EQ(random.memory(), random.Expected(file));
    for (const FilePiece& piece : pieces) {
      ASSERT_GT(piece.bytes, 0);
      ASSERT_LE(piece.bytes, piece.straight() ? kStraightBytes : kBounceBytes);
      ASSERT_LE(piece.end(), static_cast<int64_t>(file.size()));
    }
  }
}

TEST(FilePiecesTest, CutShards_ALargeTensor_IsReadStraightFromMultiplesOfThePieceSize) {
  std::vector<std::byte> memory(static_cast<size_t>(10 * kStraightBytes));
  const auto pieces = CutShards({Whole(1000, {3, kStraightBytes}, memory.data())}, 0);
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[0].offset, 1000);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(pieces[i].straight());
    EXPECT_EQ(pieces[i].copies[0].copy.target, memory.data() + (pieces[i].offset - 1000));
    if (i == 0) continue;
    EXPECT_EQ(pieces[i].offset, static_cast<int64_t>(i) * kStraightBytes);
    EXPECT_EQ(pieces[i].offset, pieces[i - 1].end());
  }
  EXPECT_EQ(pieces[3].end(), 1000 + 3 * kStraightBytes);
}

TEST(FilePiecesTest, CutShards_ColumnsOfAMatrix_AreReadWithTheGapsBetweenThem) {
  std::vector<std::byte> memory(size_t{8192} * 256);
  FileShard columns = Whole(0, {8192, 256}, memory.data());
  columns.global_shape = {8192, 1024};
  columns.box.offset = {0, 256};
  const auto pieces = CutShards({columns}, 1024);
  for (const FilePiece& piece : pieces) EXPECT_LE(piece.bytes, kBounceBytes);
  EXPECT_LE(pieces.size(), 9u);
}

TEST(FilePiecesTest, CutShards_GapsWiderThanAllowed_AreNeverRead) {
  std::vector<std::byte> memory(size_t{16} * 64 * 256);
  FileShard columns = Whole(0, {16, 64, 256}, memory.data());
  columns.global_shape = {16, 100, 1024};
  const int64_t widest = 700;  // the gap between rows is 768, that between planes wider
  int64_t bytes = 0;
  for (const FilePiece& piece : CutShards({columns}, widest)) bytes += piece.bytes;
  EXPECT_EQ(bytes, int64_t{16} * 64 * 256);
}

TEST(FilePiecesTest, CutShards_ManySmallNeighbours_AreOneGatheringPiece) {
  std::vector<std::byte> memory(30000);
  std::vector<FileShard> shards;
  shards.reserve(100);
  for (int64_t i = 0; i < 100; ++i) {
    // They come in another order than they have in the file.
    const int64_t number = (i * 37) % 100;
    shards.push_back(Whole(500 + number * 200, {200}, memory.data() + 300 * i));
  }
  const auto pieces = CutShards(shards, 0);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_TRUE(pieces[0].gathered());
  EXPECT_EQ(pieces[0].offset, 500);
  EXPECT_EQ(pieces[0].bytes, 20000);
  const std::string file = CountedBytes(30000);
  CopyAll(pieces, file);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(std::memcmp(memory.data() + 300 * i, file.data() + 500 + (i * 37) % 100 * 200, 200), 0);
  }
}

TEST(FilePiecesTest, CutShards_MoreNeighboursThanOneReadHolds_FitTheBuffer) {
  std::vector<std::byte> memory(4'000'000);
  std::vector<FileShard> shards;
  shards.reserve(1400);
  for (int64_t i = 0; i < 400; ++i) shards.push_back(Whole(i * 10'100, {10'000}, memory.data() + 10'000 * i));
  for (int64_t i = 0; i < 1000; ++i) shards.push_back(Whole(4'100'000 + i * 8, {8}, memory.data() + 8 * i));
  size_t copies = 0;
  const auto pieces = CutShards(shards, 1 << 20);
  for (const FilePiece& piece : pieces) {
    EXPECT_LE(piece.bytes, kBounceBytes);
    EXPECT_LE(piece.copies.size(), 256u);
    copies += piece.copies.size();
  }
  EXPECT_EQ(copies, 1400u);
  EXPECT_LE(pieces.size(), 10u);
}

TEST(FilePiecesTest, CutShards_NeighboursInTwoFiles_StayApartAndInOrder) {
  std::vector<std::byte> memory(400);
  FileShard later = Whole(0, {100}, memory.data());
  later.file = 1;
  const auto pieces = CutShards({later, Whole(100, {100}, memory.data() + 100)}, 1 << 20);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].file, 0u);
  EXPECT_EQ(pieces[1].file, 1u);
}

TEST(FilePiecesTest, CutShards_TheSameBytesForTwoTargets_ReachBoth) {
  const std::string file = CountedBytes(1000);
  std::vector<std::byte> memory(200);
  CopyAll(CutShards({Whole(300, {100}, memory.data()), Whole(300, {100}, memory.data() + 100)}, 1 << 20), file);
  EXPECT_EQ(std::memcmp(memory.data(), file.data() + 300, 100), 0);
  EXPECT_EQ(std::memcmp(memory.data() + 100, file.data() + 300, 100), 0);
}

}  // namespace
}  // namespace cairn
