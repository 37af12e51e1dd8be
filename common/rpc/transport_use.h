// Which transports moved bytes between ranks, for trainers and people.
#ifndef CAIRN_COMMON_RPC_TRANSPORT_USE_H_
#define CAIRN_COMMON_RPC_TRANSPORT_USE_H_

#include <string>
#include <vector>

#include "cairn/v1/transport.pb.h"

namespace cairn {

struct TransportUse {
  // Ascending, without duplicates. Empty if no bytes came from another rank.
  std::vector<v1::Transport> transports;
  // Why bytes were sent over gRPC although NCCL was wanted, for people; else empty.
  std::string nccl_refusal;

  bool operator==(const TransportUse&) const = default;
};

// Returns a text for people: the transports joined by '+', with the refusal, for example "shared-memory+grpc (nccl:
// rank 3 has no device)".
std::string TransportText(const TransportUse& use);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TRANSPORT_USE_H_
