#include "agent/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

// A trainer that was replaced notices within a second, so few of them still call.
constexpr size_t kKeptReplaced = 64;

}  // namespace

v1::AgentIdentity Session::Identity() const {
  v1::AgentIdentity identity;
  identity.set_job(context_.options.job);
  identity.set_rank(context_.options.rank);
  identity.set_incarnation(context_.options.incarnation);
  identity.set_coordinator_epoch(context_.coordinator_epoch);
  return identity;
}

absl::Status Session::CheckEpoch(uint64_t epoch) const {
  if (epoch >= context_.coordinator_epoch) return absl::OkStatus();
  return MakeError(Reason::kStaleEpoch, absl::StrCat("an answer from coordinator epoch ", epoch, ", but epoch ",
                                                     context_.coordinator_epoch, " has been heard of"));
}

absl::Status Session::OnRegistered(const v1::RegisterAgentResponse& response) {
  CAIRN_RETURN_IF_ERROR(CheckEpoch(response.coordinator_epoch()));
  context_.coordinator_epoch = response.coordinator_epoch();
  plans_.peers().Begin({response.coordinator_epoch(), response.membership_epoch()});
  known_revision_ = 0;
  lease_ttl_ = DurationOf(response.lease_ttl());
  context_.registered = true;
  context_.Changed();
  return absl::OkStatus();
}

void Session::OnUnregistered() {
  context_.registered = false;
  known_revision_ = 0;
  // The old coordinator's word about plans is over. A new one may have found them again, and will say so.
  plans_.ForgetCurrent();
  current_plan_error_ = absl::OkStatus();
  refused_puts_.clear();
  context_.Changed();
}

v1::SynchronizeAgentRequest Session::BuildRequest(std::optional<int64_t> current_step) {
  v1::SynchronizeAgentRequest request;
  *request.mutable_agent() = Identity();
  request.set_known_revision(known_revision_);
  request.set_sequence(++sequence_);
  // Whoever answers this one knows of them.
  for (const std::string& digest : ended_puts_) puts_.erase(digest);
  ended_puts_.clear();
  v1::AgentState& state = *request.mutable_state();
  v1::TrainerState& trainer = *state.mutable_trainer();
  trainer.set_attached(trainer_.has_value());
  trainer.set_incarnation(trainer_.value_or(0));
  if (trainer_ && current_step) trainer.set_current_step(*current_step);
  trainer.set_process(trainer_             ? process_
                      : last_trainer_ != 0 ? v1::JobRank::GONE
                                           : v1::JobRank::TRAINER_PROCESS_UNSPECIFIED);
  trainer.set_layout_digest(trainer_layout_);
  if (trainer_ && preparing_) trainer.set_prepare_calls(prepare_call_);
  *state.mutable_arm() = arm_;
  told_layout_ = trainer_layout_;
  told_prepare_call_ = trainer.prepare_calls();
  saves_.AddTo(state);
  loads_.AddTo(state);
  for (const v1::GroupState& group : groups_) *state.add_groups() = group;
  state.set_memory_budget(context_.options.memory_budget);
  state.set_round_bytes(context_.options.round_bytes);
  return request;
}

