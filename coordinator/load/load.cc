#include "coordinator/load/load.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/duration_text.h"
#include "common/base/enum_text.h"
#include "common/rpc/transport_use.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/exchange/nccl_advice.h"

namespace cairn {
namespace {

// How long agents may take to say why their group has broken.
constexpr absl::Duration kGroupLostGrace = absl::Seconds(2);

bool HasLayouts(const v1::LoadState& state, const JobContext& context) {
  return context.layouts.contains(state.layout_digest()) &&
         (state.source_layout_digest().empty() || context.layouts.contains(state.source_layout_digest()));
}

// The ways of a load, from the fastest to the slowest. The numbers on the wire have no order.
int SlownessOf(v1::IoPath path) {
  switch (path) {
    case v1::IO_PATH_MEMORY:
      return 1;
    case v1::IO_PATH_SLAB:
      return 2;
    case v1::IO_PATH_CACHED:
      return 3;
    case v1::IO_PATH_DIRECT:
      return 4;
    default:  // nothing was read, or a way that only a newer agent knows
      return 0;
  }
}

}  // namespace

std::optional<int64_t> Load::wanted_step() const {
  if (IsReshard()) return std::nullopt;
  if (has_plan()) return plan_.IsStep() ? std::optional(plan_.step) : std::nullopt;
  if (ranks_.count(Rank::kWithStep) == 0) return std::nullopt;
  for (size_t i = ranks_.NextKept(0); i < ranks_.size(); i = ranks_.NextKept(i + 1)) {
    if (ranks_[i].begun && ranks_[i].state.has_step()) return ranks_[i].state.step();
  }
  return std::nullopt;
}

bool Load::MayRead(int64_t step) const {
  if (ended()) return false;
  if (const std::optional<int64_t> wanted = wanted_step()) return *wanted == step;
  return !IsReshard() && (ticket_ != 0 || !inherited_plan_.empty());
}

bool Load::AllBegun(const JobContext& context) const {
  return context.members.world_size() > 0 && ranks_.size() == static_cast<size_t>(context.members.world_size()) &&
         ranks_.all(Rank::kBegun);
}

void Load::SetPhase(v1::Phase::Value phase, const JobContext& context) {
  if (phase_ == phase) return;
  phase_ = phase;
  // Nobody knows which bytes of it are still under way.
  if (phase == v1::Phase::FAILED && way_.kind == ExchangeWay::Kind::kGroup) {
    context.groups->Break(way_.group, absl::StrCat(group_user(), " failed: ", error_.message()), context.now);
  }
  if (phase == v1::Phase::DONE && way_.kind == ExchangeWay::Kind::kGroup)
    context.groups->Release(way_.group, group_user());
  if (ended()) {
    timeline_->Finish({context.job, IsReshard() ? v1::Timeline::RESHARD : v1::Timeline::LOAD, wanted_step(), 0,
                       plan_.total_bytes_read, ranks_.size(), error_},
                      context.now);
    context.effects.timelines.push_back(timeline_);
    Drop();
  }
  // A job's first start asks for its latest checkpoint as every later one does.
  const bool nothing = !wanted_step().has_value() && HasReason(error_, Reason::kNotCommitted);
  std::vector<LogField> fields = {{"load", id_}};
  if (wanted_step().has_value()) fields.emplace_back("step", *wanted_step());
  fields.emplace_back("state", nothing ? "NOTHING_TO_LOAD" : EnumName(phase));
  if (!error_.ok() && !nothing) fields.emplace_back("error", error_);
  context.Log(error_.ok() || nothing ? LogLevel::kInfo : LogLevel::kWarn, "load_state", std::move(fields));
}

void Load::Drop() {
  ranks_.ChangeKept([](Rank& rank) {
    // Late calls are known by these, and people are told by these what was loaded.
    v1::LoadState kept;
    kept.set_trainer_incarnation(rank.state.trainer_incarnation());
    kept.set_number(rank.state.number());
    kept.set_source_layout_digest(rank.state.source_layout_digest());
    if (rank.state.has_step()) kept.set_step(rank.state.step());
    rank.state = std::move(kept);
  });
  plan_.missing = {};
  plan_.unexpected = {};
  plan_.transfer_token.clear();
  plan_.hold = nullptr;
  plan_.check = nullptr;
}

const v1::LoadState* Load::CallOf(int rank) const {
  const Rank& known = ranks_[static_cast<size_t>(rank)];
  return known.begun ? &known.state : nullptr;
}

bool Load::Has(int rank, const v1::LoadState& state) const {
  const v1::LoadState* call = CallOf(rank);
  return call != nullptr && call->number() == state.number() &&
         call->trainer_incarnation() == state.trainer_incarnation();
}

bool Load::Takes(const Member& member, const v1::LoadState& state) const {
  if (phase_ != v1::Phase::COLLECTING || ticket_ != 0 || CallOf(member.rank) != nullptr) return false;
  // An agent whose orders did not reach it before the coordinator restarted reports the call without the plan.
  const bool same_plan = state.plan_digest() == inherited_plan_ ||
                         (state.plan_digest().empty() && member.changes == 1) ||
                         (inherited_plan_.empty() && may_be_inherited_);
  if (!same_plan) return false;
  // Calls that were in one operation under an earlier coordinator get each other's errors; others begin anew.
  return !inherited_plan_.empty() || std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& other) {
    return other.begun && HasFailed(other.state);
  });
}

