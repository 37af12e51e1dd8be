// Remembers which orders each rank's agent was told, and what they were made from. So it is known, without putting the
// orders together, whose orders may have changed, and whose agent must hear of it at once.
#ifndef CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_
#define CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rank_table.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// Not thread-safe. Every call costs the same, however many ranks there are.
class OrderBook {
 public:
  // The ranks whose orders may have changed for another reason than their own reports: all of them, or these.
  struct Woken {
    bool all = false;
    std::vector<int> ranks;
  };

  // The orders of all ranks, or of this one alone, may have changed, and their agents hear of it at once.
  void WakeAll();
  void Wake(int rank);
  // The orders of all ranks may have changed, but for no agent that is not woken is that news (see NewsIn).
  void ChangeAll() { ++version_; }
  // Those that were woken since the last call.
  Woken TakeWoken();
  // Grows whenever the orders of the rank may have changed.
  uint64_t version(int rank) const;
  // Grows whenever those of all may have.
  uint64_t version() const { return version_; }

  // Orders that were made for a member.
  struct Made {
    std::string bytes;
    std::string plan;            // the current plan in them
    std::vector<uint64_t> news;  // what of them is news to the member's agent (see NewsIn), ascending
  };
  // Keeps the orders that were made for `member` now. Returns their revision, which is a new one of the job's
  // `revision` if there is news that was not among the last orders.
  uint64_t Keep(const Member& member, Made made, uint64_t& revision);
  // Returns whether the member's agent knows this current plan, because it has applied orders of the revision `known`.
  // All orders of one revision have the same, because a plan is always news.
  bool KnowsPlan(const Member& member, uint64_t known, const std::string& plan) const;
  // Returns whether nothing has changed that the kept orders were made from, and their revision is at most `known`.
  bool Knows(const Member& member, uint64_t known) const;
  // The kept orders, if nothing that they were made from has changed since; else null.
  const std::string* Current(const Member& member) const;
  // The news that the member's agent was told last. Null if it has not to be told now: nothing was made for it, it has
  // said something new since, which is answered, or it was woken.
  const std::vector<uint64_t>* NewsToldTo(const Member& member) const;

 private:
  friend struct BookkeepingFault;  // of tests

  struct Orders {
    uint64_t incarnation = 0;
    Made made;
    uint64_t revision = 0;
    // Grows when this rank alone is woken.
    uint64_t own_wakes = 0;
    // They were made from these: version(), the wakes then, and Member::changes.
    uint64_t made_version = 0;
    uint64_t made_wakes = 0;
    uint64_t made_changes = 0;
  };

  // The entry that Current speaks of; null if it is out of date.
  const Orders* CurrentEntry(const Member& member) const;
  uint64_t wakes(int rank) const { return wakes_ + orders_[static_cast<size_t>(rank)].own_wakes; }

  RankTable<Orders> orders_;
  uint64_t version_ = 1;
  uint64_t wakes_ = 0;  // of all ranks
  Woken woken_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_
