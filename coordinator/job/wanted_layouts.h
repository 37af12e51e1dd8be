// Knows which layouts are missing, and which rank's agent is asked for each: the first of those that name it.
#ifndef CAIRN_COORDINATOR_JOB_WANTED_LAYOUTS_H_
#define CAIRN_COORDINATOR_JOB_WANTED_LAYOUTS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/base/rank_table.h"
#include "coordinator/membership/layout_table.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/news.h"

namespace cairn {

// Not thread-safe. News are for ranks that are asked for other layouts now because of another rank.
class WantedLayouts {
 public:
  bool empty() const { return wanted_.empty(); }
  // Takes which layouts the member names, and which of them are missing.
  News Apply(const Member& member, const LayoutTable& layouts);
  // The rank's agent is lost.
  News OnLost(int rank);
  // The bytes of a layout have come. There are no news if it was not missing.
  News OnLayout(const std::string& digest);
  // Adds the layouts that the rank's agent is asked for.
  void AddTo(int rank, v1::SynchronizeAgentResponse& response) const;

 private:
  // The layouts that are missing, each with the ranks that name it.
  std::map<std::string, std::set<int>> wanted_;
  RankTable<std::vector<std::string>> named_;  // of each rank, its layouts in `wanted_`
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_WANTED_LAYOUTS_H_