News Load::Join(const Member& member, const v1::LoadState& state, const JobContext& context) {
  const auto size = static_cast<size_t>(context.members.world_size());
  ranks_.Grow(size);
  may_be_inherited_ = may_be_inherited_ && member.changes == 1;
  if (inherited_plan_.empty()) inherited_plan_ = state.plan_digest();
  ranks_.Change(static_cast<size_t>(member.rank), [&](Rank& rank) {
    rank.awaited.TakeCall(state.trainer_incarnation());
    rank.begun = true;
    rank.agent = member.incarnation;
    rank.progress = context.now;
    rank.state = state;
  });
  Record(member.rank, state, context.now);
  News news = OnMember(member.rank, context);
  return news += News::Step(ranks_.all(Rank::kBegun) || HasFailed(state));
}

News Load::OnMember(int rank, const JobContext& context) {
  if (ended() || static_cast<size_t>(rank) >= ranks_.size()) return {};
  return News::Step(LookAt(rank, context).has_value());
}

uint32_t Load::Rank::marks() const {
  if (!begun) return 0;
  const bool done = state.phase() == v1::Phase::DONE;
  return 1u << kBegun | uint32_t{done} << kDone | uint32_t{HasFailed(state)} << kFailed |
         uint32_t{state.source_staged()} << kStaged |
         uint32_t{done || state.phase() == v1::Phase::READING} << kReading |
         uint32_t{!state.source_layout_digest().empty()} << kResharding | uint32_t{state.has_step()} << kWithStep;
}

News Load::Follow(const Member& member, const JobContext& context) {
  const auto at = static_cast<size_t>(member.rank);
  const Rank& rank = ranks_[at];
  if (ended() || !rank.begun || rank.agent != member.incarnation || HasFailed(rank.state)) return {};
  const v1::LoadState* found = nullptr;
  bool followed = false;
  for (const v1::LoadState& state : member.state.loads()) {
    if (state.trainer_incarnation() != rank.state.trainer_incarnation()) continue;
    if (state.number() == rank.state.number()) found = &state;
    followed = followed || state.number() > rank.state.number();
  }
  if (found != nullptr && (!followed || HasFailed(*found))) return Update(member.rank, *found, context);
  const v1::TrainerState& trainer = member.state.trainer();
  const bool alive = trainer.attached() && trainer.incarnation() == rank.state.trainer_incarnation();
  const absl::Status error =
      alive ? MakeError(Reason::kInterrupted, followed ? "its trainer gave this call up and has begun another"
                                                       : "its trainer gave the call up")
            : MakeError(Reason::kTrainerLost, "its trainer ended");
  ranks_.Change(at, [&](Rank& given_up) {
    given_up.state.set_phase(v1::Phase::FAILED);
    *given_up.state.mutable_error() = StatusToProto(error);
  });
  return News::Step();
}

void Load::Record(int rank, const v1::LoadState& state, absl::Time now) {
  timeline_->Mark(rank, RankMark::kCalled, now);
  const bool reshard = !state.source_layout_digest().empty();
  if (state.phase() == v1::Phase::READING) {
    if (reshard) timeline_->Mark(rank, RankMark::kStaging, now);
    if (!reshard || state.source_staged()) timeline_->Mark(rank, RankMark::kMoving, now);
  }
  if (reshard && state.source_staged()) timeline_->Mark(rank, RankMark::kStaged, now);
  if (state.phase() == v1::Phase::DONE) timeline_->Mark(rank, RankMark::kDone, now);
}

