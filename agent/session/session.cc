#include "agent/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

// Besides those in use.
constexpr size_t kKeptLayouts = 8;
constexpr size_t kKeptPlans = 8;
// A trainer that was replaced notices within a second, so few of them still call.
constexpr size_t kKeptReplaced = 64;

}  // namespace

Session::Session(SessionOptions options)
    : options_(std::move(options)), link_trouble_(options_.rank), next_save_(options_.incarnation | 1) {}

std::vector<Action> Session::TakeActions() { return std::exchange(actions_, {}); }

bool Session::active() const {
  return !saves_.empty() ||
         std::any_of(loads_.begin(), loads_.end(), [](const auto& entry) { return !entry.second.ended; });
}

v1::AgentIdentity Session::Identity() const {
  v1::AgentIdentity identity;
  identity.set_job(options_.job);
  identity.set_rank(options_.rank);
  identity.set_incarnation(options_.incarnation);
  identity.set_coordinator_epoch(coordinator_epoch_);
  return identity;
}

absl::Status Session::CheckEpoch(uint64_t epoch) const {
  if (epoch >= coordinator_epoch_) return absl::OkStatus();
  return MakeError(Reason::kStaleEpoch, absl::StrCat("an answer from coordinator epoch ", epoch, ", but epoch ",
                                                     coordinator_epoch_, " has been heard of"));
}

absl::Status Session::OnRegistered(const v1::RegisterAgentResponse& response) {
  CAIRN_RETURN_IF_ERROR(CheckEpoch(response.coordinator_epoch()));
  coordinator_epoch_ = response.coordinator_epoch();
  peers_.Begin({response.coordinator_epoch(), response.membership_epoch()});
  known_revision_ = 0;
  lease_ttl_ = DurationOf(response.lease_ttl());
  registered_ = true;
  Changed();
  return absl::OkStatus();
}

void Session::OnUnregistered() {
  registered_ = false;
  known_revision_ = 0;
  // What the old coordinator said about plans is the old one's; a new one may have found it again, and will say so.
  current_plan_digest_.clear();
  current_plan_error_ = absl::OkStatus();
  Changed();
}

v1::SynchronizeAgentRequest Session::BuildRequest(std::optional<int64_t> current_step) {
  v1::SynchronizeAgentRequest request;
  *request.mutable_agent() = Identity();
  request.set_known_revision(known_revision_);
  request.set_sequence(++sequence_);
  v1::AgentState& state = *request.mutable_state();
  v1::TrainerState& trainer = *state.mutable_trainer();
  trainer.set_attached(trainer_.has_value());
  trainer.set_incarnation(trainer_.value_or(0));
  if (trainer_ && current_step) trainer.set_current_step(*current_step);
  trainer.set_layout_digest(trainer_layout_);
  *state.mutable_arm() = arm_;
  told_saves_.clear();
  told_loads_.clear();
  told_layout_ = trainer_layout_;
  for (const auto& [step, save] : saves_) {
    *state.add_saves() = StateOf(save);
    told_saves_[step] = save.id;
  }
  asked_.AddTo(state);
  for (const auto& [number, load] : loads_) {
    if (load.ended) continue;
    *state.add_loads() = StateOf(load);
    told_loads_[number] = load.trainer;
  }
  state.set_memory_budget(options_.memory_budget);
  state.set_round_bytes(options_.round_bytes);
  return request;
}

