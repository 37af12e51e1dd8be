// Knows which layouts are missing, and which rank's agent is asked for each: the first of those that name it.
#ifndef CAIRN_COORDINATOR_JOB_WANTED_LAYOUTS_H_
#define CAIRN_COORDINATOR_JOB_WANTED_LAYOUTS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/base/rank_table.h"
#include "coordinator/job/order_book.h"
#include "coordinator/membership/layout_table.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// Not thread-safe. It wakes a rank in the order book when the layouts that the rank is asked for change because of
// another one.
class WantedLayouts {
 public:
  bool empty() const { return wanted_.empty(); }
  // Takes which layouts the member names, and which of them are missing.
  void Apply(const Member& member, const LayoutTable& layouts, OrderBook& orders);
  // The rank's agent is lost.
  void OnLost(int rank, OrderBook& orders);
  // The bytes of a layout have come. Returns whether it was missing.
  bool OnLayout(const std::string& digest, OrderBook& orders);
  // Adds the layouts that the rank's agent is asked for.
  void AddTo(int rank, v1::SynchronizeAgentResponse& response) const;

  // Returns whether these are the layouts that the members name and that are missing. Only tests call it: it looks at
  // every member.
  bool IsConsistent(const Membership& members, const LayoutTable& layouts) const;

 private:
  friend struct BookkeepingFault;  // of tests

  // The layouts that are missing, each with the ranks that name it.
  std::map<std::string, std::set<int>> wanted_;
  RankTable<std::vector<std::string>> named_;  // of each rank, its layouts in `wanted_`
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_WANTED_LAYOUTS_H_
