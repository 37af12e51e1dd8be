// Describes in orders where agents find each other.
#ifndef CAIRN_COORDINATOR_DECISION_TRANSFER_PEERS_H_
#define CAIRN_COORDINATOR_DECISION_TRANSFER_PEERS_H_

#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// What `asking` must know to reach `peer`.
v1::TransferPeer TransferPeerFor(const Member& peer, const Member& asking);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_TRANSFER_PEERS_H_
