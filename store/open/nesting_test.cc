#include "store/open/nesting.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(NestingTest, OnePlaceAtOrBelowTheOther_IsFound) {
  EXPECT_TRUE(LieWithinEachOther("/ckpt", "/ckpt"));
  EXPECT_TRUE(LieWithinEachOther("/ckpt/", "/ckpt/mirror"));
  EXPECT_TRUE(LieWithinEachOther("/ckpt/mirror", "/ckpt"));
  EXPECT_TRUE(LieWithinEachOther("/", "/ckpt"));
  EXPECT_TRUE(LieWithinEachOther("s3://models/llm", "s3://models"));
}

TEST(NestingTest, NamesThatOnlyBeginAlike_AreApart) {
  EXPECT_FALSE(LieWithinEachOther("/ckpt", "/ckpt2"));
  EXPECT_FALSE(LieWithinEachOther("/ckpt/a", "/ckpt/b"));
  EXPECT_FALSE(LieWithinEachOther("s3://models/llm", "gs://models/llm"));
  EXPECT_FALSE(LieWithinEachOther("s3://models/llm", "s3://models/llm?endpoint=http://other"));
}

}  // namespace
}  // namespace cairn