absl::Status Session::OnOrders(const v1::SynchronizeAgentResponse& response) {
  CAIRN_RETURN_IF_ERROR(CheckEpoch(response.coordinator_epoch()));
  context_.trouble.Over();
  context_.coordinator_epoch = response.coordinator_epoch();
  plans_.peers().Heard({response.coordinator_epoch(), response.membership_epoch()});
  known_revision_ = response.revision();
  if (response.has_lease_ttl()) lease_ttl_ = DurationOf(response.lease_ttl());
  plans_.SetCurrent({response.current_plan_digest(), response.check_replicas(), response.sample_replicas()});
  // An answer to a request that named another layout, or an earlier call, says nothing about this one.
  known_prepare_call_ = told_prepare_call_;
  const bool of_this_call = told_layout_ == trainer_layout_ && known_prepare_call_ == prepare_call_;
  current_plan_error_ = of_this_call ? StatusFromProto(response.current_plan_error()) : absl::OkStatus();
  for (const std::string& digest : response.wanted_layouts()) {
    RankLayoutPtr layout = layouts_.Find(digest);
    if (layout == nullptr || refused_puts_.contains(digest)) continue;
    if (puts_.insert(digest).second) {
      context_.Do(action::PutLayout{std::move(layout)});
    } else if (ended_puts_.contains(digest)) {
      // This answer may be older than the upload. If it is not, the next one says so again, at once.
      known_revision_ = 0;
    }
  }
  if (response.has_arm()) ApplyArm(response.arm());
  ApplyGroups(response);
  saves_.Obey(response.saves());
  for (const v1::LoadOrder& order : response.loads()) loads_.Obey(order);
  Advance();
  return absl::OkStatus();
}

void Session::OnLayoutPut(const std::string& digest, const absl::Status& status) {
  ended_puts_.insert(digest);
  // If it failed otherwise, the coordinator asks again.
  if (!HasReason(status, Reason::kMessageTooLarge)) return;
  const std::string rank = absl::StrCat(context_.options.rank);
  const absl::Status refused = Annotate(status, absl::StrCat("rank ", rank, ": the coordinator has refused the layout"),
                                        {{"job", context_.options.job}, {"rank", rank}, {"ranks", rank}});
  std::erase_if(refused_puts_, [this](const auto& entry) { return !KnowsLayout(entry.first); });
  refused_puts_[digest] = refused;
  saves_.OnLayoutRefused(digest, refused);
  loads_.OnLayoutRefused(digest, refused);
  Advance();
  context_.Changed();
}

void Session::NameLayout(const std::string& digest) {
  // There may be room now.
  refused_puts_.erase(digest);
}

void Session::OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes) {
  if (!plans_.OnPlan(digest, std::move(bytes))) return;
  Advance();
  context_.Changed();
}

void Session::OnPeers(const std::vector<uint32_t>& ranks, const absl::StatusOr<v1::GetTransferPeersResponse>& answer) {
  if (plans_.OnPeers(ranks, answer)) Advance();
}

void Session::ApplyArm(const v1::ArmOrder& order) {
  const bool same = arm_.number() == order.number();
  switch (order.action()) {
    case v1::ArmOrder::ARM:
      if (same) return;
      arm_.set_number(order.number());
      arm_.set_step(order.step());
      if (trainer_) {
        arm_.set_status(v1::ArmState::STATUS_UNSPECIFIED);
        context_.Do(action::ControlPage{order});
      } else {
        arm_.set_status(v1::ArmState::REFUSED);
        context_.Changed();
      }
      return;
    case v1::ArmOrder::AGREE:
      if (same && arm_.status() == v1::ArmState::ARMED) context_.Do(action::ControlPage{order});
      return;
    case v1::ArmOrder::DISARM:
      if (same && arm_.status() == v1::ArmState::DISARMED) return;
      arm_.set_number(order.number());
      arm_.set_step(order.step());
      if (trainer_) {
        context_.Do(action::ControlPage{order});
      } else {
        arm_.set_status(v1::ArmState::DISARMED);
        context_.Changed();
      }
      return;
    default:
      return;
  }
}

void Session::ApplyGroups(const v1::SynchronizeAgentResponse& response) {
  v1::SynchronizeAgentResponse orders;
  *orders.mutable_groups() = response.groups();
  std::string bytes = orders.SerializeAsString();
  if (bytes == followed_groups_) return;
  followed_groups_ = std::move(bytes);
  context_.Do(action::FollowGroups{{response.groups().begin(), response.groups().end()}});
}

void Session::OnGroups(std::vector<v1::GroupState> groups) {
  groups_ = std::move(groups);
  context_.Changed();
}

