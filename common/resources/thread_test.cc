#include "common/resources/thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace cairn {
namespace {

TEST(ThreadTest, ForEachOnThreads_ManyCallers_EachNumberIsDoneOnce) {
  Helpers helpers(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 5; ++c) {
    callers.emplace_back([&] {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}}) {
        std::vector<std::atomic<int>> done(count);
        EXPECT_FALSE(ForEachOnThreads(count, 1, helpers, [&](size_t i) { return ++done[i], 0; }).has_value());
        for (const auto& times : done) EXPECT_EQ(times, 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadTest, ForEachOnThreads_SeveralFail_TheFirstInOrderIsTold) {
  Helpers helpers(4);
  for (size_t bad = 0; bad < 200; ++bad) {
    std::vector<std::atomic<int>> done(200);
    const auto failed = ForEachOnThreads(done.size(), 1, helpers, [&](size_t i) {
      ++done[i];
      return i >= bad ? static_cast<int>(i) + 1 : 0;
    });
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->index, bad);
    EXPECT_EQ(failed->error, static_cast<int>(bad) + 1);
    for (size_t i = 0; i <= bad; ++i) EXPECT_EQ(done[i], 1) << i;
  }
}

TEST(ThreadTest, ForEachOnThreads_AllHelpersHang_OthersGoOnWithoutMoreThreads) {
  constexpr int kHelpers = 3;
  Helpers helpers(kHelpers);
  Mutex mutex;
  CondVar changed;
  int inside = 0;
  bool open = false;
  std::thread held([&] {
    ForEachOnThreads(kHelpers + 1, 1, helpers, [&](size_t) {
      MutexLock lock(mutex);
      ++inside;
      changed.NotifyAll();
      while (!open) changed.Wait(mutex);
      return 0;
    });
  });
  {
    MutexLock lock(mutex);
    while (inside <= kHelpers) changed.Wait(mutex);
  }
  for (int call = 0; call < 20; ++call) {
    std::set<std::thread::id> threads;
    EXPECT_FALSE(
        ForEachOnThreads(1000, 1, helpers, [&](size_t) { return threads.insert(std::this_thread::get_id()), 0; }));
    EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
  }
  {
    MutexLock lock(mutex);
    open = true;
    changed.NotifyAll();
  }
  held.join();
  EXPECT_EQ(helpers.Take(kHelpers + 1), kHelpers) << "all were given back";
}

}  // namespace
}  // namespace cairn
