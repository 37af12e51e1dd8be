#include "agent/reader/buffer_pool.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr uint64_t kPage = 4096;

TEST(BufferPoolTest, Budget_SlabsSourcesAndBuffersAreHeld_CountsThemAll) {
  BufferPool pool(10 * kPage, 1);
  auto slab = pool.Make("slab", 4 * kPage).value();
  auto source = pool.Make("source", 3 * kPage - 1).value();
  const absl::Status refused = pool.Make("another", 4 * kPage).status();
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit)) << refused;
  EXPECT_EQ(MetadataOf(refused)["bytes"], "16384");
  EXPECT_EQ(MetadataOf(refused)["limit"], "40960");
  EXPECT_EQ(MetadataOf(refused)["used"], "28672");
  EXPECT_EQ(MetadataOf(refused)["source"], "--memory-budget");
  EXPECT_TRUE(HasReason(pool.Take(4 * kPage).status(), Reason::kMemoryLimit));
  auto read = pool.Take(3 * kPage).value();
  EXPECT_TRUE(HasReason(pool.Take(1).status(), Reason::kMemoryLimit));
  // Whoever holds memory last gives its room back, also a lender that outlives its load.
  auto lent = source;
  source.reset();
  EXPECT_FALSE(pool.Take(1).ok());
  lent.reset();
  auto small = pool.Take(3 * kPage).value();
  // Buffers that are kept for the next load give way.
  pool.GiveBack(std::move(small));
  pool.GiveBack(std::move(read));
  EXPECT_TRUE(pool.Make("another", 6 * kPage).ok());
  EXPECT_EQ(slab->bytes(), 4 * kPage);
}

TEST(BufferPoolTest, Memory_PoolIsGone_StaysUsable) {
  std::shared_ptr<SharedMemory> memory;
  {
    BufferPool pool(0, 1);
    memory = pool.Make("source", kPage).value();
  }
  memory->data()[0] = 1;
}

}  // namespace
}  // namespace cairn
