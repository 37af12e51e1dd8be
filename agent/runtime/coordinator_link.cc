#include "agent/runtime/coordinator_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/runtime/layout_upload.h"
#include "agent/runtime/link_limits.h"
#include "agent/runtime/link_recovery.h"
#include "agent/runtime/plan_download.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/duration_text.h"
#include "common/base/time_proto.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/short_orders.h"
#include "common/status/reason.h"
#include "common/status/retry_delay.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using link_limits::kCallTimeout;
using link_limits::kChunkTimeout;
using link_limits::kFirstPause;
using link_limits::Overdue;
using link_limits::ProgressInterval;

// An upload or download that an overloaded coordinator has refused so often is given up. If it is still wanted, the
// next orders bring it again.
constexpr int kMostRefusals = 10;
// A connection that is tried beside a call, and fails, is tried again after so long.
constexpr absl::Duration kTrialPause = absl::Seconds(1);

}  // namespace

class CoordinatorLink::StoppableCall {
 public:
  StoppableCall(CoordinatorLink& link, absl::Duration timeout) : link_(link) {
    PrepareCall(context_, timeout);
    MutexLock lock(link_.mutex_);
    link_.calls_.insert(&context_);
    if (link_.stopping_) context_.TryCancel();
  }
  ~StoppableCall() {
    MutexLock lock(link_.mutex_);
    link_.calls_.erase(&context_);
    if (link_.waiting_ == &context_) link_.waiting_ = nullptr;
    if (link_.registering_ == &context_) link_.registering_ = nullptr;
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  CoordinatorLink& link_;
  grpc::ClientContext context_;
};

// A connection that is tried beside a call whose answer is overdue. It counts when a small call over it was answered: a
// process that is stopped takes connections too.
class CoordinatorLink::Trial {
 public:
  explicit Trial(std::shared_ptr<PeerChannel> peer) : peer_(std::move(peer)) {}

  const std::shared_ptr<PeerChannel>& peer() const { return peer_; }
  // Begins another attempt if the last one has failed a while ago. Returns whether one was answered.
  bool Answered() {
    const absl::Time now = Clock::Real().SteadyNow();
    if (*state_ == kIdle && now - begun_ >= kTrialPause) {
      begun_ = now;
      *state_ = kTrying;
      Begin();
    }
    return *state_ == kAnswered;
  }

 private:
  enum State { kIdle, kTrying, kAnswered };
  struct Probe {
    std::unique_ptr<v1::CheckpointService::Stub> stub;
    grpc::ClientContext context;
    v1::GetCapabilitiesRequest request;
    v1::Capabilities response;
  };

  void Begin() {
    peer_->Get([state = state_](const absl::StatusOr<PeerChannel::Channel>& channel) {
      if (!channel.ok()) {
        *state = kIdle;
        return;
      }
      const auto probe = std::make_shared<Probe>();
      probe->stub = v1::CheckpointService::NewStub(*channel);
      PrepareCall(probe->context, kCallTimeout);
      probe->stub->async()->GetCapabilities(
          &probe->context, &probe->request, &probe->response, [probe, state](const grpc::Status& status) {
            const absl::Status error = CallError(status, ServerRole::kCoordinator, "");
            *state = HasReason(error, Reason::kCoordinatorUnreachable) ? kIdle : kAnswered;
          });
    });
  }

  const std::shared_ptr<PeerChannel> peer_;
  const std::shared_ptr<std::atomic<State>> state_ = std::make_shared<std::atomic<State>>(kIdle);
  absl::Time begun_ = absl::InfinitePast();
};

struct CoordinatorLink::Answer {
  // False if the call has been given up; else its arguments must stay until Give.
  bool Begin() {
    MutexLock lock(mutex);
    begun = !status.has_value();
    return begun;
  }
  // A call that waits for its connection ends now.
  void GiveUp() {
    MutexLock lock(mutex);
    if (!begun && !status.has_value()) status = MakeError(Reason::kInterrupted, "another connection is used");
  }
  void Give(absl::Status how) {
    MutexLock lock(mutex);
    if (!status.has_value()) status = std::move(how);
    came.NotifyAll();
  }
  std::optional<absl::Status> Await(absl::Duration patience) {
    const absl::Time end = Clock::Real().SteadyNow() + patience;
    MutexLock lock(mutex);
    while (!status.has_value()) {
      const absl::Duration left = end - Clock::Real().SteadyNow();
      if (left <= absl::ZeroDuration()) break;
      came.WaitFor(mutex, left);
    }
    return status;
  }

