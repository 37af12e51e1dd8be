// Tells what of a rank's orders its agent must hear at once. The rest stands in the answer to its next report.
#ifndef CAIRN_COORDINATOR_JOB_ORDER_NEWS_H_
#define CAIRN_COORDINATOR_JOB_ORDER_NEWS_H_

#include <cstdint>
#include <vector>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// One fingerprint for each order on which an agent that reported `state` would act, in ascending order. Orders to wait
// are none, nor is an order to stage for a rank that stages by that plan already: it had the plan before it was asked.
// That something is ordered no longer is no news either.
std::vector<uint64_t> NewsIn(const v1::SynchronizeAgentResponse& orders, const v1::AgentState& state);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_ORDER_NEWS_H_
