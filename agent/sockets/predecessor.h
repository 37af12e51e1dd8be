// Which agent process had a socket directory before: what a restarted agent shows to take its rank back at once.
#ifndef CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
#define CAIRN_AGENT_SOCKETS_PREDECESSOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// The incarnation that stands in the agent's own socket directory: of the process before that registered last. 0 if
// there was none, or if what stands there is no incarnation. Whoever listens on the directory's sockets knows that this
// process has ended, for a live agent gives them to nobody.
uint64_t PredecessorIn(const std::string& directory);

// Leaves `incarnation` there for the next process, readable by this user alone. To be called when it has registered.
// FAILED_PRECONDITION (SOCKET_DIRECTORY): it cannot be written; the next process then waits for the end of the lease.
absl::Status LeaveToSuccessor(const std::string& directory, uint64_t incarnation);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