  Mutex mutex;
  CondVar came;
  bool begun ABSL_GUARDED_BY(mutex) = false;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
};

CoordinatorLink::CoordinatorLink(SessionHost& host, CoordinatorLinkOptions options)
    : host_(host),
      options_(std::move(options)),
      pace_(options_.registration.world_size(),
            [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
              return std::uniform_real_distribution<double>(0, 1)(random_);  // the pace is used under the lock
            }),
      peer_(MakePeer()) {}

CoordinatorLink::~CoordinatorLink() { Stop(false); }

void CoordinatorLink::Start() {
  host_.SetOnChange([this] { Nudge(); });
  thread_ = std::thread([this] { Loop(); });
}

void CoordinatorLink::Stop(bool unregister) {
  if (stopping_.exchange(true)) return;
  host_.SetOnChange(nullptr);
  {
    MutexLock lock(mutex_);
    for (grpc::ClientContext* call : calls_) {
      // The answer to a registration says whether there is a rank to give back.
      if (!unregister || call != registering_) call->TryCancel();
    }
    stopped_.NotifyAll();
  }
  peer()->Cancel();
  transfers_.Stop();
  if (thread_.joinable()) thread_.join();
  if (!unregister) return;
  v1::UnregisterAgentRequest request;
  const bool registered = host_.Do([&](Session& session, absl::Time) {
    *request.mutable_agent() = session.Identity();
    return session.registered();
  });
  if (!registered) return;
  absl::Status status;
  if (const auto channel = MakePeer()->Await(kCallTimeout); channel.ok()) {
    grpc::ClientContext context;
    PrepareCall(context, kCallTimeout);
    v1::UnregisterAgentResponse response;
    status = ErrorOf(v1::AgentCoordinationService::NewStub(*channel)->UnregisterAgent(&context, request, &response));
  } else {
    status = channel.status();
  }
  if (!status.ok()) Log(LogLevel::kWarn, "unregister_failed", {{"error", status}});
}

absl::Status CoordinatorLink::ErrorOf(const grpc::Status& status) const {
  const absl::Status error = CallError(status, ServerRole::kCoordinator, options_.address);
  return HasReason(error, Reason::kBadToken) ? options_.tokens->Explain(error) : error;
}

std::shared_ptr<PeerChannel> CoordinatorLink::MakePeer() const {
  return std::make_shared<PeerChannel>(
      PeerOptions{.address = options_.address, .role = ServerRole::kCoordinator, .tokens = options_.tokens});
}

std::shared_ptr<PeerChannel> CoordinatorLink::peer() {
  MutexLock lock(mutex_);
  return peer_;
}

void CoordinatorLink::Use(std::shared_ptr<PeerChannel> peer) {
  MutexLock lock(mutex_);
  peer_.swap(peer);
  if (stopping_) peer_->Cancel();
}

void CoordinatorLink::Heard(bool answers) {
  if (std::exchange(heard_, answers) == answers) return;
  if (options_.on_heard) options_.on_heard(answers);
}

// Ends the wait of the call that carries an older state, so that the newer one is sent.
void CoordinatorLink::Nudge() {
  MutexLock lock(mutex_);
  if (waiting_ != nullptr) waiting_->TryCancel();
}

bool CoordinatorLink::AwaitTurn(absl::Time (LinkPace::*from)() const) {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const absl::Duration left = (pace_.*from)() - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return true;
    stopped_.WaitFor(mutex_, std::min(left, LinkPace::kLongestWait));
  }
  return false;
}

