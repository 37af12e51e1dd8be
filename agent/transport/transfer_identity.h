// Makes the identity by which a consumer says which bytes of which agent it wants.
#ifndef CAIRN_AGENT_TRANSPORT_TRANSFER_IDENTITY_H_
#define CAIRN_AGENT_TRANSPORT_TRANSFER_IDENTITY_H_

#include <cstdint>
#include <string>

#include "agent/transport/transfer_service.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/transfer_service.pb.h"

namespace cairn {

// Names a transfer of a load. `load_token` is the secret that the load's ranks share.
inline v1::TransferIdentity IdentityOfLoad(const std::string& job, const std::string& plan_digest,
                                           const std::string& load_token, uint32_t consumer_rank,
                                           const v1::TransferPeer& source) {
  v1::TransferIdentity identity;
  identity.set_job(job);
  identity.set_plan_digest(plan_digest);
  identity.set_load_number(TransferService::Key::OfLoad(plan_digest, load_token).load_number);
  identity.set_consumer_rank(consumer_rank);
  identity.set_source_rank(source.rank());
  identity.set_source_incarnation(source.incarnation());
  identity.set_token(load_token);
  return identity;
}

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_TRANSFER_IDENTITY_H_
