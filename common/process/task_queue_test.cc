#include "common/process/task_queue.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"

namespace {

// How many threads the system still gives.
std::atomic<int> threads_left = INT_MAX;

}  // namespace

// Replaces the C library's.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                              void* argument) noexcept {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  return threads_left-- > 0 ? real(thread, attributes, work, argument) : EAGAIN;
}

namespace cairn {
namespace {

TEST(TaskQueueTest, TaskQueue_ThreadsAreRefused_WorksWithThoseThatStarted) {
  threads_left = 1;
  std::promise<void> ran;
  TaskQueue queue(2);
  threads_left = 0;
  EXPECT_THROW(TaskQueue(2), std::system_error);
  threads_left = INT_MAX;
  queue.Post([&ran] { ran.set_value(); });
  ran.get_future().wait();
}

TEST(TaskQueueTest, Post_OneThread_RunsTasksInTheirOrder) {
  std::vector<int> ran;
  std::promise<void> last;
  TaskQueue queue(1);  // ends before what its tasks use
  for (int i = 0; i < 100; ++i) queue.Post([&ran, i] { ran.push_back(i); });
  queue.Post([&last] { last.set_value(); });
  last.get_future().wait();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST(TaskQueueTest, Post_TwoThreads_ATaskDoesNotWaitForAnother) {
  std::promise<void> first, second;
  TaskQueue queue(2);
  queue.Post([&] {
    second.get_future().wait();
    first.set_value();
  });
  queue.Post([&second] { second.set_value(); });
  first.get_future().wait();
}

TEST(TaskQueueTest, Stop_ATaskRuns_WaitsForItAndDropsTheOthers) {
  std::promise<void> began, dropped;
  int ran = 0;
  TaskQueue queue(1);
  queue.Post([&] {
    began.set_value();
    dropped.get_future().wait();
    ++ran;
  });
  began.get_future().wait();
  // This task is destroyed without having run, and only then does the first one end.
  std::shared_ptr<void> lives(nullptr, [&dropped](void*) { dropped.set_value(); });
  queue.Post([&ran, lives = std::move(lives)] { ran += 10; });
  queue.Stop();
  EXPECT_EQ(ran, 1);
  queue.Post([&ran] { ran += 100; });
  queue.Stop();
  EXPECT_EQ(ran, 1);
}

// As when a load fails in the moment in which it is ended.
TEST(TaskQueueTest, Stop_BySeveralThreadsAtOnce_AllReturnWhenNoTaskRuns) {
  for (int round = 0; round < 50; ++round) {
    std::promise<void> began, go_on;
    std::atomic<bool> ended = false;
    TaskQueue queue(2);
    queue.Post([&] {
      began.set_value();
      go_on.get_future().wait();
      ended = true;
    });
    began.get_future().wait();
    std::vector<std::future<bool>> stopping;
    stopping.reserve(4);
    for (int i = 0; i < 4; ++i) {
      stopping.push_back(std::async(std::launch::async, [&] {
        queue.Stop();
        return ended.load();
      }));
    }
    go_on.set_value();
    for (auto& stopped : stopping) EXPECT_TRUE(stopped.get());
  }
}

TEST(BackgroundTest, RunInBackground_OneTaskBlocks_OthersRun) {
  absl::Notification release, first, second;
  ASSERT_TRUE(RunInBackground([&] {
                release.WaitForNotification();
                first.Notify();
              }).ok());
  ASSERT_TRUE(RunInBackground([&] { second.Notify(); }).ok());
  second.WaitForNotification();
  EXPECT_FALSE(first.HasBeenNotified());
  release.Notify();
  first.WaitForNotification();
}

TEST(BackgroundTest, RunInBackground_MoreThanThereAreThreads_AllRun) {
  constexpr int kTasks = 3 * kMostInBackground;
  struct State {
    Mutex mutex;
    CondVar changed;
    int ran = 0, at_once = 0, most = 0;
  };
  const auto state = std::make_shared<State>();
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_TRUE(RunInBackground([state] {
                  {
                    MutexLock lock(state->mutex);
                    state->most = std::max(state->most, ++state->at_once);
                  }
                  std::this_thread::yield();
                  MutexLock lock(state->mutex);
                  --state->at_once;
                  ++state->ran;
                  state->changed.NotifyAll();
                }).ok());
  }
  MutexLock lock(state->mutex);
  while (state->ran < kTasks) state->changed.Wait(state->mutex);
  EXPECT_LE(state->most, kMostInBackground);
}

}  // namespace
}  // namespace cairn
