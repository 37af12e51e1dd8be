// Orders to an agent that leave out what it knows or can put together itself (RegisterAgentRequest.short_orders).
#ifndef CAIRN_COMMON_RPC_SHORT_ORDERS_H_
#define CAIRN_COMMON_RPC_SHORT_ORDERS_H_

#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// Leaves out of whole orders what follows from the rest of them and from the job's name. `same_plan`: the current plan
// is also that of the last answer that the agent has applied.
void ShortenOrders(const std::string& job, bool same_plan, v1::SynchronizeAgentResponse& orders);

// Puts back what is left out. `last_plan`: the current plan of the last answer that was applied. Whole orders stay as
// they are.
void CompleteOrders(const std::string& job, const std::string& last_plan, v1::SynchronizeAgentResponse& orders);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_SHORT_ORDERS_H_
