// Says who is at the other end of a Unix socket, as the kernel knows it.
#ifndef CAIRN_AGENT_SOCKETS_PEER_H_
#define CAIRN_AGENT_SOCKETS_PEER_H_

#include <sys/types.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

struct Peer {
  // It is 0 if the peer lives in another pid namespace.
  pid_t pid = 0;
  uid_t uid = 0;
};

// Tells the end of the process behind a connection. One of the two is set, or none.
struct PeerEnd {
  // A pidfd, which becomes readable.
  std::shared_ptr<const UniqueFd> process;
  // Set if the kernel gives no pidfd: the connection itself, which hangs up. It says less, because a process may also
  // close its connection and go on.
  std::shared_ptr<const UniqueFd> connection;
};

// The process at the other end of a connection.
struct Caller {
  Peer peer;
  PeerEnd end;
};

// Returns how the end of the peer of a connected Unix socket will show. A peer in another pid namespace has no pid
// here, so its process is asked for by SO_PEERPIDFD, which Linux has since 6.5.
PeerEnd EndOf(int fd, const Peer& peer);

// Returns SO_PEERCRED of a connected Unix socket: the credentials at the time of its connect(2).
// UNAVAILABLE (STORAGE_ERROR): it is no such socket.
absl::StatusOr<Peer> PeerOf(int fd);

// Says which users may use an agent: its own always, others by --allow-uid.
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
