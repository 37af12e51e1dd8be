#include "agent/transport/nccl/offer_sender.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/transport/transfer_identity.h"
#include "agent/transport/transfer_peer.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/clock.h"
#include "common/base/duration_text.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Keeps a message far below its limit.
constexpr int kCopiesPerCall = 8192;
constexpr absl::Duration kCallTimeout = absl::Seconds(20);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

// Cuts a list into calls.
std::vector<v1::OfferWindowsRequest> RequestsOf(const std::vector<OfferedCopies>& windows) {
  std::vector<v1::OfferWindowsRequest> requests(1);
  int copies = 0;
  for (const OfferedCopies& window : windows) {
    v1::OfferedWindow* offered = nullptr;
    for (const v1::Copy& copy : window.copies.copies) {
      if (copies == kCopiesPerCall) {
        requests.emplace_back();
        copies = 0;
        offered = nullptr;
      }
      if (offered == nullptr) {
        offered = requests.back().add_windows();
        offered->set_round(window.round);
        offered->set_window(window.window);
      }
      v1::Copy& told = *offered->add_copies();
      told.set_source_offset(copy.source_offset());
      told.set_element_bytes(copy.element_bytes());
      *told.mutable_extents() = copy.extents();
      *told.mutable_source_strides() = copy.source_strides();
      ++copies;
    }
  }
  for (size_t part = 0; part < requests.size(); ++part) {
    requests[part].set_part(static_cast<uint32_t>(part));
    requests[part].set_last(part + 1 == requests.size());
  }
  return requests;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> OfferSender::Send(const v1::TransferPeer& source,
                                                        const std::vector<OfferedCopies>& windows) {
  v1::OfferWindowsResponse response;
  const absl::Time until = Clock::Real().SteadyNow() + options_.others_timeout;
  const std::shared_ptr<PeerChannel> peer = ChannelTo(source, options_.load.tokens);
  {
    MutexLock lock(mutex_);
    peer_ = peer;
    if (cancelled_) peer->Cancel();
  }
  for (v1::OfferWindowsRequest& request : RequestsOf(windows)) {
    *request.mutable_transfer() = options_.load.From(source);
    do {
      if (const absl::Status told = Tell(*peer, request, response); !told.ok()) {
        return Annotate(told, absl::StrCat("from rank ", source.rank()), {{"ranks", absl::StrCat(source.rank())}});
      }
      if (!request.last() || response.decided()) break;
      if (Clock::Real().SteadyNow() >= until) return NotTold(source.rank(), response);
      MutexLock lock(mutex_);
      if (!cancelled_) changed_.WaitFor(mutex_, kRetryPause);
    } while (true);
  }
  return std::vector<uint32_t>(response.broadcast_windows().begin(), response.broadcast_windows().end());
}

absl::Status OfferSender::NotTold(uint32_t source, const v1::OfferWindowsResponse& response) const {
  // A source that has not begun the exchange does not know whom it waits for.
  const std::string missing =
      response.missing_ranks().empty() ? absl::StrCat(source) : absl::StrJoin(response.missing_ranks(), ", ");
  return MakeError(Reason::kTransportFailed,
                   absl::StrCat(response.missing_ranks_size() > 1 ? "ranks " : "rank ", missing,
                                response.missing_ranks_size() > 1 ? " have" : " has",
                                " not come to the exchange within ", DurationText(options_.others_timeout)),
                   {{"ranks", missing}});
}

absl::Status OfferSender::Tell(PeerChannel& source, const v1::OfferWindowsRequest& request,
                               v1::OfferWindowsResponse& response) {
  const absl::Time until = Clock::Real().SteadyNow() + options_.unknown_timeout;
  while (true) {
    const absl::Status told = Call(source, request, response);
    if (!HasReason(told, Reason::kPlanUnknown) || Clock::Real().SteadyNow() >= until) return told;
    MutexLock lock(mutex_);
    if (!cancelled_) changed_.WaitFor(mutex_, kRetryPause);
  }
}

absl::Status OfferSender::Call(PeerChannel& source, const v1::OfferWindowsRequest& request,
                               v1::OfferWindowsResponse& response) {
  response.Clear();
  CAIRN_ASSIGN_OR_RETURN(const PeerChannel::Channel channel, source.Await());
  grpc::ClientContext context;
  PrepareCall(context, kCallTimeout);
  {
    MutexLock lock(mutex_);
    if (cancelled_) return MakeError(Reason::kInterrupted, "the exchange has ended");
    current_ = &context;
  }
  const grpc::Status answered = v1::TransferService::NewStub(channel)->OfferWindows(&context, request, &response);
  {
    MutexLock lock(mutex_);
    current_ = nullptr;
  }
  return CallError(answered, ServerRole::kAgent, source.name());
}

void OfferSender::Cancel() {
  std::shared_ptr<PeerChannel> peer;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
    if (current_ != nullptr) current_->TryCancel();
    peer = peer_;
  }
  if (peer != nullptr) peer->Cancel();
}

}  // namespace cairn
