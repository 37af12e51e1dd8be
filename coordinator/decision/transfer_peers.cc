#include "coordinator/decision/transfer_peers.h"

namespace cairn {

v1::TransferPeer TransferPeerFor(const Member& peer, const Member& asking) {
  v1::TransferPeer entry;
  entry.set_rank(static_cast<uint32_t>(peer.rank));
  entry.set_incarnation(peer.incarnation);
  entry.set_transfer_address(peer.transfer_address);
  // The socket is of use only where the boot id agrees.
  if (peer.boot_id == asking.boot_id) entry.set_descriptor_socket(peer.descriptor_socket);
  entry.set_boot_id(peer.boot_id);
  return entry;
}

}  // namespace cairn