absl::Status Session::OnOrders(const v1::SynchronizeAgentResponse& response, absl::Time now) {
  CAIRN_RETURN_IF_ERROR(CheckEpoch(response.coordinator_epoch()));
  link_trouble_.Over();
  coordinator_epoch_ = response.coordinator_epoch();
  peers_.Heard({response.coordinator_epoch(), response.membership_epoch()});
  known_revision_ = response.revision();
  if (response.has_lease_ttl()) lease_ttl_ = DurationOf(response.lease_ttl());
  current_plan_digest_ = response.current_plan_digest();
  current_plan_checks_replicas_ = response.check_replicas();
  current_plan_samples_replicas_ = response.sample_replicas();
  // An answer to a request that named another layout says nothing about this one.
  current_plan_error_ =
      told_layout_ == trainer_layout_ ? StatusFromProto(response.current_plan_error()) : absl::OkStatus();
  for (const std::string& digest : response.wanted_layouts()) {
    const auto layout = layouts_.find(digest);
    if (layout == layouts_.end() || !puts_.insert(digest).second) continue;
    Do(action::PutLayout{layout->second});
  }
  if (response.has_arm()) ApplyArm(response.arm());
  for (const v1::SaveOrder& order : response.saves()) {
    if (!asked_.Apply(order)) ApplySave(order, now);
  }
  // A save that was never begun here and that the coordinator no longer speaks of needs no answer.
  std::erase_if(saves_, [&](const auto& entry) {
    return entry.second.id == 0 && std::none_of(response.saves().begin(), response.saves().end(),
                                                [&](const auto& order) { return order.step() == entry.first; });
  });
  for (const v1::LoadOrder& order : response.loads()) ApplyLoad(order);
  Advance();
  return absl::OkStatus();
}

void Session::OnLayoutPut(const std::string& digest, const absl::Status&) {
  // If it failed, the coordinator asks again.
  puts_.erase(digest);
}

void Session::OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes, absl::Time) {
  gets_.erase(digest);
  // If it failed (another plan has taken its place, or the coordinator restarted), the next orders say what to fetch.
  if (!bytes.ok()) return;
  if (plans_.insert_or_assign(digest, *std::move(bytes)).second) plan_order_.push_back(digest);
  while (plan_order_.size() > kKeptPlans) {
    plans_.erase(plan_order_.front());
    images_.erase(plan_order_.front());
    plan_order_.pop_front();
  }
  Advance();
  Changed();
}

void Session::OnPeers(const std::vector<uint32_t>& ranks,
                      const absl::StatusOr<v1::GetTransferPeersResponse>& answer) {
  peers_.Answer(ranks, answer);
  // If it failed, they are asked for again after the next orders.
  if (answer.ok()) Advance();
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
        Do(action::ControlPage{order});
      } else {
        arm_.set_status(v1::ArmState::REFUSED);
        Changed();
      }
      return;
    case v1::ArmOrder::AGREE:
      if (same && arm_.status() == v1::ArmState::ARMED) Do(action::ControlPage{order});
      return;
    case v1::ArmOrder::DISARM:
      if (same && arm_.status() == v1::ArmState::DISARMED) return;
      arm_.set_number(order.number());
      arm_.set_step(order.step());
      if (trainer_) {
        Do(action::ControlPage{order});
      } else {
        arm_.set_status(v1::ArmState::DISARMED);
        Changed();
      }
      return;
    default:
      return;
  }
}

void Session::OnControlPage(uint64_t number, v1::ArmState::Status status) {
  if (arm_.number() != number || arm_.status() == status) return;
  arm_.set_status(status);
  Changed();
}

absl::Status Session::Replaced() const {
  return MakeError(Reason::kStaleIncarnation,
                   absl::StrCat("rank ", options_.rank, " of job ", options_.job,
                                ": another trainer has taken this one's place; stop this process"),
                   {{"job", options_.job}, {"rank", absl::StrCat(options_.rank)}});
}

absl::Status Session::CheckAttach(uint64_t trainer, uint64_t previous_agent) const {
  if (trainer_ == trainer) return absl::OkStatus();
  // Two trainers of one rank, each of which comes back when it was replaced, would take the rank from each other
  // without end.
  if (std::find(replaced_.begin(), replaced_.end(), trainer) != replaced_.end()) return Replaced();
  if (previous_agent == 0) return absl::OkStatus();
  const bool given_on = previous_agent == options_.incarnation && last_trainer_ != 0 && last_trainer_ != trainer;
  return trainer_ || given_on ? Replaced() : absl::OkStatus();
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
  trainer_layout_.clear();
  Changed();
}

