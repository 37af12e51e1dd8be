#include "cli/base/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace cairn::cli {
namespace {

TEST(InterruptTest, InterruptFlag_OneSignal_SetsItAndEndsNothing) {
  const auto interrupted = [] {
    const bool before = InterruptFlag();
    std::raise(SIGTERM);
    std::exit(!before && InterruptFlag() ? 0 : 1);
  };
  EXPECT_EXIT(interrupted(), testing::ExitedWithCode(0), "");
}

TEST(InterruptTest, InterruptFlag_SecondSignalAfterItWasLookedAt_EndsTheProcess) {
  const auto interrupted_twice = [] {
    (void)InterruptFlag();
    std::raise(SIGINT);
    while (!InterruptFlag()) {
    }
    std::raise(SIGINT);
    std::exit(0);
  };
  EXPECT_EXIT(interrupted_twice(), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace cairn::cli
