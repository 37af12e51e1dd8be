// Identifies the process and user at the other end of a Unix socket, from the kernel's information.
#ifndef CAIRN_AGENT_SOCKETS_PEER_H_
#define CAIRN_AGENT_SOCKETS_PEER_H_

#include <sys/types.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

struct Peer {
  // 0 if the peer is in another PID namespace.
  pid_t pid = 0;
  uid_t uid = 0;
};

// A descriptor that shows when the peer's process ends. At most one of the two is set.
struct PeerEnd {
  // A pidfd, which becomes readable when the process ends.
  std::shared_ptr<const UniqueFd> process;
  // The connection itself, if the kernel gives no pidfd. It hangs up when the process ends, but also when the process
  // closes the connection and continues.
  std::shared_ptr<const UniqueFd> connection;
};

// The process at the other end of a connection.
struct Caller {
  Peer peer;
  PeerEnd end;
};

// Returns the PeerEnd of a connected Unix socket. It uses SO_PEERPIDFD (Linux 6.5) if possible, because a peer in
// another PID namespace has no pid here; else pidfd_open(2) of the pid.
PeerEnd EndOf(int fd, const Peer& peer);

// Returns SO_PEERCRED of a connected Unix socket: the peer's credentials when it called connect(2). UNAVAILABLE
// (STORAGE_ERROR): `fd` is no such socket.
absl::StatusOr<Peer> PeerOf(int fd);

// The users that may use an agent: its own user, and those of --allow-uid.
class UserPolicy {
 public:
  explicit UserPolicy(std::vector<uid_t> allowed = {});
  // PERMISSION_DENIED (PEER_UID): the peer's user is none of them.
  absl::Status Check(const Peer& peer) const;
  // True if only the agent's own user may connect.
  bool only_self() const { return allowed_.size() == 1; }

 private:
  std::vector<uid_t> allowed_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PEER_H_
