#include "common/resources/spare_threads.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"

namespace cairn {
namespace {

TEST(SpareThreadsTest, Run_OneTaskBlocks_OthersRun) {
  auto& threads = SpareThreads::OfProcess();
  absl::Notification release, first, second;
  ASSERT_TRUE(threads
                  .Run([&] {
                    release.WaitForNotification();
                    first.Notify();
                  })
                  .ok());
  ASSERT_TRUE(threads.Run([&] { second.Notify(); }).ok());
  second.WaitForNotification();
  EXPECT_FALSE(first.HasBeenNotified());
  release.Notify();
  first.WaitForNotification();
}

TEST(SpareThreadsTest, Run_MoreThanThereAreThreads_AllRun) {
  constexpr int kTasks = 3 * SpareThreads::kMost;
  struct State {
    Mutex mutex;
    CondVar changed;
    int ran = 0, at_once = 0, most = 0;
  };
  const auto state = std::make_shared<State>();
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_TRUE(SpareThreads::OfProcess()
                    .Run([state] {
                      {
                        MutexLock lock(state->mutex);
                        state->most = std::max(state->most, ++state->at_once);
                      }
                      std::this_thread::yield();
                      MutexLock lock(state->mutex);
                      --state->at_once;
                      ++state->ran;
                      state->changed.NotifyAll();
                    })
                    .ok());
  }
  MutexLock lock(state->mutex);
  while (state->ran < kTasks) state->changed.Wait(state->mutex);
  EXPECT_LE(state->most, SpareThreads::kMost);
}

}  // namespace
}  // namespace cairn
