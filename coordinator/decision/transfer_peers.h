// Tells agents where they find each other.
#ifndef CAIRN_COORDINATOR_DECISION_TRANSFER_PEERS_H_
#define CAIRN_COORDINATOR_DECISION_TRANSFER_PEERS_H_

#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// Returns what the agent that asks must know to reach the agents of its request's ranks. Ranks without a member are
// left out. The coordinator's epoch is not set.
v1::GetTransferPeersResponse TransferPeersFor(const v1::GetTransferPeersRequest& request, const Membership& members);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_TRANSFER_PEERS_H_
