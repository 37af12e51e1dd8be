// One rank's access to the gate that the ranks of an exchange over NCCL wait at: it keeps the gate, or asks the agent
// that does.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_GATE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_GATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/session/peer_book.h"
#include "agent/transport/nccl/round_gate.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/transfer_context.h"
#include "agent/transport/transfer_service.h"

namespace cairn {

// Thread-safe, but for Serve, which comes first.
class ExchangeGate {
 public:
  // `secret`: what the ranks of the operation share. The context outlives this.
  ExchangeGate(const TransferContext& context, std::string plan_digest, const std::string& secret);
  // Stops.
  ~ExchangeGate();

  // Keeps the gate of these ranks from now on.
  void Serve(const std::vector<uint32_t>& ranks);
  // Other ranks cannot ask for it any more.
  void StopServing();
  // Ranks that wait, and those that come, are told `why`. Idempotent.
  void Stop(const absl::Status& why);
  // Returns how this rank goes with the others. Rank `keeper` keeps the gate; `peers` says where it is.
  // UNAVAILABLE (TRANSPORT_FAILED): `peers` does not.
  absl::StatusOr<std::unique_ptr<RoundPace>> Pace(uint32_t keeper, const PeerMap& peers) const;

 private:
  const TransferContext& context_;
  const std::string plan_digest_;
  const std::string token_;
  const TransferService::Key key_;
  std::shared_ptr<RoundGate> gate_;  // null if it is not kept here
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_GATE_H_