bool CoordinatorLink::NoteOverload(const absl::Status& status) {
  const auto delay = RetryDelayOf(status);
  if (!absl::IsResourceExhausted(status) || !delay.has_value()) return false;
  absl::Duration wait;
  {
    MutexLock lock(mutex_);
    const absl::Time now = Clock::Real().SteadyNow();
    pace_.OnOverloaded(*delay, now);
    wait = pace_.transfer_from() - now;
  }
  Log(LogLevel::kInfo, "coordinator_overloaded", {{"seconds", absl::ToDoubleSeconds(wait)}, {"error", status}});
  return true;
}

template <typename Request, typename Response>
absl::Status CoordinatorLink::Transfer(grpc::Status (v1::AgentCoordinationService::Stub::*method)(grpc::ClientContext*,
                                                                                                  const Request&,
                                                                                                  Response*),
                                       Request& request, Response& response) {
  for (int refusals = 1;; ++refusals) {
    if (!AwaitTurn(&LinkPace::transfer_from)) return MakeError(Reason::kInterrupted, "the agent ends");
    // The epoch may have changed while it waited.
    host_.Do([&](Session& session, absl::Time) { *request.mutable_agent() = session.Identity(); });
    response.Clear();
    CAIRN_ASSIGN_OR_RETURN(const PeerChannel::Channel channel, peer()->Await());
    StoppableCall call(*this, kChunkTimeout);
    const auto stub = v1::AgentCoordinationService::NewStub(channel);
    const absl::Status status = ErrorOf((stub.get()->*method)(call.context(), request, &response));
    if (!NoteOverload(status) || refusals == kMostRefusals) return status;
  }
}

void CoordinatorLink::Loop() {
  LinkRecovery recovery(options_.register_timeout);
  while (!stopping_) {
    const bool registered = host_.Do([](Session& session, absl::Time) { return session.registered(); });
    if (!registered && !AwaitTurn(&LinkPace::register_from)) return;
    absl::StatusOr<bool> answered = true;
    if (registered) {
      answered = Synchronize();
    } else if (const absl::Status refused = Register(); !refused.ok()) {
      answered = refused;
    }
    if (stopping_) return;
    if (answered.ok() && !*answered) continue;
    const absl::Status status = answered.status();
    Heard(status.ok());
    if (status.ok()) {
      if (recovery.OnAnswered()) Log(LogLevel::kInfo, "coordinator_reached", {{"coordinator", options_.address}});
      continue;
    }
    host_.Do([&](Session& session, absl::Time now) { session.OnLinkFailed(status, now); });
    NoteOverload(status);
    const LinkRecovery::Next next = recovery.OnFailed(status, registered, Clock::Real().SteadyNow());
    if (next.give_up) {
      Log(LogLevel::kError, "refused", {{"error", status}});
      options_.on_fatal(status);
      return;
    }
    if (next.tell) Log(LogLevel::kWarn, registered ? "synchronize_failed" : "register_failed", {{"error", status}});
    if (next.reconnect) peer()->Renew();
    if (HasReason(status, Reason::kBadToken)) options_.tokens->Reload();
    if (next.register_again) {
      Log(LogLevel::kInfo, "register_again", {{"error", status}});
      host_.Do([](Session& session, absl::Time) { session.OnUnregistered(); });
    }
    if (next.take_turn) {
      MutexLock lock(mutex_);
      pace_.OnLost(lease_ttl_, Clock::Real().SteadyNow());
    }
    if (next.pause > absl::ZeroDuration()) Pause(next.pause);
  }
}

void CoordinatorLink::Pause(absl::Duration longest) {
  double part = 0;
  {
    MutexLock lock(mutex_);
    part = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }
  const uint64_t version = host_.Do([](Session& session, absl::Time) { return session.version(); });
  host_.WaitForChange(version, longest * part);
}

