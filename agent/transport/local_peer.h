// Tries whether another agent of this machine can hand over its memory.
#ifndef CAIRN_AGENT_TRANSPORT_LOCAL_PEER_H_
#define CAIRN_AGENT_TRANSPORT_LOCAL_PEER_H_

#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// True if `peer` runs on the machine `boot_id`, as this process's user, because others' memory is not trusted, and if
// it is the process that answers at the path of its descriptor socket here. The path of an agent in another container
// may be another agent's here, or nobody's. Waits some seconds for an answer, at most.
bool LendsMemoryHere(const v1::TransferPeer& peer, const std::string& boot_id);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_LOCAL_PEER_H_
