#include "foreign/tensors/window_size.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(WindowSizeTest, WindowBytes_HoldsThePartIfMemoryAllows) {
  const WindowSizes sizes{
      .memory_bytes = 1024 * kMiB, .reader_bytes = 16 * kMiB, .largest_part = 300 * kMiB, .most_bytes = 5000 * kMiB};
  EXPECT_EQ(WindowBytes(sizes), 300 * kMiB);
  WindowSizes other = sizes;
  other.largest_part = 800 * kMiB;
  EXPECT_EQ(WindowBytes(other), 496 * kMiB);
  other = sizes;
  other.largest_part = 1;
  EXPECT_EQ(WindowBytes(other), 64 * kMiB);
  other.most_bytes = 5000;
  EXPECT_EQ(WindowBytes(other), 8192);
  other.most_bytes = 0;
  EXPECT_EQ(WindowBytes(other), 4096);
  other = sizes;
  other.memory_bytes = 1;
  EXPECT_EQ(WindowBytes(other), kSmallestWindowBytes);
}

}  // namespace
}  // namespace cairn