absl::Status CoordinatorLink::Register() {
  v1::RegisterAgentRequest request = options_.registration;
  host_.Do([&](Session& session, absl::Time) { *request.mutable_agent() = session.Identity(); });
  const std::string proof = options_.read_root_proof();
  request.set_root_proof(proof);
  request.set_short_orders(true);
  CAIRN_ASSIGN_OR_RETURN(const PeerChannel::Channel channel, peer()->Await());
  StoppableCall call(*this, kCallTimeout);
  {
    MutexLock lock(mutex_);
    registering_ = call.context();
  }
  v1::RegisterAgentResponse response;
  absl::Status status =
      ErrorOf(v1::AgentCoordinationService::NewStub(channel)->RegisterAgent(call.context(), request, &response));
  if (HasReason(status, Reason::kRootMismatch)) {
    status = Annotate(status, absl::StrCat("this agent's root is ", options_.root), {{"agent_root", options_.root}});
  }
  CAIRN_RETURN_IF_ERROR(status);
  options_.on_registered(proof);
  reports_.Begin(response.short_reports());
  CAIRN_RETURN_IF_ERROR(host_.Do([&](Session& session, absl::Time) { return session.OnRegistered(response); }));
  if (response.has_lease_ttl()) lease_ttl_ = std::max(DurationOf(response.lease_ttl()), absl::Milliseconds(100));
  Log(LogLevel::kInfo, "registered",
      {{"coordinator_epoch", response.coordinator_epoch()},
       {"membership_epoch", response.membership_epoch()},
       {"lease", DurationText(lease_ttl_)}});
  return absl::OkStatus();
}

absl::StatusOr<bool> CoordinatorLink::Synchronize() {
  v1::SynchronizeAgentRequest request;
  uint64_t version = 0;
  bool active = false;
  host_.Do([&](Session& session, absl::Time) {
    request = session.BuildRequest(options_.current_step());
    version = session.version();
    active = session.active();
  });
  absl::Duration max_wait = lease_ttl_ / 3;
  if (active) max_wait = std::min(max_wait, ProgressInterval(options_.registration.world_size()));
  // A state that changes again and again ends each call before its answer. Then one call is let through, so that a
  // coordinator that answers no more is noticed.
  const absl::Time now = Clock::Real().SteadyNow();
  unanswered_since_ = std::min(unanswered_since_, now);
  const bool insists = now - unanswered_since_ >= lease_ttl_ / 3;
  if (insists) max_wait = absl::ZeroDuration();
  SetDuration(max_wait, *request.mutable_max_wait());
  reports_.Shorten(request);
  StoppableCall call(*this, max_wait + kCallTimeout);
  {
    MutexLock lock(mutex_);
    if (!insists) waiting_ = call.context();
  }
  v1::SynchronizeAgentResponse response;
  // Changed since the state was taken: nobody would have interrupted this call.
  const bool changed = host_.Do([&](Session& session, absl::Time) { return session.version() != version; });
  const bool outdated = (changed && !insists) || stopping_;
  const absl::Status called =
      outdated ? MakeError(Reason::kInterrupted, "outdated") : CallSynchronize(call, max_wait, request, response);
  {
    MutexLock lock(mutex_);
    waiting_ = nullptr;
  }
  // A change of the state ended the wait: the next call carries it.
  if (HasReason(called, Reason::kInterrupted)) return false;
  unanswered_since_ = absl::InfiniteFuture();
  CAIRN_RETURN_IF_ERROR(called);
  reports_.OnAnswered(request.sequence());
  CompleteOrders(request.agent().job(), last_plan_, response);
  uint64_t now_version = 0;
  CAIRN_RETURN_IF_ERROR(host_.Do([&](Session& session, absl::Time) {
    const absl::Status status = session.OnOrders(response);
    now_version = session.version();
    active = session.active();
    return status;
  }));
  last_plan_ = response.current_plan_digest();
  if (response.has_lease_ttl()) lease_ttl_ = std::max(DurationOf(response.lease_ttl()), absl::Milliseconds(100));
  absl::Duration delay = std::min(DurationOf(response.next_delay()), lease_ttl_ / 3);
  if (active) delay = std::min(delay, ProgressInterval(options_.registration.world_size()));
  if (now_version == version && delay > absl::ZeroDuration() && !insists) host_.WaitForChange(version, delay);
  return true;
}

