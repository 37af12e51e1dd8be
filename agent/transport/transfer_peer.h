// Makes the connection to another rank's agent, as the coordinator has named it.
#ifndef CAIRN_AGENT_TRANSPORT_TRANSFER_PEER_H_
#define CAIRN_AGENT_TRANSPORT_TRANSFER_PEER_H_

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/rpc/peer_channel.h"

namespace cairn {

// Returns a connection to be made to the agent that the coordinator has named. Both prove themselves by `tokens`, the
// agent's own; null as with --insecure.
inline std::shared_ptr<PeerChannel> ChannelTo(const v1::TransferPeer& agent, std::shared_ptr<TokenSource> tokens) {
  return std::make_shared<PeerChannel>(
      PeerOptions{.address = agent.transfer_address(),
                  .role = ServerRole::kAgent,
                  .name = absl::StrCat("of rank ", agent.rank(), " at ", agent.transfer_address()),
                  .tokens = std::move(tokens)});
}

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_TRANSFER_PEER_H_
