#include "gpu/driver/call_watch.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn::cuda {
namespace {

TEST(CallWatchTest, Hanging_InNoCall_IsEmpty) {
  CallWatch watch;
  EXPECT_EQ(watch.Hanging(), "");
  {
    const CallWatch::Call unseen("cuInit");
  }
  const CallWatch::Here here(watch);
  EXPECT_EQ(watch.Hanging(), "");
  {
    const CallWatch::Call ended("cuInit");
  }
  EXPECT_EQ(watch.Hanging(), "");
}

TEST(CallWatchTest, Hanging_InACall_IsItsNameWithoutTheVersion) {
  CallWatch watch;
  const CallWatch::Here here(watch);
  const CallWatch::Call call("cuMemcpyDtoHAsync_v2");
  std::string text;
  while (text.empty()) text = watch.Hanging();  // until it has lasted for a moment
  EXPECT_TRUE(text.starts_with("cuMemcpyDtoHAsync has not returned for ")) << text;
  EXPECT_TRUE(text.ends_with(" s")) << text;
}

TEST(CallWatchTest, WatchedFunction_Called_PassesOnItsParametersAndResult) {
  WatchedFunction<int(int, int)> function;
  EXPECT_FALSE(function);
  function.Set(reinterpret_cast<void*>(+[](int a, int b) { return a - b; }), "subtract");
  EXPECT_TRUE(function);
  EXPECT_EQ(function(5, 3), 2);
}

}  // namespace
}  // namespace cairn::cuda