void Session::OnControlPage(uint64_t number, v1::ArmState::Status status) {
  if (arm_.number() != number || arm_.status() == status) return;
  arm_.set_status(status);
  context_.Changed();
}

absl::Status Session::Replaced() const {
  return MakeError(Reason::kStaleIncarnation,
                   absl::StrCat("rank ", context_.options.rank, " of job ", context_.options.job,
                                ": another trainer has taken this one's place; stop this process"),
                   {{"job", context_.options.job}, {"rank", absl::StrCat(context_.options.rank)}});
}

absl::Status Session::CheckAttach(uint64_t trainer, uint64_t previous_agent) const {
  if (trainer_ == trainer) return absl::OkStatus();
  // Two trainers of one rank, each of which comes back when it was replaced, would take the rank from each other
  // without end.
  if (std::find(replaced_.begin(), replaced_.end(), trainer) != replaced_.end()) return Replaced();
  if (previous_agent == 0) return absl::OkStatus();
  const bool given_on =
      previous_agent == context_.options.incarnation && last_trainer_ != 0 && last_trainer_ != trainer;
  return trainer_ || given_on ? Replaced() : absl::OkStatus();
}

absl::Status Session::CheckPlace(const v1::TrainerPlace& place) const {
  const SessionOptions& own = context_.options;
  if (place.may_be_alone() && own.world_size == 1) return absl::OkStatus();
  const bool other_world = place.world_size() != 0 && place.world_size() != own.world_size;
  if (!other_world && place.rank() == own.rank) return absl::OkStatus();
  return MakeError(other_world ? Reason::kWorldSizeMismatch : Reason::kRankConflict,
                   absl::StrCat("this agent is that of rank ", own.rank, " of ", own.world_size, " of job ", own.job,
                                ", and the trainer says that it is rank ", place.rank(),
                                place.world_size() != 0 ? absl::StrCat(" of ", place.world_size()) : ""),
                   {{"job", own.job},
                    {"rank", absl::StrCat(place.rank())},
                    {"agent_rank", absl::StrCat(own.rank)},
                    {"agent_world_size", absl::StrCat(own.world_size)},
                    {"next", "Let the trainer connect to the agent of its own rank."}});
}

void Session::Attach(uint64_t trainer) {
  if (trainer_ == trainer) return;
  if (trainer_) {
    replaced_.push_back(*trainer_);
    if (replaced_.size() > kKeptReplaced) replaced_.pop_front();
    OnTrainerGone(*trainer_, TrainerEnd::kReplaced);
  }
  trainer_ = trainer;
  last_trainer_ = trainer;
  process_ = v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;
  trainer_layout_.clear();
  prepare_call_ = known_prepare_call_ = 0;
  preparing_ = false;
  context_.Changed();
}

void Session::OnTrainerProcess(uint64_t trainer, v1::JobRank::TrainerProcess process) {
  if (trainer_ != trainer || process_ == process) return;
  process_ = process;
  context_.Changed();
}

absl::Status Session::Lost(TrainerEnd how, std::string_view when) const {
  const std::string_view ended = how == TrainerEnd::kEnded      ? "ended"
                                 : how == TrainerEnd::kReplaced ? "was replaced by another one"
                                                                : "detached";
  const std::string rank = absl::StrCat(context_.options.rank);
  return MakeError(Reason::kTrainerLost,
                   absl::StrCat("rank ", rank, ": the trainer ", absl::string_view(ended.data(), ended.size()), " ",
                                absl::string_view(when.data(), when.size())),
                   {{"rank", rank}, {"ranks", rank}});
}

