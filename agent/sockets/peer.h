// Who is at the other end of a Unix socket, as the kernel says.
#ifndef CAIRN_AGENT_SOCKETS_PEER_H_
#define CAIRN_AGENT_SOCKETS_PEER_H_

#include <sys/types.h>

#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

struct Peer {
  // 0 if the peer lives in another pid namespace.
  pid_t pid = 0;
  uid_t uid = 0;
};

// SO_PEERCRED of a connected Unix socket: the credentials at the time of its connect(2).
// UNAVAILABLE (STORAGE_ERROR): no such socket.
absl::StatusOr<Peer> PeerOf(int fd);

// Which users may use an agent: its own always, others by --allow-uid.
class UserPolicy {
 public:
  explicit UserPolicy(std::vector<uid_t> allowed = {});
  // PERMISSION_DENIED (PEER_UID).
  absl::Status Check(const Peer& peer) const;
  // True if only the agent's own user may connect.
  bool only_self() const { return allowed_.size() == 1; }

 private:
  std::vector<uid_t> allowed_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PEER_H_
