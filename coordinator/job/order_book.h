// Remembers which orders each rank's agent was told, and what they were made from. So it is known, without putting the
// orders together, whose orders may have changed.
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

  // The orders of all ranks, or of this one alone, may have changed.
  void WakeAll();
  void Wake(int rank);
  // Those that were woken since the last call.
  Woken TakeWoken();
  // Grows whenever the rank is woken.
  uint64_t version(int rank) const;
  // Grows whenever all are woken.
  uint64_t version() const { return version_; }

  // Keeps the orders that were made for `member` now, and what of them is news to it (see NewsIn). Returns their
  // revision, which is a new one of the job's `revision` if there is news that was not among the last orders.
  uint64_t Keep(const Member& member, std::string orders, std::vector<uint64_t> news, uint64_t& revision);
  // Whether nothing has changed that the kept orders were made from, and their revision is at most `known`.
  bool Knows(const Member& member, uint64_t known) const;
  // The kept orders, if nothing that they were made from has changed since; else null.
  const std::string* Current(const Member& member) const;

 private:
  struct Orders {
    uint64_t incarnation = 0;
    std::string bytes;
    std::vector<uint64_t> news;
    uint64_t revision = 0;
    // Grows when the orders of this rank alone may have changed.
    uint64_t own_version = 0;
    // What they were made from: version() and Member::changes.
    uint64_t made_version = 0;
    uint64_t made_changes = 0;
  };

  // The entry that Current speaks of; null if it is out of date.
  const Orders* CurrentEntry(const Member& member) const;

  RankTable<Orders> orders_;
  uint64_t version_ = 1;
  Woken woken_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_ORDER_BOOK_H_
