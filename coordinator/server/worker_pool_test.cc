#include "coordinator/server/worker_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fake_clock.h"
#include "common/base/mutex.h"
#include "common/resources/testing/address_space.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr absl::Duration kStall = absl::Minutes(2);

// Storage that hangs until it is let go.
class Gate {
 public:
  void Pass() {
    MutexLock lock(mutex_);
    ++inside_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
    ++passed_;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void AwaitInside(int count) {
    MutexLock lock(mutex_);
    while (inside_ < count) changed_.Wait(mutex_);
  }
  void AwaitPassed(int count) {
    MutexLock lock(mutex_);
    while (passed_ < count) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  int passed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// Lives in a shared_ptr, because what a hanging thread uses must outlive the pool.
struct Fixture {
  FakeClock clock;
  Gate storage;
  Gate other;
};

// Thousands of uploads of one job must not be in the way of the few steps of another one's save.
TEST(WorkerPoolTest, Submit_WorkThatWasOfferedWaits_GoesFirst) {
  const auto fixture = std::make_shared<Fixture>();
  WorkerPool pool(1, kStall, fixture->clock);
  pool.Submit([fixture] { fixture->storage.Pass(); });
  fixture->storage.AwaitInside(1);
  std::vector<std::string> order;
  EXPECT_TRUE(pool.Offer([&] { order.push_back("offered"); }));
  pool.Submit([&] { order.push_back("submitted"); });
  EXPECT_TRUE(pool.Offer([&] { order.push_back("offered later"); }));
  fixture->storage.Open();
  EXPECT_TRUE(pool.Stop(absl::InfiniteDuration()));
  EXPECT_EQ(order, (std::vector<std::string>{"submitted", "offered", "offered later"}));
}

// A thread that comes back from storage is counted as hanging until it has said so.
void AwaitNoneStalled(WorkerPool& pool) {
  while (pool.ReplaceStalled() != 0) std::this_thread::yield();
}

TEST(WorkerPoolTest, ReplaceStalled_ThreadsHang_ReplacesEachOnce) {
  auto fixture = std::make_shared<Fixture>();
  WorkerPool pool(2, kStall, fixture->clock);
  for (int i = 0; i < 2; ++i) pool.Submit([fixture] { fixture->storage.Pass(); });
  fixture->storage.AwaitInside(2);
  fixture->other.Open();
  pool.Submit([fixture] { fixture->other.Pass(); });
  EXPECT_EQ(pool.ReplaceStalled(), 0);
  fixture->clock.Advance(kStall);
  EXPECT_EQ(pool.ReplaceStalled(), 2);
  fixture->other.AwaitPassed(1);
  EXPECT_EQ(pool.ReplaceStalled(), 2) << "replaced once";
  fixture->storage.Open();
  fixture->storage.AwaitPassed(2);
  // The threads that came back, or their replacements, go on with new work.
  pool.Submit([fixture] { fixture->other.Pass(); });
  fixture->other.AwaitPassed(2);
  AwaitNoneStalled(pool);
  EXPECT_TRUE(pool.Stop(absl::InfiniteDuration()));
  EXPECT_EQ(pool.ReplaceStalled(), 0);
}

TEST(WorkerPoolTest, ReplaceStalled_ThreadThatIsRefused_IsToldAndTriedAgain) {
  if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "a sanitizer's memory cannot be limited";
  auto fixture = std::make_shared<Fixture>();
  constexpr int kThreads = 16;  // more than the stacks of ended threads that the C library keeps for new ones
  WorkerPool pool(kThreads, kStall, fixture->clock);
  for (int i = 0; i < kThreads; ++i) pool.Submit([fixture] { fixture->storage.Pass(); });
  fixture->storage.AwaitInside(kThreads);
  fixture->other.Open();
  fixture->clock.Advance(kStall);
  absl::Status refused;
  {
    const LimitedAddressSpace limited(1 << 20);
    EXPECT_EQ(pool.ReplaceStalled(&refused), kThreads);
  }
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit)) << refused;
  EXPECT_EQ(pool.ReplaceStalled(&refused), kThreads);
  EXPECT_TRUE(refused.ok()) << refused;
  for (int i = 0; i < kThreads; ++i) pool.Submit([fixture] { fixture->other.Pass(); });
  fixture->other.AwaitPassed(kThreads);
  fixture->storage.Open();
  AwaitNoneStalled(pool);
  EXPECT_TRUE(pool.Stop(absl::InfiniteDuration()));
}

TEST(WorkerPoolTest, ReplaceStalled_ThreadComputes_IsNotCountedAsHanging) {
  auto fixture = std::make_shared<Fixture>();
  WorkerPool pool(1, kStall, fixture->clock);
  pool.Submit([fixture] {
    {
      const Computing computing;
      const Computing nested;
      fixture->storage.Pass();
    }
    fixture->other.Pass();
  });
  fixture->storage.AwaitInside(1);
  fixture->clock.Advance(2 * kStall);
  EXPECT_EQ(pool.ReplaceStalled(), 0);
  fixture->storage.Open();
  fixture->other.AwaitInside(1);
  EXPECT_EQ(pool.ReplaceStalled(), 0) << "the storage's time begins when the computing ends";
  fixture->clock.Advance(kStall);
  EXPECT_EQ(pool.ReplaceStalled(), 1);
  fixture->other.Open();
  AwaitNoneStalled(pool);
  EXPECT_TRUE(pool.Stop(absl::InfiniteDuration()));
}

TEST(WorkerPoolTest, Stop_ThreadHangs_DoesNotWaitForIt) {
  auto fixture = std::make_shared<Fixture>();
  {
    WorkerPool pool(1, kStall, fixture->clock);
    pool.Submit([fixture] { fixture->storage.Pass(); });
    fixture->storage.AwaitInside(1);
    fixture->clock.Advance(kStall);
    EXPECT_EQ(pool.ReplaceStalled(), 1);
    fixture->other.Open();
    pool.Submit([fixture] { fixture->other.Pass(); });
    EXPECT_FALSE(pool.Stop(absl::InfiniteDuration()));
    fixture->other.AwaitPassed(1);
  }
  // The pool is gone, and its last thread still finds what it uses.
  fixture->storage.Open();
  fixture->storage.AwaitPassed(1);
}

TEST(WorkerPoolTest, ReplaceStalled_EveryReplacementHangs_StopsAtTheBound) {
  auto fixture = std::make_shared<Fixture>();
  WorkerPool pool(1, kStall, fixture->clock);
  for (int i = 0; i < WorkerPool::kMaxStalled + 5; ++i) pool.Submit([fixture] { fixture->storage.Pass(); });
  for (int i = 1; i <= WorkerPool::kMaxStalled + 1; ++i) {
    fixture->storage.AwaitInside(i);
    fixture->clock.Advance(kStall);
    EXPECT_EQ(pool.ReplaceStalled(), i);
  }
  EXPECT_EQ(pool.ReplaceStalled(), WorkerPool::kMaxStalled + 1) << "no more are started";
  size_t taken = 0;
  while (pool.Offer([] {})) ++taken;
  EXPECT_LT(taken, WorkerPool::kMaxWaiting);
  fixture->storage.Open();
  fixture->storage.AwaitPassed(WorkerPool::kMaxStalled + 5);
}

}  // namespace
}  // namespace cairn
