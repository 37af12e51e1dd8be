#include "agent/transport/host_round_fetcher.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/transfer_identity.h"
#include "agent/transport/transfer_peer.h"
#include "common/base/clock.h"
#include "common/base/time_proto.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kRoundWait = absl::Seconds(10);
constexpr absl::Duration kCallMargin = absl::Seconds(5);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
// A source that has not heard of the load yet, or has ended it already, is asked again for so long. The coordinator's
// word usually comes first.
constexpr absl::Duration kUnknownTimeout = absl::Minutes(2);
// One FetchCopies request asks for at most so many, which keeps it far below the message limit.
constexpr size_t kCopiesPerFetch = 8192;
constexpr absl::Duration kFetchTimeout = absl::Minutes(10);

}  // namespace

// One call of AwaitRound. Without `done` it only tells a release.
struct HostRoundFetcher::Call {
  bool only_releases() const { return done == nullptr; }

  uint32_t round = 0;
  Done done;
  Failed failed;
  std::unique_ptr<grpc::ClientContext> context;
  v1::AwaitRoundRequest request;
  v1::AwaitRoundResponse response;
  grpc::Alarm alarm;
  absl::Time failing_since = absl::InfiniteFuture();
};

HostRoundFetcher::HostRoundFetcher(const v1::TransferPeer& source, const HostRoundFetcherOptions& options)
    : identity_(options.load.From(source)),
      unreachable_timeout_(options.unreachable_timeout),
      peer_(ChannelTo(source, options.load.tokens)) {}

HostRoundFetcher::~HostRoundFetcher() { Stop(); }

void HostRoundFetcher::Await(uint32_t round, uint32_t released_below, Done done) {
  NoteRelease(released_below);
  auto call = std::make_unique<Call>();
  call->round = round;
  call->failed = [done](const absl::Status& error) { done(error); };
  call->done = std::move(done);
  Begin(std::move(call));
}

// The next Await would tell it too, but one may be under way already.
void HostRoundFetcher::Release(uint32_t released_below, Failed failed) {
  NoteRelease(released_below);
  auto call = std::make_unique<Call>();
  call->round = released_below;
  call->failed = std::move(failed);
  Begin(std::move(call));
}

void HostRoundFetcher::NoteRelease(uint32_t released_below) {
  MutexLock lock(mutex_);
  released_below_ = std::max(released_below_, released_below);
}

void HostRoundFetcher::Begin(std::unique_ptr<Call> call) {
  Call& begun = *call;
  {
    MutexLock lock(mutex_);
    if (cancelled_) return;
    calls_.emplace(&begun, std::move(call));
  }
  Start(begun);
}

void HostRoundFetcher::Start(Call& call) {
  const absl::Duration wait = call.only_releases() ? absl::ZeroDuration() : kRoundWait;
  bool cancelled = false;
  {
    MutexLock lock(mutex_);  // Cancel looks at the context
    cancelled = cancelled_;
    call.context = std::make_unique<grpc::ClientContext>();
    call.request.set_released_below(released_below_);
  }
  if (cancelled) return End(call);
  *call.request.mutable_transfer() = identity_;
  call.request.set_round(call.round);
  SetDuration(wait, *call.request.mutable_max_wait());
  call.response.Clear();
  peer_->Get([this, &call, wait](absl::StatusOr<PeerChannel::Channel> channel) {
    if (!channel.ok()) return OnAnswer(call, channel.status());
    PrepareCall(*call.context, wait + kCallMargin);
    const std::shared_ptr stub = v1::TransferService::NewStub(*channel);
    stub->async()->AwaitRound(
        call.context.get(), &call.request, &call.response,
        [this, &call, stub](const grpc::Status& answered) { OnAnswer(call, PeerError(answered)); });
  });
}

void HostRoundFetcher::OnAnswer(Call& call, const absl::Status& error) {
  if (error.ok()) {
    call.failing_since = absl::InfiniteFuture();
    if (!call.only_releases()) {
      if (!call.response.ready()) return Start(call);  // not yet: asks again
      call.done(SourceRound{call.response.descriptor_id(), call.response.bytes()});
    }
    return End(call);
  }
  const absl::Duration patience = PatienceWith(error, call);
  const absl::Time now = Clock::Real().SteadyNow();
  call.failing_since = std::min(call.failing_since, now);
  if (now - call.failing_since < patience) return StartLater(call);
  if (patience > absl::ZeroDuration()) {
    call.failed(TransportFailed(absl::StrCat("rank ", identity_.consumer_rank(), " cannot get its bytes from rank ",
                                             identity_.source_rank(), ": ", error.message())));
  } else if (!call.only_releases()) {
    call.failed(ToldByPeer(error));
  }
  End(call);
}

absl::Duration HostRoundFetcher::PatienceWith(const absl::Status& error, const Call& call) const {
  if (HasReason(error, Reason::kAgentUnreachable)) return unreachable_timeout_;
  // If the load is over, nobody waits for a release.
  if (HasReason(error, Reason::kPlanUnknown) && !call.only_releases()) return kUnknownTimeout;
  return absl::ZeroDuration();
}

