#include "common/resources/aligned_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "common/resources/page_size.h"
#include "common/resources/testing/other_page_size.h"

namespace cairn {
namespace {

// How many of the pages from `begin` on take memory.
size_t ResidentPages(const char* begin, size_t bytes) {
  std::vector<unsigned char> pages(RoundUpToPages(bytes) / PageBytes());
  EXPECT_EQ(mincore(const_cast<char*>(begin), bytes, pages.data()), 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

// Whether all pages from `begin` on are mapped.
bool IsMapped(const char* begin, size_t bytes) {
  std::vector<unsigned char> pages(bytes / kIoAlignment + 1);
  return mincore(const_cast<char*>(begin), bytes, pages.data()) == 0;
}

TEST(AlignedBufferTest, AlignedBuffer_AnySize_IsAlignedZeroAndWritable) {
  for (const size_t size : {size_t{1}, kIoAlignment, kIoAlignment + 1, kHugePageBytes - 1, kHugePageBytes,
                            3 * kHugePageBytes + 5 * kIoAlignment + 7}) {
    AlignedBuffer buffer(size);
    EXPECT_EQ(buffer.size(), RoundUpToIo(size));
    const size_t alignment = buffer.size() >= kHugePageBytes ? kHugePageBytes : kIoAlignment;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0) << size;
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(), [](char byte) { return byte == 0; }));
    std::fill_n(buffer.data(), buffer.size(), 'x');
  }
}

TEST(AlignedBufferTest, AlignedBuffer_NotTouched_TakesNoMemory) {
  const AlignedBuffer buffer(8 * kHugePageBytes);
  EXPECT_EQ(ResidentPages(buffer.data(), buffer.size()), 0);
}

TEST(AlignedBufferTest, AlignedBuffer_IsGone_NothingOfItStaysMapped) {
  const char* place = nullptr;
  {
    AlignedBuffer first(3 * kHugePageBytes + kIoAlignment);
    place = first.data();
    const AlignedBuffer second = std::move(first);
    EXPECT_EQ(second.data(), place);
    EXPECT_TRUE(IsMapped(place, second.size()));
  }
  EXPECT_FALSE(IsMapped(place, 3 * kHugePageBytes + kIoAlignment));
}

// The kernel refuses to unmap from the middle of a page on.
TEST(AlignedBufferTest, AlignedBuffer_PagesOf64KiB_OnlyWholePagesAreUnmapped) {
  constexpr size_t kPage = 65536, kSize = 3 * kHugePageBytes + kIoAlignment;
  const testing::OtherPageSize other(kPage);
  const char* place = nullptr;
  {
    const AlignedBuffer buffer(kSize);
    place = buffer.data();
    EXPECT_EQ(buffer.size(), kSize);
    EXPECT_TRUE(IsMapped(place, 3 * kHugePageBytes + kPage));
  }
  for (size_t at = 0; at <= 3 * kHugePageBytes; at += kPage) ASSERT_FALSE(IsMapped(place + at, kPage)) << at;
}

TEST(AlignedBufferTest, AlignedBuffer_MoreThanThereIs_Throws) {
  EXPECT_THROW(AlignedBuffer(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(AlignedBuffer(SIZE_MAX - kHugePageBytes), std::bad_alloc);
  EXPECT_THROW(AlignedBuffer(size_t{1} << 62), std::bad_alloc);
  EXPECT_EQ(AlignedBuffer(0).size(), 0);
}

}  // namespace
}  // namespace cairn
