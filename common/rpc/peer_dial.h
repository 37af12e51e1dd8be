// Makes one TCP connection to a peer, which has proven itself before anything else is said on it (peer_proof.h).
#ifndef CAIRN_COMMON_RPC_PEER_DIAL_H_
#define CAIRN_COMMON_RPC_PEER_DIAL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/unique_fd.h"
#include "common/rpc/peer_keys.h"

namespace cairn {

struct PeerDial {
  std::string address;  // "host:port"; of a name all addresses are tried, until one proves itself
  ServerRole role = ServerRole::kCoordinator;
  std::string name;  // how errors call the peer after "coordinator" or "agent"
  // Without keys the connection is plain, if `plain` says so; else a peer that can be reached is refused.
  std::shared_ptr<const PeerKeys> keys;
  bool plain = false;
};

// Returns a connection that does not block, and is closed in children. Blocks until it is there, `timeout` has passed,
// or the descriptor `cancelled` can be read (-1: never). The look-up of a name may take longer than that.
//
// UNAVAILABLE (COORDINATOR_UNREACHABLE, AGENT_UNREACHABLE): nothing answers at any address; the message says in words
// why. UNAUTHENTICATED (BAD_TOKEN): something answers and does not prove that it knows the token. CANCELLED
// (INTERRUPTED): it was cancelled.
absl::StatusOr<UniqueFd> DialPeer(const PeerDial& peer, absl::Duration timeout, int cancelled = -1);

// Returns the error for a peer that cannot be reached, with the reason of its role.
absl::Status Unreachable(ServerRole role, std::string_view name, std::string_view what, std::string_view detail);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_DIAL_H_