News Load::Update(int index, const v1::LoadState& state, const JobContext& context) {
  const auto at = static_cast<size_t>(index);
  const v1::LoadState& before = ranks_[at].state;
  const bool moved = before.phase() != state.phase() || before.bytes_done() != state.bytes_done() ||
                     before.storage_bytes() != state.storage_bytes() || before.plan_digest() != state.plan_digest() ||
                     before.source_staged() != state.source_staged();
  if (!moved || (before.phase() == v1::Phase::DONE && !HasFailed(state))) return {};
  const size_t failed = ranks_.count(Rank::kFailed), done = ranks_.count(Rank::kDone);
  const size_t staged = ranks_.count(Rank::kStaged), reading = ranks_.count(Rank::kReading);
  ranks_.Change(at, [&](Rank& rank) {
    rank.progress = context.now;
    rank.state = state;
  });
  Record(index, state, context.now);
  const bool all_staged = ranks_.count(Rank::kStaged) > staged && ranks_.all(Rank::kStaged);
  if (all_staged) progress_base_ = context.now;  // those that have waited for it begin only now
  const size_t failed_now = ranks_.count(Rank::kFailed), done_now = ranks_.count(Rank::kDone);
  const bool all_over = done_now + failed_now == ranks_.count(Rank::kBegun);  // an error waits for no other to begin
  return News::Step((failed_now > failed && (failed == 0 || all_over)) || (done_now > done && all_over) || all_staged ||
                    (ranks_.count(Rank::kReading) > reading && ranks_.all(Rank::kReading)));
}

v1::Phase::Value Load::PhaseOf(const Rank& rank) const {
  if (!rank.begun) return v1::Phase::WAITING;
  switch (rank.state.phase()) {
    case v1::Phase::READING:
      return !rank.state.source_layout_digest().empty() && !rank.state.source_staged() ? v1::Phase::STAGING
                                                                                       : v1::Phase::READING;
    case v1::Phase::DONE:
      return v1::Phase::DONE;
    default:
      return has_plan() ? v1::Phase::READING : v1::Phase::PLANNING;
  }
}

absl::Time Load::ProgressOf(int index, const JobContext& context) const {
  const Rank& rank = ranks_[static_cast<size_t>(index)];
  absl::Time progress = std::max(rank.progress, progress_base_);
  const Member* member = context.members.Find(index);
  if (member != nullptr && rank.begun && !has_plan()) progress = std::max(progress, member->uploaded);
  return progress;
}

std::vector<int> Load::Awaited(const JobContext& context) const {
  std::vector<int> ranks;
  const bool all_begun = AllBegun(context);
  // A rank that has not staged its source holds up all ranks that take bytes from it.
  const auto stages = [](const Rank& rank) {
    return !rank.state.source_staged() && rank.state.phase() != v1::Phase::DONE;
  };
  const bool staging = has_plan() && IsReshard() && std::any_of(ranks_.begin(), ranks_.end(), stages);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const bool awaited = !all_begun    ? !rank.begun
                         : !has_plan() ? !HasLayouts(rank.state, context)
                         : staging     ? stages(rank)
                                       : rank.state.phase() != v1::Phase::DONE;
    if (awaited) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

void Load::Fail(const absl::Status& error, const JobContext& context) {
  if (ended()) return;
  error_ = WithRoot(error, context);
  if (way_.kind == ExchangeWay::Kind::kGroup && HasReason(error_, Reason::kTransportFailed)) {
    const bool required = Groups::SomebodyRequires(context.members, ExchangeUse::kLoads);
    error_ = WithMetadata(
        error_, {{"next", AdviceAfterFailedExchange(IsReshard() ? "Reshard" : "Load", required, ExchangeUse::kLoads)}});
  }
  SetPhase(v1::Phase::FAILED, context);
}

std::vector<int> Load::Owing(const JobContext& context) const {
  std::vector<int> ranks;
  for (int rank : Awaited(context)) {
    const v1::LoadState& state = ranks_[static_cast<size_t>(rank)].state;
    const bool owes = !has_plan()   ? true
                      : IsReshard() ? !state.source_staged()
                                    : state.bytes_done() < state.bytes_total();
    if (owes) ranks.push_back(rank);
  }
  return ranks;
}

bool Load::ReadsWith(const std::string& token_digest) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    const std::string& known = rank.state.transfer_token_digest();
    return known.empty() || known == token_digest;
  });
}

std::string Load::CallsDigest() const {
  Digester digester;
  for (const Rank& rank : ranks_) digester.Add(rank.state.trainer_incarnation()).Add(rank.state.number());
  return digester.Finish();
}

