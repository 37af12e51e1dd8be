// Remembers which agent process had a socket directory before: a restarted agent shows it to take its rank back at
// once.
#ifndef CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
#define CAIRN_AGENT_SOCKETS_PREDECESSOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// Says where an agent runs: a directory that was copied, or that another machine sees as well, is another place.
struct AgentPlace {
  std::string directory;
  std::string boot_id;
};

// The incarnation that stands in the agent's own socket directory: of the process before that registered last from
// this place. 0 if there was none, or if what stands there is no such thing. Whoever listens on the directory's sockets
// knows that this process has ended, for a live agent gives them to nobody on its machine.
uint64_t PredecessorIn(const AgentPlace& place);

// Leaves `incarnation` there for the next process, readable by this user alone. To be called when it has registered.
// FAILED_PRECONDITION (SOCKET_DIRECTORY): it cannot be written; the next process then waits for the end of the lease.
absl::Status LeaveToSuccessor(const AgentPlace& place, uint64_t incarnation);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
