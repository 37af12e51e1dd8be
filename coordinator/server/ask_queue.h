// The ranks of a job whose held calls are to be asked again.
#ifndef CAIRN_COORDINATOR_SERVER_ASK_QUEUE_H_
#define CAIRN_COORDINATOR_SERVER_ASK_QUEUE_H_

#include <deque>
#include <optional>

#include "absl/container/flat_hash_set.h"

namespace cairn {

// A queue, first in, first out. A rank that waits already keeps its place, so that none waits for ever, however often
// all ranks are woken. Not thread-safe.
class AskQueue {
 public:
  bool empty() const { return order_.empty(); }

  void Add(int rank) {
    if (waiting_.insert(rank).second) order_.push_back(rank);
  }

  // The next rank; nothing if none waits.
  std::optional<int> Take() {
    if (order_.empty()) return std::nullopt;
    const int rank = order_.front();
    order_.pop_front();
    waiting_.erase(rank);
    return rank;
  }

 private:
  std::deque<int> order_;
  absl::flat_hash_set<int> waiting_;  // the ranks of order_
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_ASK_QUEUE_H_