void Session::OnTrainerGone(uint64_t trainer, TrainerEnd how) {
  slab_use_.TrainerGone(trainer, how);
  asked_.TrainerGone(trainer);
  if (trainer_ != trainer) {
    Advance();  // the slab may be free now
    Changed();
    return;
  }
  const std::string_view ended = how == TrainerEnd::kEnded      ? "ended"
                                 : how == TrainerEnd::kReplaced ? "was replaced by another one"
                                                                : "detached";
  const auto lost = [&](std::string_view what) {
    return MakeError(
        Reason::kTrainerLost,
        absl::StrCat("rank ", options_.rank, ": the trainer ", absl::string_view(ended.data(), ended.size()), " ",
                     absl::string_view(what.data(), what.size())),
        {{"rank", absl::StrCat(options_.rank)}, {"ranks", absl::StrCat(options_.rank)}});
  };
  for (auto& [step, save] : saves_) {
    if (save.trainer != trainer) continue;
    if (save.phase == v1::SaveState::BEGUN || save.phase == v1::SaveState::STAGING) {
      Fail(save, lost("before its state was staged"));
    }
  }
  for (auto& [number, load] : loads_) {
    if (load.trainer == trainer && !load.ended && !load.consumed) Fail(load, lost("while it was loading"));
  }
  trainer_.reset();
  slab_error_ = absl::OkStatus();
  // The page is made anew for the next trainer.
  if (arm_.status() == v1::ArmState::ARMED || arm_.status() == v1::ArmState::AGREED) {
    arm_.set_status(v1::ArmState::DISARMED);
  } else if (arm_.number() != 0 && arm_.status() == v1::ArmState::STATUS_UNSPECIFIED) {
    arm_.set_status(v1::ArmState::REFUSED);
  }
  Advance();
  Changed();
}

absl::Status Session::CheckAttached(uint64_t trainer) const {
  if (trainer_ == trainer) return absl::OkStatus();
  if (std::find(replaced_.begin(), replaced_.end(), trainer) != replaced_.end()) return Replaced();
  return MakeError(Reason::kNotRegistered, absl::StrCat("rank ", options_.rank, ": this trainer is not attached"));
}

void Session::AddLayout(RankLayoutPtr layout) {
  const std::string digest = layout->digest;
  if (!layouts_.emplace(digest, std::move(layout)).second) std::erase(layout_order_, digest);
  layout_order_.push_back(digest);
  ForgetOldLayouts();
}

// A layout is kept as long as the trainer, a save or a load that goes on has it, and a few more for calls to come.
void Session::ForgetOldLayouts() {
  const auto in_use = [&](const std::string& digest) {
    const auto uses = [&](const auto& entry) { return entry.second.layout && entry.second.layout->digest == digest; };
    const auto gives = [&](const auto& entry) {
      return entry.second.source_layout && entry.second.source_layout->digest == digest;
    };
    return digest == trainer_layout_ || std::any_of(saves_.begin(), saves_.end(), uses) ||
           std::any_of(loads_.begin(), loads_.end(), uses) || std::any_of(loads_.begin(), loads_.end(), gives);
  };
  size_t idle = 0;
  for (auto digest = layout_order_.rbegin(); digest != layout_order_.rend(); ++digest) {
    if (!in_use(*digest) && ++idle > kKeptLayouts) layouts_.erase(*digest);
  }
  std::erase_if(layout_order_, [&](const std::string& digest) { return !layouts_.contains(digest); });
}

absl::StatusOr<v1::PrepareResponse> Session::Prepare(const v1::PrepareRequest& request, absl::Time) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  v1::PrepareResponse response;
  const auto layout = layouts_.find(request.layout().digest());
  if (layout == layouts_.end()) {
    response.set_need_layout(true);
    return response;
  }
  if (trainer_layout_ != layout->first) {
    trainer_layout_ = layout->first;
    current_plan_error_ = absl::OkStatus();
    Changed();
  }
  CAIRN_RETURN_IF_ERROR(current_plan_error_);
  SetPending(response);
  // A plan of before the coordinator heard of this layout may be for another one.
  if (current_plan_digest_.empty() || told_layout_ != trainer_layout_) return response;
  const auto image = WantImage(current_plan_digest_, layout->second);
  if (HasReason(image.status(), Reason::kLayoutChanged)) return response;
  CAIRN_RETURN_IF_ERROR(image.status());
  if (*image == nullptr) return response;
  // A slab in use is large enough or will be replaced by the next save.
  if (!SlabIsHeld() || slab_->bytes < (*image)->slab_bytes) {
    CAIRN_ASSIGN_OR_RETURN(const bool ready, WantSlab((*image)->slab_bytes, request.trainer_incarnation()));
    if (!ready) return response;
  }
  cached_ = *image;
  response.set_pending(false);
  response.clear_stalled();
  response.set_slab_bytes(slab_->bytes);
  return response;
}

