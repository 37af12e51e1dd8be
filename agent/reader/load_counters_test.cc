#include "agent/reader/load_counters.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(LoadCountersTest, IoPath_BytesByMoreThanOneWay_IsThatOfMostBytesOfStorage) {
  LoadCounters counters;
  EXPECT_EQ(counters.io_path(), v1::IO_PATH_UNSPECIFIED);
  counters.cached = 10;
  counters.buffered = 10;
  counters.direct = 20;
  EXPECT_EQ(counters.io_path(), v1::IO_PATH_CACHED);
  counters.direct = 21;
  EXPECT_EQ(counters.io_path(), v1::IO_PATH_DIRECT);
  counters.slab = 1'000;
  EXPECT_EQ(counters.io_path(), v1::IO_PATH_DIRECT);
  EXPECT_EQ(counters.storage(), 41) << "the slab is none";
}

}  // namespace
}  // namespace cairn
