#include "common/resources/thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(ThreadTest, ForEachOnThreads_ManyCallers_EachNumberIsDoneOnce) {
  Helpers helpers(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 5; ++c) {
    callers.emplace_back([&] {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}}) {
        std::vector<std::atomic<int>> done(count);
        EXPECT_EQ(ForEachOnThreads("", count, 1, helpers, [&](size_t i, int) { return ++done[i], absl::OkStatus(); }),
                  absl::OkStatus());
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
    const absl::Status failed = ForEachOnThreads("", done.size(), 1, helpers, [&](size_t i, int) {
      ++done[i];
      return i >= bad ? absl::InternalError(std::to_string(i)) : absl::OkStatus();
    });
    EXPECT_EQ(failed, absl::InternalError(std::to_string(bad)));
    for (size_t i = 0; i <= bad; ++i) EXPECT_EQ(done[i], 1) << i;
  }
}

TEST(ThreadTest, ForEachOnThreads_SeveralThreads_EachHasANumberOfItsOwn) {
  Mutex mutex;
  std::map<int, std::set<std::thread::id>> threads;
  const auto note = [&](size_t, int thread) {
    MutexLock lock(mutex);
    threads[thread].insert(std::this_thread::get_id());
    return absl::OkStatus();
  };
  EXPECT_EQ(ForEachOnThreads("", 1000, 4, note), absl::OkStatus());
  for (const auto& [number, ids] : threads) {
    EXPECT_LT(number, 4);
    EXPECT_EQ(ids.size(), 1u) << number;
  }
}

TEST(ThreadTest, ForEachOnThreads_MemoryIsRefused_SaysWhatItWasFor) {
  const absl::Status status = ForEachOnThreads("to read step 7", 10, 2, [](size_t i, int) -> absl::Status {
    if (i == 5) throw std::bad_alloc();
    return absl::OkStatus();
  });
  EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
  EXPECT_NE(status.message().find("to read step 7"), std::string::npos) << status;
}

TEST(ThreadTest, ForEachOnThreads_AllHelpersHang_OthersGoOnWithoutMoreThreads) {
  constexpr int kHelpers = 3;
  Helpers helpers(kHelpers);
  Mutex mutex;
  CondVar changed;
  int inside = 0;
  bool open = false;
  std::thread held([&] {
    ForEachOnThreads("", kHelpers + 1, 1, helpers, [&](size_t, int) {
      MutexLock lock(mutex);
      ++inside;
      changed.NotifyAll();
      while (!open) changed.Wait(mutex);
      return absl::OkStatus();
    }).IgnoreError();
  });
  {
    MutexLock lock(mutex);
    while (inside <= kHelpers) changed.Wait(mutex);
  }
  for (int call = 0; call < 20; ++call) {
    std::set<std::thread::id> threads;
    const auto note = [&](size_t, int) { return threads.insert(std::this_thread::get_id()), absl::OkStatus(); };
    EXPECT_EQ(ForEachOnThreads("", 1000, 1, helpers, note), absl::OkStatus());
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
