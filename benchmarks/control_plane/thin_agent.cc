#include "benchmarks/control_plane/thin_agent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/runtime/link_limits.h"
#include "cairn/v1/layout.pb.h"
#include "common/base/digest.h"
#include "common/base/random_id.h"
#include "common/base/time_proto.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/plan_part.h"
#include "common/rpc/short_orders.h"
#include "common/status/reason.h"
#include "common/status/retry_delay.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/root/root_proof.h"

namespace cairn {
namespace {

// It calls as a real agent does.
using link_limits::kCallTimeout;
using link_limits::kChunkBytes;
using link_limits::kChunkTimeout;
using link_limits::kFirstPause;
using link_limits::kLongestPause;
using link_limits::ProgressInterval;

constexpr uint64_t kFrameBytes = 5;
constexpr uint64_t kMemoryBudget = uint64_t{64} << 30;
constexpr uint64_t kRoundBytes = uint64_t{256} << 20;
constexpr int kRanksPerNode = 8;

}  // namespace

template <typename Request, typename Response>
struct ThinAgent::Call {
  grpc::ClientContext context;
  Request request;
  Response response;
  absl::Time begun;
};

ThinAgent::ThinAgent(AgentSurroundings& surroundings, std::shared_ptr<PeerChannel> channel, ThinAgentOptions options)
    : around_(surroundings),
      options_(std::move(options)),
      layout_digest_(Digest(options_.layout)),
      incarnation_(RandomId()),
      trainer_(RandomId()),
      channel_(std::move(channel)),
      random_(static_cast<uint32_t>(incarnation_)),
      pause_(kFirstPause) {
  v1::Layout layout;
  if (layout.ParseFromString(options_.layout)) shards_ = static_cast<uint32_t>(layout.shard_tensors_size());
}

template <typename Method, typename CallType>
void ThinAgent::Launch(Method method, const std::shared_ptr<CallType>& call, absl::Duration timeout, Traffic& traffic,
                       void (ThinAgent::*done)(CallType&, const absl::Status&)) {
  call->begun = SteadyNow();
  ++around_.calls;
  ++traffic.calls;
  traffic.up_bytes += call->request.ByteSizeLong() + kFrameBytes;
  auto on_answer = [this, call, &traffic, done](const grpc::Status& answer) {
    if (answer.ok() && options_.answered) options_.answered(SteadyNow() - call->begun);
    around_.Post([this, call, &traffic, done, answer] {
      --around_.calls;
      if (waiting_ == &call->context) waiting_ = nullptr;
      if (stopped_) return;
      if (answer.ok()) traffic.down_bytes += call->response.ByteSizeLong() + kFrameBytes;
      const absl::Status status = answer.error_code() == grpc::StatusCode::CANCELLED
                                      ? absl::CancelledError()
                                      : CallError(answer, ServerRole::kCoordinator, around_.address);
      if (status.ok()) {
        const absl::Time now = SteadyNow();
        around_.counters.longest_silence = std::max(around_.counters.longest_silence, now - heard_);
        heard_ = now;
      }
      (this->*done)(*call, status);
    });
  };
  channel_->Get([call, method, timeout, on_answer](const absl::StatusOr<PeerChannel::Channel>& channel) {
    if (!channel.ok()) return on_answer(ToGrpcStatus(channel.status()));
    PrepareCall(call->context, timeout);
    const std::shared_ptr stub = v1::AgentCoordinationService::NewStub(*channel);
    method(*stub->async(), *call, [stub, on_answer](const grpc::Status& answer) { on_answer(answer); });
  });
}

void ThinAgent::Start() {
  heard_ = SteadyNow();
  Next();
}

void ThinAgent::Stop() {
  stopped_ = true;
  if (waiting_ != nullptr) waiting_->TryCancel();
}

void ThinAgent::Leave() {
  if (std::exchange(stopped_, true)) return;
  if (waiting_ != nullptr) waiting_->TryCancel();
  auto call = std::make_shared<Call<v1::UnregisterAgentRequest, v1::UnregisterAgentResponse>>();
  *call->request.mutable_agent() = Identity();
  ++around_.calls;
  channel_->Get([this, call](const absl::StatusOr<PeerChannel::Channel>& channel) {
    const auto ended = [this] { around_.Post([this] { --around_.calls; }); };
    if (!channel.ok()) return ended();
    PrepareCall(call->context, kChunkTimeout);
    const std::shared_ptr stub = v1::AgentCoordinationService::NewStub(*channel);
    stub->async()->UnregisterAgent(&call->context, &call->request, &call->response,
                                   [stub, call, ended](const grpc::Status&) { ended(); });
  });
}

v1::AgentIdentity ThinAgent::Identity() const {
  v1::AgentIdentity identity;
  identity.set_job(options_.job);
  identity.set_rank(static_cast<uint32_t>(options_.rank));
  identity.set_incarnation(incarnation_);
  identity.set_coordinator_epoch(epoch_);
  return identity;
}

void ThinAgent::Next() {
  if (stopped_) return;
  if (registered_) {
    Synchronize();
  } else {
    Register();
  }
}

void ThinAgent::Register() {
  auto call = std::make_shared<Call<v1::RegisterAgentRequest, v1::RegisterAgentResponse>>();
  v1::RegisterAgentRequest& request = call->request;
  *request.mutable_agent() = Identity();
  request.set_world_size(static_cast<uint32_t>(options_.world_size));
  const int node = options_.rank / kRanksPerNode;
  request.set_node(absl::StrCat("node", node));
  request.set_transfer_address(absl::StrCat("10.", node >> 16, ".", (node >> 8) & 255, ".", node & 255, ":",
                                            20000 + options_.rank % kRanksPerNode));
  request.set_descriptor_socket(absl::StrCat("/run/cairn/", options_.job, "/rank", options_.rank, "/descriptors"));
  request.set_boot_id(absl::StrCat("4f6a0c1e-0000-4000-8000-", absl::Dec(node, absl::kZeroPad12)));
  request.set_protocol(kProtocolVersion);
  request.set_version("thin");
  request.set_short_orders(true);
  if (around_.storage != nullptr) request.set_root_proof(ReadRootProof(*around_.storage).value_or(""));
  Launch([](auto& stub, auto& made,
            auto answer) { stub.RegisterAgent(&made.context, &made.request, &made.response, std::move(answer)); },
         call, kCallTimeout, around_.counters.registrations, &ThinAgent::OnRegister);
}

void ThinAgent::OnRegister(Call<v1::RegisterAgentRequest, v1::RegisterAgentResponse>& call,
                           const absl::Status& status) {
  if (!status.ok()) return OnFailed(status);
  if (call.response.coordinator_epoch() < epoch_) {
    return OnFailed(MakeError(Reason::kStaleEpoch, "the answer of an earlier coordinator"));
  }
  epoch_ = call.response.coordinator_epoch();
  revision_ = 0;
  if (call.response.has_lease_ttl()) lease_ = DurationOf(call.response.lease_ttl());
  registered_ = true;
  reports_.Begin(call.response.short_reports());
  pause_ = kFirstPause;
  if (std::exchange(was_registered_, true)) ++around_.counters.second_registrations;
  around_.reached(Milestone::kRegistered, options_.rank);
  Next();
}

void ThinAgent::Synchronize() {
  auto call = std::make_shared<Call<v1::SynchronizeAgentRequest, v1::SynchronizeAgentResponse>>();
  v1::SynchronizeAgentRequest& request = call->request;
  *request.mutable_agent() = Identity();
  request.set_known_revision(options_.answered ? 0 : revision_);
  if (std::exchange(upload_ended_, false)) uploading_ = false;  // see Session::BuildRequest
  request.set_sequence(++sequence_);
  v1::AgentState& state = *request.mutable_state();
  state.mutable_trainer()->set_attached(true);
  state.mutable_trainer()->set_incarnation(trainer_);
  if (current_step_) state.mutable_trainer()->set_current_step(*current_step_);
  state.mutable_trainer()->set_layout_digest(layout_digest_);
  *state.mutable_arm() = arm_;
  told_call_ = save_ ? save_->state.call() : 0;
  if (save_) *state.add_saves() = save_->state;
  told_load_ = load_ ? load_->state.number() : 0;
  if (load_) *state.add_loads() = load_->state;
  state.set_memory_budget(kMemoryBudget);
  state.set_round_bytes(kRoundBytes);
  absl::Duration max_wait = lease_ / 3;
  if (active()) max_wait = std::min(max_wait, ProgressInterval(static_cast<uint32_t>(options_.world_size)));
  SetDuration(max_wait, *request.mutable_max_wait());
  reports_.Shorten(request);
  sent_version_ = version_;
  waiting_ = &call->context;
  Launch([](auto& stub, auto& made,
            auto answer) { stub.SynchronizeAgent(&made.context, &made.request, &made.response, std::move(answer)); },
         call, max_wait + kCallTimeout, around_.counters.synchronizations, &ThinAgent::OnSynchronize);
}

void ThinAgent::OnSynchronize(Call<v1::SynchronizeAgentRequest, v1::SynchronizeAgentResponse>& call,
                              const absl::Status& status) {
  if (absl::IsCancelled(status)) {
    ++around_.counters.interrupted;
    return Next();  // a change of the state ended the wait: the next call carries it
  }
  if (!status.ok()) return OnFailed(status);
  if (call.response.coordinator_epoch() < epoch_) {
    return OnFailed(MakeError(Reason::kStaleEpoch, "the answer of an earlier coordinator"));
  }
  pause_ = kFirstPause;
  reports_.OnAnswered(call.request.sequence());
  CompleteOrders(options_.job, last_plan_, call.response);
  last_plan_ = call.response.current_plan_digest();
  Obey(call.response);
  if (stopped_) return;
  absl::Duration delay = std::min(DurationOf(call.response.next_delay()), lease_ / 3);
  if (active()) delay = std::min(delay, ProgressInterval(static_cast<uint32_t>(options_.world_size)));
  if (options_.answered) delay = options_.ask_every;
  if (sent_version_ == version_ && delay > absl::ZeroDuration()) return Pause(delay);
  Next();
}

void ThinAgent::OnFailed(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  ++around_.counters.errors[reason ? std::string(InfoOf(*reason).name) : std::string(status.message())];
  if (reason == Reason::kNotRegistered || reason == Reason::kStaleEpoch) {
    const bool was = std::exchange(registered_, false);
    revision_ = 0;
    current_plan_.clear();
    if (was) return Next();  // at once; a second refusal pauses
  } else if (reason == Reason::kStaleIncarnation || reason == Reason::kBadJobName ||
             reason == Reason::kRankOutOfRange) {
    stopped_ = true;
    error_ = status;
    around_.reached(Milestone::kRefused, options_.rank);
    return;
  }
  // Half to all of the pause, so that a thousand agents do not come back together.
  const double part = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  const absl::Duration pause = pause_ * part;
  pause_ = std::min(pause_ * 2, kLongestPause);
  Pause(pause);
}

void ThinAgent::Pause(absl::Duration delay) {
  pausing_ = true;
  around_.After(delay, [this, pause = ++pauses_] {
    if (!pausing_ || pause != pauses_) return;
    pausing_ = false;
    Next();
  });
}

void ThinAgent::Changed() {
  ++version_;
  if (waiting_ != nullptr) {
    waiting_->TryCancel();
  } else if (pausing_) {
    pausing_ = false;
    around_.Post([this] { Next(); });
  }
}

bool ThinAgent::ComeAgain(const absl::Status& status, void (ThinAgent::*call)()) {
  const std::optional<absl::Duration> delay = RetryDelayOf(status);
  if (!delay) return false;
  ++around_.counters.errors["sent away for a while"];
  const double part = std::uniform_real_distribution<double>(0.8, 1.2)(random_);
  around_.After(*delay * part, [this, call] {
    if (!stopped_) (this->*call)();
  });
  return true;
}

void ThinAgent::PutLayout() {
  auto call = std::make_shared<Call<v1::PutLayoutRequest, v1::PutLayoutResponse>>();
  *call->request.mutable_agent() = Identity();
  call->request.set_digest(layout_digest_);
  call->request.set_total_bytes(options_.layout.size());
  call->request.set_offset(uploaded_bytes_);
  call->request.set_chunk(options_.layout.substr(uploaded_bytes_, kChunkBytes));
  Launch([](auto& stub, auto& made,
            auto answer) { stub.PutLayout(&made.context, &made.request, &made.response, std::move(answer)); },
         call, kChunkTimeout, around_.counters.uploads, &ThinAgent::OnPutLayout);
}

void ThinAgent::OnPutLayout(Call<v1::PutLayoutRequest, v1::PutLayoutResponse>& call, const absl::Status& status) {
  if (ComeAgain(status, &ThinAgent::PutLayout)) return;
  const uint64_t received = status.ok() ? call.response.received_bytes() : 0;
  if (!status.ok()) {
    const auto reason = ReasonOf(status);
    ++around_.counters.errors[absl::StrCat("upload: ", reason ? std::string(InfoOf(*reason).name) : "?")];
  }
  if (received > uploaded_bytes_ && received < options_.layout.size()) {
    uploaded_bytes_ = received;
    return PutLayout();
  }
  // If it failed, the coordinator asks again.
  upload_ended_ = true;
  if (received != options_.layout.size()) return;
  ++around_.counters.layouts_uploaded;
  around_.reached(Milestone::kUploaded, options_.rank);
}

void ThinAgent::WantPart(const std::string& plan_digest) {
  if (!wanted_plan_.empty() || plan_digest.empty()) return;
  wanted_plan_ = plan_digest;
  incoming_.clear();
  GetPlan();
}

void ThinAgent::GetPlan() {
  auto call = std::make_shared<Call<v1::GetPlanRequest, v1::GetPlanResponse>>();
  *call->request.mutable_agent() = Identity();
  call->request.set_plan_digest(wanted_plan_);
  call->request.set_offset(incoming_.size());
  if (incoming_.empty()) call->request.set_known_part_digest(BodyDigestOf(part_bytes_));
  Launch([](auto& stub, auto& made,
            auto answer) { stub.GetPlan(&made.context, &made.request, &made.response, std::move(answer)); },
         call, kChunkTimeout, around_.counters.parts, &ThinAgent::OnGetPlan);
}

void ThinAgent::OnGetPlan(Call<v1::GetPlanRequest, v1::GetPlanResponse>& call, const absl::Status& status) {
  if (ComeAgain(status, &ThinAgent::GetPlan)) return;
  if (!status.ok()) {
    const auto reason = ReasonOf(status);
    ++around_.counters.errors[absl::StrCat("plan: ", reason ? std::string(InfoOf(*reason).name) : "?")];
    wanted_plan_.clear();  // the next orders say what to fetch
    return;
  }
  if (call.response.same_part()) {
    incoming_ = PartOfPlan(wanted_plan_, part_bytes_);
  } else {
    incoming_ += call.response.chunk();
    if (incoming_.size() < call.response.total_bytes() && !call.response.chunk().empty()) return GetPlan();
  }
  OnPart(std::exchange(incoming_, {}));
}

void ThinAgent::OnPart(const std::string& bytes) {
  const std::string digest = std::exchange(wanted_plan_, {});
  if (load_ && load_->order.plan_digest() == digest) return OnReadPart(digest, bytes);
  v1::WritePlan plan;
  if (!plan.ParseFromString(bytes) || plan.plan_digest() != digest) {
    FailSave(MakeError(Reason::kInternal, "the write plan is another one"));
    return;
  }
  part_ = std::move(plan);
  part_bytes_ = bytes;
  plan_digest_ = digest;
  around_.reached(Milestone::kPart, options_.rank);
  AdvanceSave();
}

void ThinAgent::Obey(const v1::SynchronizeAgentResponse& response) {
  epoch_ = response.coordinator_epoch();
  revision_ = response.revision();
  if (response.has_lease_ttl()) lease_ = std::max(DurationOf(response.lease_ttl()), absl::Milliseconds(100));
  current_plan_ = response.current_plan_digest();
  current_plan_checks_ = response.check_replicas();
  for (const std::string& digest : response.wanted_layouts()) {
    if (digest != layout_digest_) continue;
    if (upload_ended_) revision_ = 0;
    if (std::exchange(uploading_, true)) continue;
    uploaded_bytes_ = 0;
    PutLayout();
  }
  if (response.has_arm()) ApplyArm(response.arm());
  for (const v1::SaveOrder& order : response.saves()) ApplySave(order);
  for (const v1::LoadOrder& order : response.loads()) ApplyLoad(order);
  // As a trainer's prepare does: it waits for the part of the newest plan.
  if (!load_ && current_plan_ != plan_digest_) WantPart(current_plan_);
  AdvanceSave();
  AdvanceLoad();
}

void ThinAgent::ApplyArm(const v1::ArmOrder& order) {
  const bool same = arm_.number() == order.number();
  v1::ArmState::Status status = arm_.status();
  if (order.action() == v1::ArmOrder::ARM && !same) {
    status = current_step_.value_or(-1) >= order.step() ? v1::ArmState::REFUSED : v1::ArmState::ARMED;
  } else if (order.action() == v1::ArmOrder::AGREE && same && status == v1::ArmState::ARMED) {
    status = v1::ArmState::AGREED;
  } else if (order.action() == v1::ArmOrder::DISARM) {
    status = v1::ArmState::DISARMED;
  }
  if (same && status == arm_.status()) return;
  arm_.set_number(order.number());
  arm_.set_step(order.step());
  arm_.set_status(status);
  Changed();
}

}  // namespace cairn