void HostRoundFetcher::StartLater(Call& call) {
  {
    MutexLock lock(mutex_);
    if (!cancelled_) {  // Cancel ends the alarm
      call.alarm.Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(kRetryPause),
                     [this, &call](bool) { Start(call); });
      return;
    }
  }
  End(call);
}

void HostRoundFetcher::End(Call& call) {
  MutexLock lock(mutex_);
  calls_.erase(&call);
  changed_.NotifyAll();
}

absl::Status HostRoundFetcher::Fetch(uint32_t round, std::span<const v1::Copy> copies, char* to, uint64_t bytes) {
  uint64_t filled = 0;
  bool too_much = false;
  while (!copies.empty() && !too_much) {
    const size_t part = std::min(copies.size(), kCopiesPerFetch);
    CAIRN_ASSIGN_OR_RETURN(const StreamedCopies streamed,
                           Stream(FetchRequest(round, copies.first(part)), to + filled, bytes - filled));
    filled += streamed.bytes;
    too_much = streamed.too_much;
    if (!too_much && !streamed.ended.ok()) return StreamError(PeerError(streamed.ended));
    copies = copies.subspan(part);
  }
  if (too_much || filled != bytes) {
    return TransportFailed(absl::StrCat("rank ", identity_.source_rank(), " sent ", filled,
                                        too_much ? " bytes and more" : " bytes", " of round ", round, " instead of ",
                                        bytes));
  }
  return absl::OkStatus();
}

v1::FetchCopiesRequest HostRoundFetcher::FetchRequest(uint32_t round, std::span<const v1::Copy> copies) const {
  v1::FetchCopiesRequest request;
  *request.mutable_transfer() = identity_;
  request.set_round(round);
  for (const v1::Copy& copy : copies) {
    v1::Copy* asked = request.add_copies();
    asked->set_source_offset(copy.source_offset());
    asked->set_element_bytes(copy.element_bytes());
    *asked->mutable_extents() = copy.extents();
    *asked->mutable_source_strides() = copy.source_strides();
  }
  return request;
}

absl::StatusOr<StreamedCopies> HostRoundFetcher::Stream(const v1::FetchCopiesRequest& request, char* to,
                                                        uint64_t bytes) {
  const auto channel = peer_->Await();
  if (!channel.ok()) return StreamError(channel.status());
  grpc::ClientContext context;
  PrepareCall(context, kFetchTimeout);
  {
    MutexLock lock(mutex_);
    if (cancelled_) return MakeError(Reason::kInterrupted, "the load has ended");
    fetches_.insert(&context);
  }
  StreamedCopies streamed = StreamCopies(*v1::TransferService::NewStub(*channel), context, request, to, bytes);
  MutexLock lock(mutex_);
  fetches_.erase(&context);
  return streamed;
}

absl::Status HostRoundFetcher::StreamError(const absl::Status& error) {
  if (HasReason(error, Reason::kPlanUnknown)) {
    // The source was told to end the load. So will this rank be, with the reason.
    AwaitCancel(kUnknownTimeout);
  } else if (!HasReason(error, Reason::kAgentUnreachable)) {
    return ToldByPeer(error);
  }
  return TransportFailed(absl::StrCat("rank ", identity_.consumer_rank(), " lost the connection to rank ",
                                      identity_.source_rank(), ": ", error.message()));
}

void HostRoundFetcher::AwaitCancel(absl::Duration timeout) {
  const absl::Time until = Clock::Real().SteadyNow() + timeout;
  MutexLock lock(mutex_);
  while (!cancelled_) {
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(mutex_, left);
  }
}

void HostRoundFetcher::Cancel() {
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    for (auto& [raw, call] : calls_) {
      if (call->context != nullptr) call->context->TryCancel();
      call->alarm.Cancel();
    }
    for (grpc::ClientContext* fetch : fetches_) fetch->TryCancel();
    changed_.NotifyAll();
  }
  peer_->Cancel();  // calls that wait for it end here
}

void HostRoundFetcher::Stop() {
  Cancel();
  MutexLock lock(mutex_);
  while (!calls_.empty()) changed_.Wait(mutex_);  // all are cancelled, so this is short
}

absl::Status HostRoundFetcher::PeerError(const grpc::Status& status) const {
  return CallError(status, ServerRole::kAgent, peer_->name());
}

absl::Status HostRoundFetcher::TransportFailed(const std::string& what) const {
  const std::string rank = absl::StrCat(identity_.source_rank());
  return MakeError(Reason::kTransportFailed, what, {{"rank", rank}, {"ranks", rank}});
}

absl::Status HostRoundFetcher::ToldByPeer(const absl::Status& error) const {
  const std::string rank = absl::StrCat(identity_.source_rank());
  return Annotate(error, absl::StrCat("from rank ", rank), {{"ranks", rank}});
}

}  // namespace cairn
