#include "common/tensor/dtype.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(DTypeTableTest, DTypeTable_AllRows_StandAtTheirNumbers) {
  int number = 1;
  for (const DTypeInfo& info : DTypeTable()) {
    EXPECT_EQ(static_cast<int>(info.dtype), number);
    EXPECT_EQ(DTypeFromName(info.name), info.dtype);
    EXPECT_EQ(DTypeFromNumber(number), info.dtype);
    EXPECT_EQ(&InfoOf(info.dtype), &info);
    ++number;
  }
  EXPECT_EQ(DTypeFromNumber(0), std::nullopt);
  EXPECT_EQ(DTypeFromNumber(number), std::nullopt);
  EXPECT_EQ(DTypeFromName("float"), std::nullopt);
}

}  // namespace
}  // namespace cairn
