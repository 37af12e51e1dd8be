#include "common/resources/page_size.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/resources/testing/other_page_size.h"

namespace cairn {
namespace {

TEST(PageSizeTest, PageBytes_NothingElseIsSaid_IsTheSystems) {
  EXPECT_EQ(PageBytes(), static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST(PageSizeTest, RoundToPages_PagesOf64KiB_AreMultiplesOfThem) {
  const testing::OtherPageSize other(65536);
  EXPECT_EQ(RoundUpToPages(0), 0);
  EXPECT_EQ(RoundUpToPages(1), 65536);
  EXPECT_EQ(RoundUpToPages(65536), 65536);
  EXPECT_EQ(RoundUpToPages(65537), 131072);
  EXPECT_EQ(RoundDownToPages(65535), 0);
  EXPECT_EQ(RoundDownToPages(131071), 65536);
}

}  // namespace
}  // namespace cairn
