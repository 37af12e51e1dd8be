// Stores in the socket directory which agent process used it last. A restarted agent proves by it that it replaces that
// process, and so gets its rank back at once.
#ifndef CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
#define CAIRN_AGENT_SOCKETS_PREDECESSOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// Where an agent runs. The stored file also has the boot id and the directory's inode, so a copy of the directory, or
// the same directory on another machine, is another place.
struct AgentPlace {
  std::string directory;
  std::string boot_id;
};

// Returns the incarnation of the previous agent process, which registered last from this place; 0 if none is stored or
// the file is invalid. If the caller listens on the directory's sockets, the previous process has certainly ended:
// while an agent runs, no other process on its machine can take its sockets.
uint64_t PredecessorIn(const AgentPlace& place);

// Stores `incarnation` for the next process, readable by this user only. Call it after registration.
// FAILED_PRECONDITION (SOCKET_DIRECTORY): the file cannot be written; the next process must then wait for the end of
// the lease.
absl::Status LeaveToSuccessor(const AgentPlace& place, uint64_t incarnation);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
