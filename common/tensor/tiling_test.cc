#include "common/tensor/tiling.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace cairn {
namespace {

struct Case {
  Shape shape;
  std::vector<int64_t> pool;  // 2 * ndim numbers for each box
  std::vector<PackedBox> boxes() const {
    std::vector<PackedBox> views;
    const size_t step = 2 * shape.size();
    for (size_t i = 0; i < pool.size(); i += step) views.push_back(pool.data() + i);
    return views;
  }
};

// Counts one by one how many boxes hold each element.
std::vector<int> Count(const Case& test) {
  const size_t ndim = test.shape.size();
  std::vector<int> counts(static_cast<size_t>(*ElementCount(test.shape)));
  for (size_t flat = 0; flat < counts.size(); ++flat) {
    for (PackedBox box : test.boxes()) {
      auto rest = static_cast<int64_t>(flat);
      bool inside = true;
      for (size_t d = ndim; d-- > 0;) {
        const int64_t at = rest % test.shape[d];
        rest /= test.shape[d];
        inside = inside && at >= box[d] && at < box[d] + box[ndim + d];
      }
      counts[flat] += inside;
    }
  }
  return counts;
}

// Returns random boxes that tile the tensor, by random cuts.
Case Shatter(std::mt19937_64& random) {
  Case test;
  test.shape.resize(1 + random() % 4);
  for (int64_t& dim : test.shape) dim = 1 + static_cast<int64_t>(random() % 6);
  std::function<void(Box, int)> cut = [&](Box box, int depth) {
    const size_t d = random() % box.ndim();
    if (depth == 0 || box.shape[d] < 2) {
      test.pool.insert(test.pool.end(), box.offset.begin(), box.offset.end());
      test.pool.insert(test.pool.end(), box.shape.begin(), box.shape.end());
      return;
    }
    const auto at = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(box.shape[d] - 1));
    Box low = box, high = box;
    low.shape[d] = at;
    high.offset[d] += at;
    high.shape[d] -= at;
    cut(low, depth - 1);
    cut(high, depth - 1);
  };
  cut(WholeBox(test.shape), static_cast<int>(random() % 5));
  return test;
}

TEST(TilesExactlyTest, TilesExactly_RandomTilingsAndTheirFaults_AgreeWithTheElements) {
  std::mt19937_64 random(11);
  int exact = 0, broken = 0;
  for (int round = 0; round < 20000; ++round) {
    Case test = Shatter(random);
    const size_t ndim = test.shape.size();
    // Half of the cases are spoiled: a number is changed, or a box dropped or doubled. Some of these stay exact.
    const size_t count = test.pool.size() / (2 * ndim);
    switch (random() % 5) {
      case 0: {
        const size_t box = random() % count * 2 * ndim;
        const size_t d = random() % ndim;
        int64_t& offset = test.pool[box + d];
        int64_t& size = test.pool[box + ndim + d];
        offset = static_cast<int64_t>(random() % static_cast<uint64_t>(test.shape[d]));
        size = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(test.shape[d] - offset));
        break;
      }
      case 1:
        test.pool.resize(test.pool.size() - 2 * ndim);
        break;
      case 2: {
        const std::vector<int64_t> first(test.pool.begin(), test.pool.begin() + static_cast<std::ptrdiff_t>(2 * ndim));
        test.pool.insert(test.pool.end(), first.begin(), first.end());
        break;
      }
      default:
        break;
    }
    const std::vector<int> counts = Count(test);
    const bool wanted = std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; });
    const std::vector<PackedBox> boxes = test.boxes();
    ASSERT_EQ(TilesExactly(test.shape, boxes), wanted) << "round " << round;
    (wanted ? exact : broken)++;

    // Together the faults are exactly the elements that are not held once, with exactly their holders.
    std::vector<int> from_faults(counts.size(), 1);
    for (const TilingFault& fault : FindTilingFaults(test.shape, boxes, 1000)) {
      for (size_t flat = 0; flat < counts.size(); ++flat) {
        auto rest = static_cast<int64_t>(flat);
        bool inside = true;
        for (size_t d = ndim; d-- > 0;) {
          const int64_t at = rest % test.shape[d];
          rest /= test.shape[d];
          inside = inside && at >= fault.region.offset[d] && at < fault.region.offset[d] + fault.region.shape[d];
        }
        if (inside) {
          ASSERT_EQ(from_faults[flat], 1) << "two faults meet";
          from_faults[flat] = static_cast<int>(fault.boxes.size());
        }
      }
    }
    ASSERT_EQ(from_faults, counts) << "round " << round;
  }
  EXPECT_GT(exact, 2000);
  EXPECT_GT(broken, 2000);
}

TEST(TilesExactlyTest, TilesExactly_GapAndOverlapOfEqualVolume_AreNotATiling) {
  const int64_t a[] = {0, 0, 2, 2}, b[] = {0, 0, 2, 2};
  EXPECT_FALSE(TilesExactly(Shape{2, 4}, std::vector<PackedBox>{a, b}));
}

TEST(TilesExactlyTest, TilesExactly_ScalarsAndEmptyTensors_AreTold) {
  const int64_t none[] = {0};
  EXPECT_TRUE(TilesExactly(Shape{}, std::vector<PackedBox>{none}));
  EXPECT_FALSE(TilesExactly(Shape{}, std::vector<PackedBox>{}));
  EXPECT_FALSE(TilesExactly(Shape{}, std::vector<PackedBox>{none, none}));
  EXPECT_TRUE(TilesExactly(Shape{0, 3}, std::vector<PackedBox>{}));
  EXPECT_EQ(FindTilingFaults(Shape{}, std::vector<PackedBox>{}, 4).size(), 1u);
}

TEST(TilesExactlyTest, TilesExactly_HugeCoordinates_DoNotOverflow) {
  const int64_t big = int64_t{1} << 61;
  const int64_t a[] = {0, big}, b[] = {big, big};
  EXPECT_TRUE(TilesExactly(Shape{2 * big}, std::vector<PackedBox>{b, a}));
  EXPECT_FALSE(TilesExactly(Shape{2 * big}, std::vector<PackedBox>{a}));
}

// Box d has index 0 of axis d and index 1 of the axes before; the last one has index 1 of all.
TEST(TilesExactlyTest, TilesExactly_MoreCutAxesThanAreFollowed_AreRefusedWithAFault) {
  for (const size_t ndim : {size_t{10}, kMostCutAxes + 1, size_t{40}}) {
    std::vector<std::vector<int64_t>> numbers;
    for (size_t d = 0; d <= ndim; ++d) {
      std::vector<int64_t> box(2 * ndim, 0);
      for (size_t axis = 0; axis < ndim; ++axis) {
        box[axis] = axis < d ? 1 : 0;
        box[ndim + axis] = axis <= d ? 1 : 2;
      }
      numbers.push_back(std::move(box));
    }
    std::vector<PackedBox> boxes;
    for (const auto& box : numbers) boxes.emplace_back(box.data());
    const Shape shape(ndim, 2);
    EXPECT_EQ(TilesExactly(shape, boxes), ndim <= kMostCutAxes);
    EXPECT_EQ(FindTilingFaults(shape, boxes, 4).size(), ndim <= kMostCutAxes ? 0u : 1u);
    boxes.pop_back();
    EXPECT_FALSE(TilesExactly(shape, boxes)) << ndim;
    EXPECT_FALSE(FindTilingFaults(shape, boxes, 4).empty()) << ndim;
  }
}

}  // namespace
}  // namespace cairn