News Load::Advance(const JobContext& context, const std::set<int64_t>& damaged) {
  // One step makes the next one possible.
  for (Told last = told(); !ended(); last = told()) {
    AdvanceOnce(context, damaged);
    if (told() == last) break;
  }
  const Told before = std::exchange(told_, told());
  News news = News::Urgent(before != told_);
  news.step = before.phase != told_.phase;
  return news;
}

void Load::AdvanceOnce(const JobContext& context, const std::set<int64_t>& damaged) {
  if (!CheckMembers(context) || !CheckErrors(context) || !CheckInherited(context)) return;
  const std::vector<int> awaited = Awaited(context);
  std::vector<int> late;
  for (int rank : awaited) {
    if (context.now - ProgressOf(rank, context) >= context.options.phase_timeout) late.push_back(rank);
  }
  if (!late.empty()) {
    // Who is late may wait for a trainer that was stopped a moment later.
    if (!AllBegun(context) && AnyHalted(awaited, context)) late = HoldingUp(awaited, context);
    Fail(ErrorNaming(Reason::kRankLate, context, operation(), late.size() == 1 ? "is late" : "are late",
                     NamedRanks(late, context)),
         context);
    return;
  }
  if (ticket_ != 0 && !has_plan() && context.now - progress_base_ >= context.options.storage_patience()) {
    Fail(OperationError(Reason::kStorageStalled, context, operation(),
                        absl::StrCat("the coordinator's storage has not given what the load is planned from within ",
                                     DurationText(context.options.storage_patience()))),
         context);
    return;
  }
  if (!AllBegun(context)) return;
  if (!has_plan()) {
    if (ticket_ != 0 || !awaited.empty() || !CheckAgreement(context)) return;
    Plan(context, damaged);
    return;
  }
  if (!CheckExchange(context)) return;
  if (!ranks_.all(Rank::kDone)) return;
  if (plan_.check != nullptr && !verified_tensors_.has_value()) {
    if (verify_ticket_ == 0) Verify(context);
    return;
  }
  for (const Rank& rank : ranks_) {
    storage_bytes_ += rank.state.storage_bytes();
    if (SlownessOf(rank.state.io_path()) > SlownessOf(io_path_)) io_path_ = rank.state.io_path();
  }
  SetPhase(v1::Phase::DONE, context);
}

void Load::Plan(const JobContext& context, const std::set<int64_t>& damaged) {
  PlanLoad make;
  make.number = id_;
  make.step = wanted_step();
  make.strict = ranks_.front().state.strict();
  make.fallback = ranks_.front().state.fallback();
  make.verify_fingerprints = ranks_.front().state.verify_fingerprints();
  make.damaged = damaged;
  make.known = context.known_steps;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    make.layout.push_back(ranks_[i].state.layout_digest());
    if (IsReshard()) make.source_layout.push_back(ranks_[i].state.source_layout_digest());
    const Member& member = *context.members.Find(static_cast<int>(i));
    make.node.push_back(member.node);
    make.kept.push_back({ranks_[i].state.kept_step(), ranks_[i].state.kept_attempt()});
    const uint64_t wish = member.state.round_bytes();
    if (wish != 0) make.round_bytes = make.round_bytes == 0 ? wish : std::min(make.round_bytes, wish);
  }
  if (context.groups != nullptr && !IsReshard()) make.memory = Groups::MemoryOf(context.members);
  make.calls_digest = CallsDigest();
  ticket_ = make.ticket = context.NewTicket();
  progress_base_ = context.now;
  context.Do(std::move(make));
}

void Load::OnPlanned(uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const JobContext& context) {
  if (ticket != ticket_ || ended() || has_plan()) return;
  if (!plan.ok()) {
    if (HasReason(plan.status(), Reason::kPlanUnknown)) {
      ticket_ = 0;  // a layout was evicted meanwhile: it is asked for again
      return;
    }
    absl::Status error = WithOperation(plan.status(), context, absl::StrCat(context.job, " (load)"),
                                       {{"job", context.job}, {"phase", "planning"}});
    // One that passes damaged steps over has looked at the older ones already.
    const v1::LoadState& first = ranks_.front().state;
    Fail(first.has_step() || !first.fallback() ? WithOlderStep(std::move(error), context) : std::move(error), context);
    return;
  }
  if (!inherited_plan_.empty()) {
    const char* unlike = inherited_plan_ != plan->plan_digest       ? "the ranks read by a plan that is not today's"
                         : !ReadsWith(Digest(plan->transfer_token)) ? "some ranks are not in it any more"
                                                                    : nullptr;
    if (unlike != nullptr) {
      return Fail(OperationError(Reason::kCoordinatorRestarted, context, operation(), unlike), context);
    }
  }
  plan_ = *plan;
  timeline_->Mark(OperationMark::kPlanned, context.now);
  for (const auto& [step, error] : plan_.passed_over) {
    context.Log(LogLevel::kWarn, "passed_over",
                {{"load", id_}, {"step", plan_.step}, {"passed_over", step}, {"error", error}});
  }
  progress_base_ = context.now;
  if (context.groups != nullptr) {
    const auto bytes = IsReshard() ? std::nullopt : std::optional(plan_.transport_bytes);
    if (!TakeWay(context.groups->Want(context.members, !inherited_plan_.empty(), context.now, bytes), context)) return;
  }
  SetPhase(v1::Phase::READING, context);
}