void Session::OnTrainerGone(uint64_t trainer, TrainerEnd how) {
  slab_.use().TrainerGone(trainer, how);
  saves_.ForgetQuestions(trainer);
  if (trainer_ != trainer) {
    Advance();  // the slab may be free now
    context_.Changed();
    return;
  }
  devices_.End();
  saves_.OnTrainerLost(trainer, Lost(how, "before its state was staged"));
  loads_.OnTrainerLost(trainer, Lost(how, "while it was loading"));
  trainer_.reset();
  slab_.ForgetError();
  // The page is made anew for the next trainer.
  if (arm_.status() == v1::ArmState::ARMED || arm_.status() == v1::ArmState::AGREED) {
    arm_.set_status(v1::ArmState::DISARMED);
  } else if (arm_.number() != 0 && arm_.status() == v1::ArmState::STATUS_UNSPECIFIED) {
    arm_.set_status(v1::ArmState::REFUSED);
  }
  Advance();
  context_.Changed();
}

absl::Status Session::CheckAttached(uint64_t trainer) const {
  if (trainer_ == trainer) return absl::OkStatus();
  if (std::find(replaced_.begin(), replaced_.end(), trainer) != replaced_.end()) return Replaced();
  return MakeError(Reason::kNotRegistered,
                   absl::StrCat("rank ", context_.options.rank, ": this trainer is not attached"));
}

void Session::AddLayout(RankLayoutPtr layout) {
  layouts_.Add(std::move(layout), [this](const std::string& digest) {
    return digest == trainer_layout_ || saves_.Uses(digest) || loads_.Uses(digest);
  });
}

absl::StatusOr<v1::PrepareResponse> Session::Answer(const v1::PrepareRequest& request, absl::Time) {
  if (request.end()) {
    if (request.number() == prepare_call_ && std::exchange(preparing_, false)) context_.Changed();
    return v1::PrepareResponse();
  }
  const RankLayoutPtr layout = layouts_.Find(request.layout().digest());
  if (layout == nullptr) {
    v1::PrepareResponse response;
    response.set_need_layout(true);
    return response;
  }
  auto response = GoOnPreparing(request, layout);
  preparing_ = response.ok() && response->pending();
  return response;
}

absl::StatusOr<v1::PrepareResponse> Session::GoOnPreparing(const v1::PrepareRequest& request,
                                                           const RankLayoutPtr& layout) {
  if (const auto refused = refused_puts_.find(layout->digest); refused != refused_puts_.end()) {
    absl::Status status = refused->second;
    NameLayout(layout->digest);
    return status;
  }
  // A trainer of an earlier version does not count its calls.
  const uint64_t call = request.number() > 0 ? request.number() : prepare_call_ + (preparing_ ? 0 : 1);
  if (call != prepare_call_ || trainer_layout_ != layout->digest) {
    trainer_layout_ = layout->digest;
    prepare_call_ = call;
    current_plan_error_ = absl::OkStatus();
    context_.Changed();
  }
  CAIRN_RETURN_IF_ERROR(current_plan_error_);
  v1::PrepareResponse response;
  context_.SetPending(response);
  // A plan of before the coordinator heard of this call may be one of before the layouts of other ranks changed.
  if (plans_.current().digest.empty() || told_layout_ != trainer_layout_ || known_prepare_call_ != prepare_call_) {
    return response;
  }
  const auto image = plans_.WantImage(plans_.current().digest, layout);
  if (HasReason(image.status(), Reason::kLayoutChanged)) return response;
  CAIRN_RETURN_IF_ERROR(image.status());
  if (*image == nullptr) return response;
  // A slab in use is large enough or will be replaced by the next save.
  const bool held = saves_.HoldsSlab();
  if (!held || slab_.made()->bytes < (*image)->slab_bytes) {
    CAIRN_ASSIGN_OR_RETURN(const bool ready, slab_.Want((*image)->slab_bytes, request.trainer_incarnation(), held));
    if (!ready) return response;
  }
  plans_.SetNewest(*image);
  response.set_pending(false);
  response.clear_stalled();
  response.set_slab_bytes(slab_.made()->bytes);
  response.mutable_slab()->set_descriptor_id(slab_.made()->descriptor_id);
  response.mutable_slab()->set_bytes(slab_.made()->bytes);
  return response;
}

