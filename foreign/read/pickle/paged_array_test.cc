#include "foreign/read/pickle/paged_array.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace cairn {
namespace {

TEST(PagedArrayTest, PushBack_BeyondTheSmallPagesAndTwoLargeOnes_KeepsEachElement) {
  constexpr uint64_t kElements = 3 * (uint64_t{1} << 18) + 5;
  PagedArray<uint64_t> array;
  for (uint64_t i = 0; i < kElements; ++i) array.push_back(i * i);
  ASSERT_EQ(array.size(), kElements);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kElements; ++i) wrong += array[i] == i * i ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

TEST(PagedArrayTest, PushBack_NeverMovesWhatIsThere) {
  PagedArray<uint32_t> array;
  array.push_back(7);
  uint32_t* const first = &array[0];
  for (uint32_t i = 0; i < 600'000; ++i) array.push_back(i);
  EXPECT_EQ(first, &array[0]);
  *first = 8;
  EXPECT_EQ(std::as_const(array)[0], 8);
}

}  // namespace
}  // namespace cairn
