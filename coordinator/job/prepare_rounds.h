// Knows which calls of `prepare` belong together.
#ifndef CAIRN_COORDINATOR_JOB_PREPARE_ROUNDS_H_
#define CAIRN_COORDINATOR_JOB_PREPARE_ROUNDS_H_

#include <cstdint>
#include <vector>

#include "common/base/rank_table.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// Every rank's trainer calls `prepare` equally often, but no two do it at the same moment. So when the layouts change,
// those of some ranks are new for a while, and those of the others are from before. The calls since the last round that
// was closed tell them apart: a rank that has made fewer of them than another one is behind. Not thread-safe.
class PrepareRounds {
 public:
  // Returns how many calls the rank's trainer has made since the last round was closed.
  uint64_t CallsOf(const Member& member) const;
  // Returns the most calls that a rank has made since then. It looks at every rank.
  uint64_t Most(const Membership& members) const;
  // Returns the ranks that have made fewer, ascending. It looks at every rank.
  std::vector<int> Behind(const Membership& members) const;

  // The layouts fit together. If no rank is behind, the round is closed. If some are, then only trainers that are new
  // since the last round begin to be counted: the others may be one round ahead. It looks at every rank.
  void Fit(const Membership& members);
  // All calls up to now have their answer, whichever that is. It looks at every rank.
  void Close(const Membership& members);
  // Grows whenever that changes what is counted of a rank.
  uint64_t version() const { return version_; }

 private:
  // A rank, when the last round was closed.
  struct Closed {
    uint64_t agent = 0;
    uint64_t trainer = 0;
    uint64_t calls = 0;

    bool operator==(const Closed&) const = default;
    bool IsOf(const Member& member) const;
  };
  // The rank's calls count from now.
  void Begin(const Member& member);

  RankTable<Closed> closed_;
  uint64_t version_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_PREPARE_ROUNDS_H_
