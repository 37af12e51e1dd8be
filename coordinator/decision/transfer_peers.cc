#include "coordinator/decision/transfer_peers.h"

#include <limits>

namespace cairn {

v1::GetTransferPeersResponse TransferPeersFor(const v1::GetTransferPeersRequest& request, const Membership& members) {
  v1::GetTransferPeersResponse response;
  response.set_membership_epoch(members.epoch());
  const Member* asking = members.Find(static_cast<int>(request.agent().rank()));
  for (const uint32_t rank : request.ranks()) {
    if (rank > static_cast<uint32_t>(std::numeric_limits<int>::max())) continue;
    const Member* peer = members.Find(static_cast<int>(rank));
    if (peer == nullptr) continue;
    v1::TransferPeer& entry = *response.add_peers();
    entry.set_rank(rank);
    entry.set_incarnation(peer->incarnation);
    entry.set_transfer_address(peer->transfer_address);
    // The socket is of use only where the boot id agrees.
    if (asking != nullptr && peer->boot_id == asking->boot_id) entry.set_descriptor_socket(peer->descriptor_socket);
    entry.set_boot_id(peer->boot_id);
  }
  return response;
}

}  // namespace cairn
