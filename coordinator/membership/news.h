// Says what an event has changed for others than the rank that it came from.
#ifndef CAIRN_COORDINATOR_MEMBERSHIP_NEWS_H_
#define CAIRN_COORDINATOR_MEMBERSHIP_NEWS_H_

#include <algorithm>
#include <vector>

namespace cairn {

// A part of a job returns it, and the caller adds it to that of other parts.
struct [[nodiscard]] News {
  // What the orders of all ranks have become.
  enum class Orders {
    kSame,
    kChanged,  // agents lose nothing if they hear of it in the answers to their next reports
    kUrgent,   // all agents hear of it at once
  };

  // A step may have become possible, so the job looks at everything.
  bool step = false;
  Orders orders = Orders::kSame;
  // The orders of these ranks may have changed, and their agents hear of it at once.
  std::vector<int> ranks;

  static News Step(bool step = true) { return {step, Orders::kSame, {}}; }
  static News Urgent(bool urgent = true) { return {urgent, urgent ? Orders::kUrgent : Orders::kSame, {}}; }

  bool empty() const { return !step && orders == Orders::kSame && ranks.empty(); }
  News& operator+=(const News& other) {
    step = step || other.step;
    orders = std::max(orders, other.orders);
    ranks.insert(ranks.end(), other.ranks.begin(), other.ranks.end());
    return *this;
  }
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_MEMBERSHIP_NEWS_H_