void Load::Verify(const JobContext& context) {
  VerifyLoad verify;
  verify.number = id_;
  verify.check = plan_.check;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto& parts = ranks_[i].state.fingerprint_parts();
    verify.parts.emplace_back(parts.begin(), parts.end());
    ranks_.Change(i, [](Rank& rank) { rank.state.clear_fingerprint_parts(); });
  }
  verify_ticket_ = verify.ticket = context.NewTicket();
  context.Do(std::move(verify));
}

void Load::OnVerified(uint64_t ticket, const absl::StatusOr<uint64_t>& tensors, const JobContext& context) {
  if (ticket != verify_ticket_ || ended()) return;
  if (tensors.ok()) {
    verified_tensors_ = *tensors;
  } else {
    Fail(WithOperation(tensors.status(), context, absl::StrCat(context.job, "@", plan_.step, " (load)"),
                       {{"job", context.job}, {"step", absl::StrCat(plan_.step)}, {"phase", "verifying"}}),
         context);
  }
}

bool Load::CheckExchange(const JobContext& context) {
  if (way_.kind == ExchangeWay::Kind::kUndecided) {
    context.groups->Use(way_.group, context.now);  // trainers may stage for longer than an idle group is kept
    if (!AllLend()) return true;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const std::string& refusal = ranks_[i].state.exchange_refusal();
      const Member* member = refusal.empty() ? nullptr : context.members.Find(static_cast<int>(i));
      if (member != nullptr) return TakeWay(Groups::RefusedBy(*member, refusal, context.members), context);
    }
    return TakeWay(context.groups->Settle(context.members, context.now, group_user()), context);
  }
  if (way_.kind != ExchangeWay::Kind::kGroup) return true;
  if (context.groups->IsReady(way_.group)) {
    context.groups->Use(way_.group, context.now);
    return true;
  }
  // The agents that saw it break are about to say why.
  group_lost_ = std::min(group_lost_, context.now);
  if (context.now - group_lost_ < kGroupLostGrace) return true;
  const std::string why = context.groups->WhyBroken(context.members);
  Fail(OperationError(Reason::kTransportFailed, context, operation(),
                      absl::StrCat("the group of the exchange over NCCL has broken", why.empty() ? "" : ": ", why)),
       context);
  return false;
}

bool Load::TakeWay(ExchangeWay way, const JobContext& context) {
  if (way.kind == way_.kind) return true;
  if (way_.kind == ExchangeWay::Kind::kUndecided) progress_base_ = context.now;  // bytes were held until now
  way_ = std::move(way);
  if (way_.kind == ExchangeWay::Kind::kHost && way_.refused) {
    const absl::Status error = OperationError(Reason::kNcclUnavailable, context, operation(),
                                              absl::StrCat("--nccl=require, but ", way_.reason));
    Fail(WithMetadata(error, {{"next", NcclAdvice(way_.reason, ExchangeUse::kLoads)}}), context);
    return false;
  }
  if (way_.kind != ExchangeWay::Kind::kUndecided) {
    context.Log(LogLevel::kInfo, "exchange_way",
                {{"load", id_}, {"transport", TransportText({{exchange_transport()}, way_.reason})}});
  }
  return true;
}

v1::Transport Load::exchange_transport() const {
  switch (way_.kind) {
    case ExchangeWay::Kind::kGroup:
      return v1::TRANSPORT_NCCL;
    case ExchangeWay::Kind::kHost:
      return v1::TRANSPORT_GRPC;
    default:
      return v1::TRANSPORT_UNSPECIFIED;
  }
}

}  // namespace cairn
