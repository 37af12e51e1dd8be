#include "agent/transport/copy_packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

v1::Copy Make(uint64_t offset, uint64_t element, std::vector<int64_t> extent, std::vector<int64_t> stride) {
  v1::Copy copy;
  copy.set_source_offset(offset);
  copy.set_element_bytes(element);
  for (int64_t value : extent) copy.add_extents(value);
  for (int64_t value : stride) {
    copy.add_source_strides(value);
    copy.add_target_strides(value);
  }
  return copy;
}

// Takes the elements one by one, as the definition says.
void Walk(const std::string& buffer, const v1::Copy& copy, int dimension, int64_t offset, std::string& packed) {
  if (dimension == copy.extents_size()) {
    packed += buffer.substr(static_cast<size_t>(offset), copy.element_bytes());
    return;
  }
  for (int64_t i = 0; i < copy.extents(dimension); ++i) {
    Walk(buffer, copy, dimension + 1, offset + i * copy.source_strides(dimension), packed);
  }
}

TEST(CopyPackerTest, Split_RandomCopies_MakesSmallOnesThatDoTheSame) {
  std::mt19937 random(7);
  std::string buffer(5000, '\0');
  for (char& c : buffer) c = static_cast<char>(random());
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> extent, stride;
    for (auto d = random() % 4; d > 0; --d) {
      extent.push_back(static_cast<int64_t>(random() % 5));
      stride.push_back(static_cast<int64_t>(random() % 200) - 60);
    }
    v1::Copy copy = Make(random() % 5000, random() % 40, extent, stride);
    copy.set_target_offset(copy.source_offset());
    if (!CheckSource(copy, buffer.size()).ok() || *CopyBytes(copy) == 0) continue;
    std::string expected, got;
    Walk(buffer, copy, 0, static_cast<int64_t>(copy.source_offset()), expected);
    const uint64_t most = 1 + random() % 100;
    std::vector<v1::Copy> pieces;
    SplitCopy(copy, most, pieces);
    for (const v1::Copy& piece : pieces) {
      EXPECT_LE(*CopyBytes(piece), most);
      EXPECT_EQ(piece.target_offset(), piece.source_offset());  // strides are equal here, so offsets stay so
      ASSERT_TRUE(CheckSource(piece, buffer.size()).ok());
      Walk(buffer, piece, 0, static_cast<int64_t>(piece.source_offset()), got);
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(CutIntoWindowsTest, CutIntoWindows_RandomCopies_MakesSmallWindowsThatHoldAllInOrder) {
  std::mt19937 random(8);
  const std::string buffer(4000, 'x');
  for (int round = 0; round < 300; ++round) {
    std::vector<v1::Copy> copies;
    std::vector<std::pair<uint64_t, uint64_t>> expected, got;  // element by element: offset, bytes
    const auto walk = [](const v1::Copy& copy, std::vector<std::pair<uint64_t, uint64_t>>& to) {
      const int64_t count = copy.extents_size() == 0 ? 1 : copy.extents(0);
      for (int64_t i = 0; i < count; ++i) {
        for (uint64_t byte = 0; byte < copy.element_bytes(); ++byte) {
          const int64_t at = static_cast<int64_t>(copy.source_offset()) + (count > 1 ? i * copy.source_strides(0) : 0);
          to.emplace_back(static_cast<uint64_t>(at) + byte, 1);
        }
      }
    };
    for (auto n = random() % 6; n > 0; --n) {
      copies.push_back(Make(random() % 500, 1 + random() % 30, {1 + static_cast<int64_t>(random() % 9)}, {40}));
      walk(copies.back(), expected);
    }
    const uint64_t most = 1 + random() % 120;
    const auto windows = CutIntoWindows(copies, most);
    ASSERT_TRUE(windows.ok());
    ASSERT_FALSE(windows->empty());
    for (const CopyWindow& window : *windows) {
      uint64_t bytes = 0;
      for (const v1::Copy& copy : window.copies) {
        bytes += *CopyBytes(copy);
        walk(copy, got);
      }
      EXPECT_EQ(bytes, window.bytes);
      EXPECT_LE(window.bytes, most);
    }
    EXPECT_EQ(got, expected);
    // No window could have been left out.
    for (size_t i = 0; i + 1 < windows->size(); ++i) {
      EXPECT_GT((*windows)[i].bytes + *CopyBytes((*windows)[i + 1].copies.front()), most);
    }
  }
  v1::Copy lame = Make(0, 4, {3}, {4});
  lame.clear_target_strides();
  EXPECT_TRUE(HasReason(CutIntoWindows({lame}, 100).status(), Reason::kBadRequest));
}

TEST(CopyPackerTest, Pack_RandomCopiesInAnyPieces_KeepsTheirOrder) {
  std::mt19937 random(31);
  std::string buffer(5000, '\0');
  for (char& c : buffer) c = static_cast<char>(random());
  for (int round = 0; round < 300; ++round) {
    std::vector<v1::Copy> copies;
    std::string expected;
    for (auto n = random() % 4; n > 0; --n) {
      std::vector<int64_t> extent, stride;
      for (auto d = random() % 4; d > 0; --d) {
        extent.push_back(static_cast<int64_t>(random() % 5));
        stride.push_back(static_cast<int64_t>(random() % 200) - 60);
      }
      copies.push_back(Make(random() % 5000, random() % 40, extent, stride));
      if (!CheckSource(copies.back(), buffer.size()).ok()) {
        copies.pop_back();
        continue;
      }
      std::string one;
      Walk(buffer, copies.back(), 0, static_cast<int64_t>(copies.back().source_offset()), one);
      EXPECT_EQ(*CopyBytes(copies.back()), one.size());
      // The consumer's copy finds each element in the packed bytes.
      std::string again;
      Walk(one, PackedCopy(copies.back(), 0), 0, 0, again);
      EXPECT_EQ(again, one);
      expected += one;
    }
    CopyPacker packer(buffer.data(), copies);
    std::string packed;
    const size_t piece = 1 + random() % 100;
    for (std::string more = packer.Next(piece); !more.empty(); more = packer.Next(piece)) {
      EXPECT_LE(more.size(), piece);
      packed += more;
    }
    EXPECT_EQ(packed, expected);
    CopyPacker filler(buffer.data(), copies);
    std::string filled(expected.size() + 1, 'x');  // the last one stays
    const size_t first = filler.Fill(filled.data(), piece);
    EXPECT_EQ(first, std::min(piece, expected.size()));
    EXPECT_EQ(first + filler.Fill(filled.data() + first, filled.size() - first), expected.size());
    EXPECT_EQ(filled, expected + 'x');
  }
}

TEST(CheckSourceTest, CheckSource_HostileCopies_AreRefused) {
  const auto bad = [](const v1::Copy& copy) { return HasReason(CheckSource(copy, 1000), Reason::kBadRequest); };
  EXPECT_TRUE(CheckSource(Make(0, 1000, {}, {}), 1000).ok());
  EXPECT_TRUE(CheckSource(Make(990, 10, {100}, {-10}), 1000).ok());
  EXPECT_TRUE(CheckSource(Make(UINT64_MAX, 5, {0}, {1}), 1000).ok()) << "moves nothing";
  EXPECT_TRUE(bad(Make(1, 1000, {}, {})));
  EXPECT_TRUE(bad(Make(UINT64_MAX, 1, {}, {})));
  EXPECT_TRUE(bad(Make(0, UINT64_MAX, {}, {})));
  EXPECT_TRUE(bad(Make(980, 10, {100}, {-10})));
  EXPECT_TRUE(bad(Make(0, 10, {100}, {10, 10})));
  EXPECT_TRUE(bad(Make(0, 10, {-1}, {10})));
  EXPECT_TRUE(bad(Make(0, 10, {INT64_MAX, INT64_MAX}, {INT64_MAX, INT64_MAX})));
  EXPECT_TRUE(bad(Make(0, 1, {3}, {INT64_MIN})));
}

}  // namespace
}  // namespace cairn
