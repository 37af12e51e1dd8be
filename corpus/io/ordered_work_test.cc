#include "corpus/io/ordered_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

struct Outcome {
  absl::Status status;
  std::vector<int> delivered;
  int most = 0;
};

Outcome RunWork(int threads, uint64_t window, int items, int bad_next, int bad_work, int bad_deliver) {
  Outcome run;
  int next = 0;
  std::atomic<int> open{0}, most{0};
  OrderedSteps<int, int> steps;
  steps.next = [&](int& item) -> absl::StatusOr<bool> {
    if (next == bad_next) return absl::DataLossError("next");
    if (next == items) return false;
    item = next++;
    const int now = ++open;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    return true;
  };
  steps.work = [&](int, int& item) -> absl::StatusOr<int> {
    volatile int busy = 0;
    for (int i = 0; i < (item % 7) * 2000; ++i) busy = busy + 1;
    if (item == bad_work || item == bad_work + 2) return absl::InvalidArgumentError(std::to_string(item));
    return item * 2;
  };
  steps.deliver = [&](int result) {
    --open;
    if (result / 2 == bad_deliver) return absl::ResourceExhaustedError("deliver");
    run.delivered.push_back(result);
    return absl::OkStatus();
  };
  run.status = OrderedWork<int, int>(threads, window, steps).Run();
  run.most = most;
  return run;
}

TEST(OrderedWorkTest, Run_ManyItems_DeliversInOrderWithinTheWindow) {
  for (const int threads : {1, 2, 5}) {
    for (const uint64_t window : {uint64_t{1}, uint64_t{3}, uint64_t{16}}) {
      const Outcome run = RunWork(threads, window, 500, -1, -10, -1);
      ASSERT_TRUE(run.status.ok());
      ASSERT_EQ(run.delivered.size(), 500u);
      for (int i = 0; i < 500; ++i) ASSERT_EQ(run.delivered[static_cast<size_t>(i)], 2 * i);
      EXPECT_LE(run.most, static_cast<int>(window));
    }
  }
}

TEST(OrderedWorkTest, Run_ItemsOfDifferentCosts_TakesTheNextOnlyBelowTheWindow) {
  int next = 0;
  std::atomic<int64_t> open = 0;
  OrderedSteps<int, int> steps;
  const auto cost = [](int item) { return item % 10 == 9 ? 100 : item % 3; };
  steps.next = [&](int& item) -> absl::StatusOr<bool> {
    EXPECT_LT(open.load(), 6) << "item " << next;
    if (next == 500) return false;
    item = next++;
    open += cost(item);
    return true;
  };
  steps.cost = [&](const int& item) { return static_cast<uint64_t>(cost(item)); };
  steps.work = [](int, int& item) -> absl::StatusOr<int> { return item; };
  int delivered = 0;
  steps.deliver = [&](int item) {
    EXPECT_EQ(item, delivered++);
    open -= cost(item);
    return absl::OkStatus();
  };
  EXPECT_TRUE((OrderedWork<int, int>(4, 6, steps).Run().ok()));
  EXPECT_EQ(delivered, 500);
}

TEST(OrderedWorkTest, Run_AStepHasNoMemory_IsAnError) {
  int next = 0, delivered = 0;
  OrderedSteps<int, int> steps;
  steps.next = [&](int& item) -> absl::StatusOr<bool> { return (item = next++) < 100; };
  steps.work = [](int, int& item) -> absl::StatusOr<int> {
    if (item == 50) throw std::bad_alloc();
    return item;
  };
  steps.deliver = [&](int) {
    ++delivered;
    return absl::OkStatus();
  };
  const absl::Status status = OrderedWork<int, int>(4, 8, steps).Run();
  EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
  EXPECT_EQ(delivered, 50);
}

TEST(OrderedWorkTest, Run_SeveralFailures_TheFirstInOrderIsTheOutcome) {
  for (int round = 0; round < 20; ++round) {
    Outcome run = RunWork(4, 8, 500, -1, 100, -1);
    EXPECT_EQ(run.status.message(), "100");
    EXPECT_EQ(run.delivered.size(), 100u);
    run = RunWork(4, 8, 500, 50, 100, -1);
    EXPECT_EQ(run.status.message(), "next");
    EXPECT_EQ(run.delivered.size(), 50u);
    run = RunWork(4, 8, 500, -1, 100, 30);
    EXPECT_EQ(run.status.message(), "deliver");
    EXPECT_EQ(run.delivered.size(), 30u);
  }
}

TEST(OrderedWorkTest, Run_NothingToDo_Ends) { EXPECT_TRUE(RunWork(3, 2, 0, -1, -10, -1).status.ok()); }

}  // namespace
}  // namespace cairn::corpus
