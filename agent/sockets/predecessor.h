// Stores in the socket directory which agent processes used it last. A restarted agent proves by it that it replaces
// these processes, and so gets its rank back at once.
#ifndef CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
#define CAIRN_AGENT_SOCKETS_PREDECESSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cairn {

// Where an agent runs. The stored file also has the boot id and the directory's inode, so a copy of the directory, or
// the same directory on another machine, is another place.
struct AgentPlace {
  std::string directory;
  std::string boot_id;
};

// Returns the incarnations of earlier agent processes at this place, of which one may hold the rank, the oldest first;
// none if nothing is stored or the file is invalid. If the caller listens on the directory's sockets, these processes
// have certainly ended: while an agent runs, no other process on its machine can take its sockets.
std::vector<uint64_t> PredecessorsIn(const AgentPlace& place);

// Stores incarnations for the next process, readable by this user only. An agent calls it with its predecessors and its
// own incarnation before it registers, because it may be killed before the answer comes; and with its own alone when it
// has the answer. Of many, the oldest and the newest are stored.
// FAILED_PRECONDITION (SOCKET_DIRECTORY): the file cannot be written; the next process must then wait for the end of
// the lease.
absl::Status LeaveToSuccessor(const AgentPlace& place, const std::vector<uint64_t>& incarnations);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PREDECESSOR_H_
