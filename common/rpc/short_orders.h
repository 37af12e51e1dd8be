// Shortens orders to an agent: omits fields that the agent knows or can compute (RegisterAgentRequest.short_orders).
#ifndef CAIRN_COMMON_RPC_SHORT_ORDERS_H_
#define CAIRN_COMMON_RPC_SHORT_ORDERS_H_

#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// Removes from complete orders the fields that CompleteOrders can restore. `same_plan`: the current plan is the same as
// in the last response that the agent has applied.
void ShortenOrders(const std::string& job, bool same_plan, v1::SynchronizeAgentResponse& orders);

// Restores the omitted fields. `last_plan`: the current plan of the last applied response. Complete orders stay.
void CompleteOrders(const std::string& job, const std::string& last_plan, v1::SynchronizeAgentResponse& orders);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_SHORT_ORDERS_H_
