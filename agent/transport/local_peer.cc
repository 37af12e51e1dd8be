#include "agent/transport/local_peer.h"

#include <unistd.h>

#include "agent/sockets/descriptor_socket.h"

namespace cairn {

bool LendsMemoryHere(const v1::TransferPeer& peer, const std::string& boot_id) {
  if (peer.boot_id().empty() || peer.boot_id() != boot_id) return false;
  const auto owner = AskSocketOwner(peer.descriptor_socket(), geteuid());
  return owner.ok() && owner->incarnation == peer.incarnation();
}

}  // namespace cairn
