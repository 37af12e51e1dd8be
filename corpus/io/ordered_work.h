// Takes items, works on them on several threads, and delivers the results in the order of the items. Only a bounded
// number of items is under way.
#ifndef CAIRN_CORPUS_IO_ORDERED_WORK_H_
#define CAIRN_CORPUS_IO_ORDERED_WORK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"

namespace cairn::corpus {

// The three steps. Any of them may fail. The failure that comes first in the order of the items is the outcome, and
// nothing after that item is delivered.
template <typename Item, typename Result>
struct OrderedSteps {
  // Fills the next item; returns false at the end. One thread at a time calls it, in order.
  std::function<absl::StatusOr<bool>(Item&)> next;
  // All threads call it at the same time, each with its own number, 0 .. threads - 1.
  std::function<absl::StatusOr<Result>(int thread, Item&)> work;
  // One thread at a time calls it, in the order of the items.
  std::function<absl::Status(Result)> deliver;
  // Says what an item adds to the window; without it, each adds 1. Called like `next`, with what that has filled.
  std::function<uint64_t(const Item&)> cost = {};
};

// Runs the steps on `threads` threads, of which the caller's is one. The next item is taken only while those between
// `next` and the end of `deliver` cost less than `window` (>= 1) together. The thread that finishes the item whose turn
// it is delivers that item and those that wait behind it.
template <typename Item, typename Result>
class OrderedWork {
 public:
  OrderedWork(int threads, uint64_t window, OrderedSteps<Item, Result> steps)
      : threads_(threads), window_(window), steps_(std::move(steps)) {}

  absl::Status Run() {
    std::atomic<int> next_thread = 0;
    RunOnThreads(threads_, [&] { Loop(next_thread++); });
    return outcome_;
  }

 private:
  static constexpr std::string_view kWhat = "for the items under way; fewer threads need less";

  void Loop(int thread) {
    Item item;
    uint64_t place = 0;
    while (Take(item, place)) {
      absl::StatusOr<Result> result = WithMemory(kWhat, [&] { return steps_.work(thread, item); });
      Finish(place, std::move(result));
    }
  }

  // Returns false when there is nothing more to take.
  bool Take(Item& item, uint64_t& place) {
    mutex_.Lock();
    while (!ended_ && (taking_ || under_way_ >= window_)) changed_.Wait(mutex_);
    if (ended_) {
      mutex_.Unlock();
      return false;
    }
    taking_ = true;
    mutex_.Unlock();
    absl::StatusOr<bool> more = WithMemory(kWhat, [&] { return steps_.next(item); });
    const uint64_t cost = more.ok() && *more && steps_.cost ? steps_.cost(item) : 1;
    mutex_.Lock();
    taking_ = false;
    place = taken_;
    if (more.ok() && *more) {
      ++taken_;
      costs_.push_back(cost);
      under_way_ += cost;
    } else {
      ended_ = true;
    }
    changed_.NotifyAll();
    mutex_.Unlock();
    if (more.ok()) return *more;
    Finish(place, std::move(more).status());
    return false;
  }

  void Finish(uint64_t place, absl::StatusOr<Result> result) {
    mutex_.Lock();
    waiting_.emplace(place, std::move(result));
    while (!delivering_ && outcome_.ok() && !waiting_.empty() && waiting_.begin()->first == delivered_) {
      absl::StatusOr<Result> due = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      delivering_ = true;
      mutex_.Unlock();
      absl::Status status =
          due.ok() ? WithMemory(kWhat, [&] { return steps_.deliver(*std::move(due)); }) : std::move(due).status();
      mutex_.Lock();
      delivering_ = false;
      ++delivered_;
      if (!costs_.empty()) {  // else it was the failure of `next`
        under_way_ -= costs_.front();
        costs_.pop_front();
      }
      if (!status.ok()) {
        outcome_ = std::move(status);
        ended_ = true;
      }
      changed_.NotifyAll();
    }
    mutex_.Unlock();
  }

  const int threads_;
  const uint64_t window_;
  const OrderedSteps<Item, Result> steps_;

  Mutex mutex_;
  CondVar changed_;
  bool taking_ ABSL_GUARDED_BY(mutex_) = false;
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<uint64_t> costs_ ABSL_GUARDED_BY(mutex_);  // of the items under way, in order
  uint64_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;      // the sum of costs_
  uint64_t delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, absl::StatusOr<Result>> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status outcome_;  // written under the mutex, and read when all threads have ended
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_ORDERED_WORK_H_
