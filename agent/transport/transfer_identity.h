// Names a load's transfers, by which a consumer says which bytes of which agent it wants.
#ifndef CAIRN_AGENT_TRANSPORT_TRANSFER_IDENTITY_H_
#define CAIRN_AGENT_TRANSPORT_TRANSFER_IDENTITY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "agent/transport/transfer_service.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/transfer_service.pb.h"
#include "common/rpc/token_source.h"

namespace cairn {

// One rank's part in the transfers of a load.
struct LoadTransfer {
  std::string job;
  std::string plan_digest;
  uint32_t consumer_rank = 0;
  std::string load_token;               // the secret that the load's ranks share
  std::shared_ptr<TokenSource> tokens;  // by which two agents prove themselves; null as with --insecure

  // Names the transfer from this source.
  v1::TransferIdentity From(const v1::TransferPeer& source) const {
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
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_TRANSFER_IDENTITY_H_