absl::Status CoordinatorLink::CallSynchronize(StoppableCall& call, absl::Duration max_wait,
                                              const v1::SynchronizeAgentRequest& request,
                                              v1::SynchronizeAgentResponse& response) {
  // Callbacks may still hold the lock when this function has seen the answer.
  const auto answer = std::make_shared<Answer>();
  peer()->Get([this, answer, &call, &request, &response](absl::StatusOr<PeerChannel::Channel> channel) {
    if (!channel.ok()) return answer->Give(channel.status());
    if (!answer->Begin()) return;
    const std::shared_ptr stub = v1::AgentCoordinationService::NewStub(*channel);
    stub->async()->SynchronizeAgent(
        call.context(), &request, &response,
        [this, answer, stub](const grpc::Status& status) { answer->Give(ErrorOf(status)); });
  });
  const absl::Status silent = CallError(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time"),
                                        ServerRole::kCoordinator, options_.address);
  auto status = answer->Await(max_wait + Overdue(options_.registration.world_size()));
  std::optional<Trial> other;
  while (!status.has_value()) {
    host_.Do([&](Session& session, absl::Time now) { session.OnLinkSilent(silent, unanswered_since_, now); });
    if (!other.has_value()) other.emplace(MakePeer());
    if (other->Answered() && peer() != other->peer()) {
      Log(LogLevel::kInfo, "coordinator_overdue", {{"coordinator", options_.address}});
      Use(other->peer());
      answer->GiveUp();
      call.context()->TryCancel();
    }
    status = answer->Await(kFirstPause);
  }
  return *status;
}

void CoordinatorLink::PutLayout(RankLayoutPtr layout) {
  transfers_.Post([this, layout = std::move(layout)] {
    const absl::Status status = SendLayout(*layout);
    if (!status.ok()) Log(LogLevel::kWarn, "put_layout_failed", {{"error", status}});
    host_.Do([&](Session& session, absl::Time) { session.OnLayoutPut(layout->digest, status); });
  });
}

absl::Status CoordinatorLink::SendLayout(const RankLayout& layout) {
  LayoutUpload upload(layout);
  while (!upload.done()) {
    v1::PutLayoutRequest request = upload.Next();
    v1::PutLayoutResponse response;
    CAIRN_RETURN_IF_ERROR(Transfer(&v1::AgentCoordinationService::Stub::PutLayout, request, response));
    CAIRN_RETURN_IF_ERROR(upload.Take(response));
  }
  return absl::OkStatus();
}

void CoordinatorLink::GetPlan(std::string digest, std::string known) {
  transfers_.Post([this, digest = std::move(digest), known = std::move(known)] {
    auto plan = WithMemory("to fetch a plan", [&] { return FetchPlan(digest, known); });
    if (!plan.ok())
      Log(LogLevel::kWarn, "get_plan_failed", {{"plan", DigestHex(digest).substr(0, 12)}, {"error", plan.status()}});
    host_.Do([&](Session& session, absl::Time) { session.OnPlan(digest, std::move(plan)); });
  });
}

absl::StatusOr<std::string> CoordinatorLink::FetchPlan(const std::string& digest, const std::string& known) {
  PlanDownload download(digest, known);
  while (!download.done()) {
    v1::GetPlanRequest request = download.Next();
    v1::GetPlanResponse response;
    CAIRN_RETURN_IF_ERROR(Transfer(&v1::AgentCoordinationService::Stub::GetPlan, request, response));
    CAIRN_RETURN_IF_ERROR(download.Take(response));
  }
  return std::move(download).Plan();
}

void CoordinatorLink::GetPeers(std::vector<uint32_t> ranks) {
  transfers_.Post([this, ranks = std::move(ranks)] {
    const auto peers = FetchPeers(ranks);
    if (!peers.ok()) Log(LogLevel::kWarn, "get_peers_failed", {{"ranks", ranks.size()}, {"error", peers.status()}});
    host_.Do([&](Session& session, absl::Time) { session.OnPeers(ranks, peers); });
  });
}

absl::StatusOr<v1::GetTransferPeersResponse> CoordinatorLink::FetchPeers(const std::vector<uint32_t>& ranks) {
  v1::GetTransferPeersRequest request;
  request.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  v1::GetTransferPeersResponse response;
  CAIRN_RETURN_IF_ERROR(Transfer(&v1::AgentCoordinationService::Stub::GetTransferPeers, request, response));
  return response;
}

}  // namespace cairn
