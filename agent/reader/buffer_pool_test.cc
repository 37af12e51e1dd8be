#include "agent/reader/buffer_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "agent/staging/huge_pages.h"
#include "common/file/unique_fd.h"
#include "common/resources/page_size.h"
#include "common/resources/testing/other_page_size.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

const uint64_t kPage = PageBytes();

TEST(BufferPoolTest, Budget_SlabsSourcesAndBuffersAreHeld_CountsThemAll) {
  BufferPool pool(10 * kPage, 1);
  auto slab = pool.Make("slab", 4 * kPage).value();
  auto source = pool.Make("source", 3 * kPage - 1).value();
  const absl::Status refused = pool.Make("another", 4 * kPage).status();
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit)) << refused;
  EXPECT_EQ(MetadataOf(refused)["bytes"], absl::StrCat(4 * kPage));
  EXPECT_EQ(MetadataOf(refused)["limit"], absl::StrCat(10 * kPage));
  EXPECT_EQ(MetadataOf(refused)["used"], absl::StrCat(7 * kPage));
  EXPECT_EQ(MetadataOf(refused)["source"], "--memory-budget");
  EXPECT_TRUE(HasReason(pool.Take(4 * kPage).status(), Reason::kMemoryLimit));
  auto read = pool.Take(3 * kPage).value();
  EXPECT_TRUE(HasReason(pool.Take(1).status(), Reason::kMemoryLimit));
  // The last owner of memory releases its part of the budget, even after the load has ended.
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

TEST(BufferPoolTest, Reserve_OthersTakeWhatIsLeft_MemoryOfTheRoomIsMadeAllTheSame) {
  BufferPool pool(10 * kPage, 1);
  auto room = pool.Reserve(6 * kPage, 2 * kPage).value();
  EXPECT_EQ(pool.held(), 6 * kPage) << "what comes beside it is not taken";
  EXPECT_TRUE(pool.Fits(4 * kPage));
  EXPECT_FALSE(pool.Fits(4 * kPage + 1));
  auto other = pool.Make("other", 4 * kPage).value();
  EXPECT_TRUE(HasReason(pool.Make("another", 1).status(), Reason::kMemoryLimit));
  auto first = pool.Make("first", 4 * kPage - 1, room).value();
  EXPECT_EQ(pool.held(), 10 * kPage);
  EXPECT_TRUE(HasReason(pool.Make("second", 3 * kPage, room).status(), Reason::kMemoryLimit))
      << "the room has two pages left, and the pool none";
  // Freed memory goes back to the room, and no other memory gets it.
  first.reset();
  EXPECT_TRUE(HasReason(pool.Make("another", 1).status(), Reason::kMemoryLimit));
  auto second = pool.Make("second", 6 * kPage, room).value();
  // The room exists until its last memory is freed.
  room.reset();
  EXPECT_EQ(pool.held(), 10 * kPage);
  second.reset();
  EXPECT_EQ(pool.held(), 4 * kPage);
}

TEST(BufferPoolTest, Reserve_FitsNot_SaysSoAndHoldsNothing) {
  BufferPool pool(10 * kPage, 1);
  pool.GiveBack(pool.Take(4 * kPage).value());
  EXPECT_TRUE(pool.Reserve(6 * kPage, 0).ok());
  EXPECT_EQ(pool.held(), 4 * kPage) << "it did not have to free the buffer that is kept";
  const absl::Status refused = pool.Reserve(8 * kPage, 3 * kPage).status();
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit)) << refused;
  EXPECT_EQ(MetadataOf(refused)["bytes"], absl::StrCat(11 * kPage));
  EXPECT_EQ(pool.held(), 0) << "the kept buffer gave way";
  EXPECT_TRUE(pool.Reserve(8 * kPage, 2 * kPage).ok());
}

TEST(BufferPoolTest, Budget_PagesOf64KiB_CountsWholePages) {
  constexpr uint64_t kLarge = 65536;
  const testing::OtherPageSize other(kLarge);
  BufferPool pool(3 * kLarge, 1);
  const auto slab = pool.Make("slab", 4096).value();
  EXPECT_EQ(slab->bytes(), kLarge);
  EXPECT_EQ(pool.held(), kLarge);
  const auto read = pool.Take(kLarge + 1).value();
  EXPECT_EQ(read->bytes(), 2 * kLarge);
  EXPECT_EQ(pool.held(), 3 * kLarge);
  EXPECT_TRUE(HasReason(pool.Take(1).status(), Reason::kMemoryLimit));
}

TEST(BufferPoolTest, SetAside_EnoughAreFreeOrNot_MakesSealedMemoryWithinTheBudget) {
  BufferPool pool(4 * kHugePageBytes, 2, /*set_aside=*/true);
  const auto memory = pool.Make("slab", 3 * kHugePageBytes / 2).value();
  const bool huge = memory->pages() == SharedMemory::Pages::kSetAside;
  EXPECT_EQ(pool.held(), memory->bytes());
  EXPECT_EQ(memory->bytes(), (huge ? 4 : 3) * kHugePageBytes / 2);
  memory->data()[kHugePageBytes] = 'x';
  const UniqueFd reader = memory->OpenReadOnly().value();
  char read = 0;
  EXPECT_EQ(pread(reader.get(), &read, 1, kHugePageBytes), 1);
  EXPECT_EQ(read, 'x');
  EXPECT_TRUE(HasReason(pool.Make("another", 4 * kHugePageBytes).status(), Reason::kMemoryLimit));
  // Rounded to whole huge pages it would not fit.
  BufferPool narrow(kHugePageBytes + kPage, 1, /*set_aside=*/true);
  EXPECT_EQ(narrow.Make("slab", kHugePageBytes + kPage).value()->bytes(), kHugePageBytes + kPage);
  // A page for a few bytes would be a waste.
  EXPECT_EQ(pool.Make("small", kPage).value()->pages(), SharedMemory::Pages::kOrdinary);
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