absl::StatusOr<v1::BeginSaveResponse> Session::Answer(const v1::BeginSaveRequest& request, absl::Time now) {
  CAIRN_RETURN_IF_ERROR(CheckStep(request.step()));
  const RankLayoutPtr layout = layouts_.Find(request.layout().digest());
  if (layout == nullptr) {
    v1::BeginSaveResponse response;
    response.set_need_layout(true);
    return response;
  }
  const uint64_t begun = saves_.begun();
  auto response = saves_.Begin(request, layout, now);
  if (saves_.begun() != begun) {
    trainer_layout_ = layout->digest;
    preparing_ = false;
    NameLayout(layout->digest);
  }
  return response;
}

absl::Status Session::Answer(const v1::CommitStagingRequest& request, absl::Time) {
  if (devices_.CopiesFor(request.save())) {
    return MakeError(Reason::kBadRequest, absl::StrCat("the copies of save ", request.save(), " have not ended"));
  }
  return saves_.CommitStaging(request);
}

absl::StatusOr<v1::WaitSaveResponse> Session::Answer(const v1::WaitSaveRequest& request, absl::Time) {
  return saves_.Wait(request);
}

absl::Status Session::Answer(const v1::CancelSaveRequest& request, absl::Time) {
  CAIRN_RETURN_IF_ERROR(saves_.Cancel(request));
  devices_.Advance();
  return absl::OkStatus();
}

absl::StatusOr<v1::OfferDeviceMemoryResponse> Session::Answer(const v1::OfferDeviceMemoryRequest& request, absl::Time) {
  return devices_.Offer(request);
}

absl::StatusOr<v1::CopyFromDeviceResponse> Session::Answer(const v1::CopyFromDeviceRequest& request, absl::Time) {
  return devices_.Copy(request);
}

void Session::OnDeviceCopied(uint64_t copy, absl::StatusOr<DeviceCopied> copied) {
  devices_.OnCopied(copy, std::move(copied));
  Advance();  // the slab may be free now
  context_.Changed();
}

absl::StatusOr<v1::BeginLoadResponse> Session::Answer(const v1::BeginLoadRequest& request, absl::Time) {
  v1::BeginLoadResponse response;
  RankLayoutPtr layout = layouts_.Find(request.layout().digest());
  if (layout == nullptr) {
    response.set_need_layout(true);
    return response;
  }
  RankLayoutPtr source = request.has_source() ? layouts_.Find(request.source().digest()) : nullptr;
  if (request.has_source() && source == nullptr) {
    response.set_need_source(true);
    return response;
  }
  if (!loads_.Knows(request.number())) {
    NameLayout(layout->digest);
    if (source != nullptr) NameLayout(source->digest);
  }
  return loads_.Begin(request, std::move(layout), std::move(source));
}

absl::Status Session::Answer(const v1::CommitSourceRequest& request, absl::Time) {
  return loads_.CommitSource(request);
}

absl::StatusOr<RankLoads::Receiving> Session::Answer(const v1::ReceiveLoadRequest& request, absl::Time) {
  return loads_.Receive(request.trainer_incarnation(), request.number());
}

absl::StatusOr<v1::EndLoadResponse> Session::Answer(const v1::EndLoadRequest& request, absl::Time) {
  return loads_.End(request);
}

void Session::OnSlab(absl::StatusOr<SlabDescription> slab) {
  slab_.OnMade(std::move(slab), trainer_);
  Advance();
  context_.Changed();
}

void Session::OnSlabGivenUp() {
  slab_.OnGivenUp();
  Advance();
  context_.Changed();
}

void Session::Advance() {
  saves_.Advance();
  loads_.Advance();
  devices_.Advance();
}

}  // namespace cairn
