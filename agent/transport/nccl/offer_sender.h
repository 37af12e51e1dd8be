// Tells the sources of an exchange over NCCL what this consumer takes.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_OFFER_SENDER_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_OFFER_SENDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/transport/transfer_identity.h"
#include "agent/transport/window_offers.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/peer_channel.h"

namespace cairn {

struct OfferSenderOptions {
  LoadTransfer load;
  // A source that does not know the load for so long is given up. The coordinator's word usually comes first.
  absl::Duration unknown_timeout = absl::Minutes(2);
  // The other consumers have to tell the source too within this time. A rank whose worker does not map is named by its
  // own agent, and an agent that is gone by the coordinator.
  absl::Duration others_timeout = absl::Minutes(5);
};

// Thread-safe.
class OfferSender {
 public:
  explicit OfferSender(OfferSenderOptions options) : options_(std::move(options)) {}

  // Tells one source what this consumer takes, and waits until all other ranks have told it too. Returns the numbers of
  // the windows that come by a broadcast. One call at a time. A source that has not begun the load yet is told again.
  // Errors are those of the source, with its rank, and those of a connection; UNAVAILABLE (TRANSPORT_FAILED) names
  // those that have not told. No circle waits if all ranks tell their sources in ascending order: all tell the first
  // one.
  absl::StatusOr<std::vector<uint32_t>> Send(const v1::TransferPeer& source, const std::vector<OfferedCopies>& windows);
  // Ends the call that is under way, and all that follow.
  void Cancel();

 private:
  absl::Status NotTold(uint32_t source, const v1::OfferWindowsResponse& response) const;
  // As Call, until the source knows the load.
  absl::Status Tell(PeerChannel& source, const v1::OfferWindowsRequest& request, v1::OfferWindowsResponse& response);
  absl::Status Call(PeerChannel& source, const v1::OfferWindowsRequest& request, v1::OfferWindowsResponse& response);

  const OfferSenderOptions options_;
  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<PeerChannel> peer_ ABSL_GUARDED_BY(mutex_);  // of the source that is told now
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_OFFER_SENDER_H_
