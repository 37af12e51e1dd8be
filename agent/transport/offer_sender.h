// Tells the sources of an exchange over NCCL what this consumer takes.
#ifndef CAIRN_AGENT_TRANSPORT_OFFER_SENDER_H_
#define CAIRN_AGENT_TRANSPORT_OFFER_SENDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/transport/window_offers.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

struct OfferSender {
  std::string job;
  std::string plan_digest;
  uint32_t consumer_rank = 0;
  std::string load_token;
  std::string agent_token;
};

// Tells one source what this consumer takes. Blocks. Errors are those of the source, with its rank, and those of a
// connection.
absl::Status SendOffers(const OfferSender& sender, const v1::TransferPeer& source,
                        const std::vector<OfferedCopies>& windows);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_OFFER_SENDER_H_