const std::string* Session::WantPlan(const std::string& digest, const std::string& known) {
  const auto plan = plans_.find(digest);
  if (plan != plans_.end()) return &plan->second;
  if (!digest.empty() && gets_.insert(digest).second) {
    const auto last = plans_.find(known);
    Do(action::GetPlan{digest, last == plans_.end() ? "" : last->second});
  }
  return nullptr;
}

absl::StatusOr<SaveImagePtr> Session::WantImage(const std::string& plan_digest, const RankLayoutPtr& layout) {
  // A coordinator that has lost a plan may still name it: what is in use here needs no fetching.
  if (cached_ && cached_->plan_digest == plan_digest && cached_->layout->digest == layout->digest) return cached_;
  const auto image = images_.find(plan_digest);
  if (image != images_.end() && image->second->layout->digest == layout->digest) return image->second;
  const std::string* bytes = WantPlan(plan_digest, cached_ ? cached_->plan_digest : "");
  if (bytes == nullptr) return nullptr;
  v1::WritePlan plan;
  if (!plan.ParseFromString(*bytes) || plan.plan_digest() != plan_digest || plan.rank() != options_.rank) {
    return MakeError(Reason::kInternal,
                     absl::StrCat("rank ", options_.rank, ": the coordinator sent something else for plan ",
                                  DigestHex(plan_digest).substr(0, 12)));
  }
  CAIRN_ASSIGN_OR_RETURN(SaveImagePtr made, MakeSaveImage(layout, plan));
  images_[plan_digest] = made;
  return made;
}

std::optional<PeerMap> Session::WantPeers(const std::vector<uint32_t>& ranks) {
  std::optional<PeerMap> known = peers_.Find(ranks);
  if (known.has_value()) return known;
  for (std::vector<uint32_t>& request : peers_.Ask(ranks)) Do(action::GetPeers{std::move(request)});
  return std::nullopt;
}

bool Session::SlabIsHeld() const {
  if (!slab_) return false;
  if (writer_) return true;
  return std::any_of(saves_.begin(), saves_.end(), [](const auto& entry) {
    const Save& save = entry.second;
    return save.staged != nullptr && save.phase >= v1::SaveState::STAGING && save.phase <= v1::SaveState::WRITTEN;
  });
}

absl::StatusOr<bool> Session::WantSlab(uint64_t bytes, uint64_t trainer) {
  bytes = std::max<uint64_t>(bytes, 4096);  // something to write from, even for a rank that stages nothing
  if (making_slab_ || SlabIsHeld()) return false;
  if (slab_ && slab_->bytes >= bytes && slab_use_.AllowedTo(trainer)) return true;
  if (!slab_error_.ok() && bytes >= slab_error_bytes_) return std::exchange(slab_error_, absl::OkStatus());
  making_slab_ = true;
  slab_error_ = absl::OkStatus();
  slab_error_bytes_ = bytes;
  slab_asker_ = trainer;
  slab_.reset();
  slab_use_ = SlabUse();
  Do(action::MakeSlab{bytes});
  return false;
}

void Session::OnSlab(absl::StatusOr<SlabDescription> slab, absl::Time) {
  making_slab_ = false;
  if (slab.ok()) {
    slab_ = *slab;
    slab_error_ = absl::OkStatus();
  } else if (trainer_ == slab_asker_) {
    slab_error_ =
        Annotate(slab.status(), absl::StrCat("rank ", options_.rank), {{"rank", absl::StrCat(options_.rank)}});
  }
  Advance();
  Changed();
}

void Session::Advance() {
  for (auto& [step, save] : saves_) AdvanceSave(save);
  for (auto& [number, load] : loads_) AdvanceLoad(load);
}

}  // namespace cairn
