// Makes one TCP connection to a peer. Both ends prove themselves (peer_proof.h) before anything else is sent.
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
  std::string address;  // "host:port"; all addresses of a name are tried until one proves itself
  ServerRole role = ServerRole::kCoordinator;
  std::string name;  // the peer's name in errors, behind "coordinator" or "agent"
  // If null: the connection is plain if `plain` is true; else every peer is refused.
  std::shared_ptr<const PeerKeys> keys;
  bool plain = false;
};

// Returns a socket that does not block and has close-on-exec set. The call itself blocks until the connection is
// proven, `timeout` has passed, or the descriptor `cancelled` becomes readable (-1: never). Looking up a name may take
// longer than `timeout`.
//
// UNAVAILABLE (COORDINATOR_UNREACHABLE, AGENT_UNREACHABLE): nothing answers at any address; the message says why.
// UNAUTHENTICATED (BAD_TOKEN): something answers but does not prove that it knows the token. CANCELLED (INTERRUPTED):
// `cancelled` became readable.
absl::StatusOr<UniqueFd> DialPeer(const PeerDial& peer, absl::Duration timeout, int cancelled = -1);

// Returns the error for a peer that cannot be reached, with the reason of its role.
absl::Status Unreachable(ServerRole role, std::string_view name, std::string_view what, std::string_view detail);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_DIAL_H_
