// Remembers which orders each rank's agent was told, and what they were made from. So it is known, without putting the
// orders together, whose orders may have changed.
#ifndef CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_
#define CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rank_table.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/news.h"

namespace cairn {

// Not thread-safe. Every call costs the same, however many ranks there are.
class OrderBook {
 public:
  // The orders of these ranks may have changed for another reason than their own reports.
  void Take(const News& news);

  // Keeps what was told to `member` now: the current plan, and what is news to its agent (see NewsIn), ascending.
  // Returns the revision of its orders, which is a new one if there is news that was not among the last orders.
  uint64_t Keep(const Member& member, std::string plan, std::vector<uint64_t> news);
  // Returns whether the member's agent knows this current plan, because it has applied orders of the revision `known`.
  // All orders of one revision have the same, because a plan is always news.
  bool KnowsPlan(const Member& member, uint64_t known, const std::string& plan) const;
  // Returns whether nothing has changed that the last orders were made from, and their revision is at most `known`.
  bool Knows(const Member& member, uint64_t known) const;

 private:
  struct Orders {
    uint64_t incarnation = 0;
    std::string plan;
    std::vector<uint64_t> news;
    uint64_t revision = 0;
    // They were made from these: version_, 0 if they have changed since, and Member::changes.
    uint64_t made_version = 0;
    uint64_t made_changes = 0;
  };

  RankTable<Orders> orders_;
  uint64_t version_ = 1;  // grows whenever the orders of all ranks may have changed
  uint64_t last_revision_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_
