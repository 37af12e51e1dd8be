#include "common/tensor/flat_range.h"

#include <gtest/gtest.h>

#include <random>

namespace cairn {
namespace {

// Returns the flat indices of a box's elements one by one, in row-major order.
std::vector<int64_t> Elements(std::span<const int64_t> shape, const Box& box) {
  std::vector<int64_t> elements;
  const int64_t size = *ElementCount(shape);
  for (int64_t flat = 0; flat < size; ++flat) {
    int64_t rest = flat;
    bool inside = true;
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t at = rest % shape[d];
      rest /= shape[d];
      inside = inside && at >= box.offset[d] && at < box.offset[d] + box.shape[d];
    }
    if (inside) elements.push_back(flat);
  }
  return elements;
}

TEST(FlatRangeTest, AppendBoxes_RandomRanges_AreExactlyTheirBoxes) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    Shape shape(random() % 6, 0);
    for (int64_t& dim : shape) dim = 1 + static_cast<int64_t>(random() % 4);
    const int64_t size = *ElementCount(shape);
    const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    const FlatRange range{begin, begin + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(size - begin))};
    std::vector<Box> boxes;
    AppendBoxes(shape, range, boxes);
    ASSERT_LE(boxes.size(), std::max<size_t>(1, 2 * shape.size()));
    std::vector<int64_t> together;
    for (const Box& box : boxes) {
      const std::vector<int64_t> elements = Elements(shape, box);
      together.insert(together.end(), elements.begin(), elements.end());
    }
    std::vector<int64_t> wanted;
    for (int64_t i = range.begin; i < range.end; ++i) wanted.push_back(i);
    ASSERT_EQ(together, wanted) << ShapeToString(shape) << " [" << range.begin << ", " << range.end << ")";

    const Box bounds = MinimalBox(shape, range);
    const std::vector<int64_t> inside = Elements(shape, bounds);
    const auto first = std::find(inside.begin(), inside.end(), range.begin);
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), first)) << "the range is not contiguous in its box";
    for (size_t d = 0; d < shape.size(); ++d) {  // no smaller box holds the range
      int64_t low = INT64_MAX, high = 0, stride = RowMajorStrides(shape)[d];
      for (int64_t i : wanted) {
        low = std::min(low, i / stride % shape[d]);
        high = std::max(high, i / stride % shape[d]);
      }
      EXPECT_EQ(bounds.offset[d], low);
      EXPECT_EQ(bounds.shape[d], high - low + 1);
    }
  }
}

TEST(FlatRangeTest, MinimalBox_ThreeDimensions_LaterAxesAreWholeBehindTheFirstDifference) {
  EXPECT_EQ(MinimalBox(Shape{2, 10, 12}, {25, 155}), (Box{{0, 0, 0}, {2, 10, 12}}));
}

}  // namespace
}  // namespace cairn
