#include "common/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace cairn {
namespace {

// Passes a turn to and fro between two threads, which wait for it with this timeout. Returns 1 if a wait ended with the
// timeout, else 0.
int TimeoutsIn2000Turns(absl::Duration timeout) {
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  int timeouts = 0;
  const auto take_turns = [&](int parity) {
    MutexLock lock(mutex);
    while (turn < 2000 && timeouts == 0) {
      if (turn % 2 == parity) {
        ++turn;
        changed.NotifyAll();
      } else if (!changed.WaitFor(mutex, timeout)) {
        ++timeouts;
      }
    }
    changed.NotifyAll();
  };
  std::thread other([&] { take_turns(1); });
  take_turns(0);
  other.join();
  return timeouts;
}

TEST(CondVarTest, WaitFor_AnInfiniteTimeout_NeverPasses) {
  EXPECT_EQ(TimeoutsIn2000Turns(absl::InfiniteDuration()), 0);
}

TEST(CondVarTest, WaitFor_LongerThanTheClockCounts_NeverPasses) {
  for (const int years : {1, 99, 101, 280, 300, 100'000}) {
    EXPECT_EQ(TimeoutsIn2000Turns(years * 365 * absl::Hours(24)), 0) << years;
  }
}

TEST(CondVarTest, WaitFor_ATimeThatIsOver_Passes) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), -absl::Seconds(1), -absl::InfiniteDuration(), absl::Nanoseconds(1)}) {
    // A condition variable may also wake without a reason.
    while (changed.WaitFor(mutex, timeout)) {
    }
  }
}

}  // namespace
}  // namespace cairn
