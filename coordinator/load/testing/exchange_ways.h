// Notes which way each rank sends the bytes of a reshard, as it was told: over the host, or over a group of NCCL. Finds
// orders that contradict each other.
#ifndef CAIRN_COORDINATOR_LOAD_TESTING_EXCHANGE_WAYS_H_
#define CAIRN_COORDINATOR_LOAD_TESTING_EXCHANGE_WAYS_H_

#include <cstdint>
#include <map>
#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

class ExchangeWays {
 public:
  // The rank follows an order of a coordinator of this epoch. As with an agent, the first decision holds. Returns "",
  // or that another rank was told another way by the same coordinator.
  std::string Take(int rank, uint64_t epoch, const v1::LoadOrder& order);
  // Notes the id of a group. Returns "", or that the group had another one before.
  std::string TakeId(const v1::GroupOrder& order);

  // Returns what the rank was told, and UNDECIDED if it was told nothing.
  v1::Exchange WayOf(const std::string& token, int rank) const;
  // Returns whether the ranks from 0 to `ranks` - 1 all go by this group.
  bool AllGoBy(uint64_t group, const std::string& token, int ranks) const;

 private:
  struct Way {
    uint64_t epoch = 0;
    v1::Exchange exchange;
  };
  std::map<std::string, std::map<int, Way>> ways_;  // by the operation's token, and rank
  std::map<uint64_t, std::string> group_ids_;       // by the group's number
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_TESTING_EXCHANGE_WAYS_H_
