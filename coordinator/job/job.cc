#include "coordinator/job/job.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

constexpr size_t kEndedKept = 16;
// So many saves may be under way at a time, because each costs memory for every rank. Further ones wait for one to end.
constexpr size_t kMaxActive = 32;
constexpr absl::Duration kRecoveryRetry = absl::Seconds(1);
// A caller that asks about a step again within this time gets the same answer.
constexpr absl::Duration kStepReadKept = absl::Minutes(1);
// When agents were last heard is shown to people so often.
constexpr absl::Duration kHeardInterval = absl::Seconds(1);
constexpr absl::Duration kForgetInterval = absl::Seconds(1);

}  // namespace

Job::Job(std::string name, const DecisionOptions& options, LayoutTable& layouts, Effects& effects, absl::Time now)
    : name_(std::move(name)),
      options_(options),
      members_(name_, options.lease_ttl),
      context_{name_, options_, members_, layouts, plans_, effects, now, now, now},
      last_used_(now) {}

void Job::SetMoment(const Moment& moment, JobContext& context) const {
  context.now = moment.now;
  context.wall = moment.wall;
  context.last_committed = last_committed_;
  context.earliest_step = EarliestUndecided();
  context.stalled_step = StalledStep();
}

JobContext& Job::Begin(const Moment& moment) {
  SetMoment(moment, context_);
  return context_;
}

JobContext Job::At(const Moment& moment) const {
  JobContext context = context_;
  SetMoment(moment, context);
  return context;
}

std::optional<int64_t> Job::StalledStep() const {
  std::optional<int64_t> earliest;
  for (const Save& save : saves_) {
    if (!save.stalled().ok() && (!earliest.has_value() || save.step() < *earliest)) earliest = save.step();
  }
  return earliest;
}

bool Job::busy() const {
  return std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return !save.ended(); }) || loads_.busy() ||
         std::any_of(requests_.begin(), requests_.end(),
                     [](const SaveRequest& request) { return request.state == SaveRequest::State::kWaiting; });
}

bool Job::idle() const { return members_.empty() && !recovering_ && !busy() && sweeps_.empty(); }

Save* Job::ActiveSave(int64_t step) {
  for (Save& save : saves_) {
    if (save.step() == step && !save.ended()) return &save;
  }
  return nullptr;
}

const Save* Job::FindSave(int64_t step, bool active) const {
  const Save* found = nullptr;
  for (const Save& save : saves_) {
    if (save.step() == step && save.ended() != active) found = &save;
  }
  return found;
}

Save* Job::LastSave(int64_t step) {
  const auto found =
      std::find_if(saves_.rbegin(), saves_.rend(), [&](const Save& save) { return save.step() == step; });
  return found == saves_.rend() ? nullptr : &*found;
}

const Save* Job::EndedSaveOf(const Member& member, const v1::SaveState& state) const {
  const Save* found = nullptr;
  for (const Save& save : saves_) {
    if (save.step() == state.step() && save.ended() && save.TookPart(member, state)) found = &save;
  }
  return found;
}

const Save* Job::EndedSaveFor(const Member& member, const v1::SaveState& state) const {
  const Save* found = nullptr;
  for (const Save& save : saves_) {
    if (save.step() == state.step() && save.ended() && save.Answers(member, state)) found = &save;
  }
  return found;
}

bool Job::Committed(int64_t step) const {
  for (auto it = verdicts_.lower_bound({step, 0}); it != verdicts_.end() && it->first.first == step; ++it) {
    if (it->second.committed) return true;
  }
  return false;
}

void Job::Keep(const VerdictSummary& verdict) {
  verdicts_[{verdict.step, verdict.attempt}] = verdict;
  if (verdict.committed) last_committed_ = std::max(last_committed_.value_or(verdict.step), verdict.step);
}

std::optional<int64_t> Job::EarliestUndecided() const {
  std::optional<int64_t> earliest;
  for (const Save& save : saves_) {
    if (save.ended() || save.phase() == Save::Phase::kAborting) continue;
    if (!earliest.has_value() || save.step() < *earliest) earliest = save.step();
  }
  return earliest;
}

absl::Status Job::StepCommitted(int64_t step) const {
  return MakeError(Reason::kStepCommitted, absl::StrCat(name_, "@", step, " is committed already"),
                   {{"job", name_}, {"step", absl::StrCat(step)}});
}

absl::Status Job::RootMismatch(const v1::RegisterAgentRequest& request) const {
  const uint32_t rank = request.agent().rank();
  return MakeError(
      Reason::kRootMismatch,
      absl::StrCat(name_, ": rank ", rank, " on ", request.node().empty() ? "an unnamed node" : request.node(),
                   request.root_proof().empty() ? " finds nothing below its root where"
                                                : " finds something else below its root than what",
                   " this coordinator has put into ", options_.root, "/.cairn/root-proof"),
      {{"job", name_},
       {"rank", absl::StrCat(rank)},
       {"ranks", absl::StrCat(rank)},
       {"node", request.node()},
       {"root", options_.root}});
}

// Agents.

absl::StatusOr<v1::RegisterAgentResponse> Job::Register(const v1::RegisterAgentRequest& request, const Moment& moment) {
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  if (!options_.root_proof.empty() && request.root_proof() != options_.root_proof) return RootMismatch(request);
  const int rank = static_cast<int>(request.agent().rank());
  const Member* before = members_.Find(rank);
  const bool restarted = before != nullptr && before->incarnation != request.agent().incarnation();
  const int world_size = members_.world_size();
  const auto changed = members_.Register(request, context.now);
  if (!changed.ok()) return changed.status();
  if (restarted) OnLost({rank}, context);
  if (members_.world_size() != world_size) attention_ = true;
  if (*changed) {
    ++revision_;
    current_plan_.InputsChanged();
    OnMember(rank, context);
    context.Log("rank=", request.agent().rank(), " incarnation=", ShortId(request.agent().incarnation()),
                " node=", request.node(), " event=registered agents=", members_.size(), "/", members_.world_size());
  }
  EnsureRecovered(moment);
  if (attention_) Advance(context);
  RefreshOrders(context);
  v1::RegisterAgentResponse response;
  response.set_coordinator_epoch(options_.coordinator_epoch);
  response.set_membership_epoch(members_.epoch());
  SetDuration(options_.lease_ttl, *response.mutable_lease_ttl());
  return response;
}

absl::Status Job::Touch(const v1::AgentIdentity& agent, bool uploaded, const Moment& moment) {
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  const auto member = members_.Authenticate(agent, context.now);
  if (!member.ok()) return member.status();
  if (uploaded) (*member)->uploaded = context.now;
  return absl::OkStatus();
}

absl::Status Job::Synchronize(const v1::SynchronizeAgentRequest& request, const Moment& moment) {
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  const auto found = members_.Authenticate(request.agent(), context.now);
  if (!found.ok()) return found.status();
  Member& member = **found;
  const bool all_had_layouts = AllHaveLayouts();
  const ReportChange change =
      members_.Report(member, request.state(), request.sequence(), context.layouts, context.now);
  if (context.now >= next_revision_) {
    next_revision_ = context.now + kHeardInterval;
    ++revision_;
  }
  // Who asks for a verdict may have it read again.
  if (change.stale || (change.same && member.asked.empty())) return absl::OkStatus();
  ++revision_;
  wanted_layouts_.Apply(member, context.layouts, orders_);
  if (recovered_) {
    Apply(member, context);
    if (apply_all_) ApplyAll(context);
    // If all had one before, what follows waits for the next tick: all may be changing theirs, one after the other.
    attention_ = Watch(member, change, context) || attention_ || (!all_had_layouts && AllHaveLayouts());
  }
  if (attention_) Advance(context);
  RefreshOrders(context);
  return absl::OkStatus();
}

bool Job::AllHaveLayouts() const {
  return members_.complete() && members_.with_layout() == static_cast<size_t>(members_.world_size());
}

bool Job::Watch(const Member& member, const ReportChange& change, JobContext& context) {
  if (change.trainer || change.first) OnMember(member.rank, context);
  if (change.layout || change.first) current_plan_.InputsChanged();
  const bool answered = agreement_.Report(member, context);
  return answered || !member.asked.empty() || (change.first && members_.all_reported()) || loads_.attention() ||
         std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return !save.ended() && save.attention(); });
}

void Job::OnMember(int rank, JobContext& context) {
  for (Save& save : saves_) {
    if (save.ended()) continue;
    save.OnMember(rank, context);
    attention_ = attention_ || save.attention();
  }
  loads_.OnMember(rank, context);
  attention_ = attention_ || loads_.attention();
  const Member* member = members_.Find(rank);
  for (SaveRequest& request : requests_) {
    if (request.state != SaveRequest::State::kWaiting || attention_) continue;
    attention_ = member == nullptr || HasLostTrainer(request, *member);
  }
}

absl::Status Job::Unregister(const v1::AgentIdentity& agent, const Moment& moment) {
  JobContext& context = Begin(moment);
  const auto member = members_.Authenticate(agent, context.now);
  if (!member.ok()) return member.status();
  const int rank = (*member)->rank;
  members_.Remove(rank);
  context.Log("rank=", rank, " event=unregistered");
  OnLost({rank}, context);
  if (attention_) Advance(context);
  RefreshOrders(context);
  return absl::OkStatus();
}

void Job::OnLost(const std::vector<int>& ranks, JobContext& context) {
  if (ranks.empty()) return;
  ++revision_;
  std::vector<NamedRank> named_ranks;
  for (int rank : ranks) {
    context.Log("rank=", rank, " event=lost");
    named_ranks.push_back({rank, v1::RankProgress::ARMING, "its agent is gone"});
    wanted_layouts_.OnLost(rank, orders_);
    agreement_.OnLost(rank);
    orders_.Wake(rank);  // its agent's held call has no member any more
  }
  current_plan_.InputsChanged();
  attention_ = attention_ || agreement_.state() != StepAgreement::State::kIdle || !current_plan_.digest().empty();
  for (SaveRequest& request : requests_) {
    if (request.state != SaveRequest::State::kWaiting) continue;
    EndRequest(request, ErrorNaming(Reason::kRankLost, context, {"save", request.step}, "lost", named_ranks), context);
  }
  for (int rank : ranks) OnMember(rank, context);
}

Save& Job::NewSave(int64_t step, JobContext& context) {
  Save save(step, ++revision_, context.now, context.wall);
  for (Save& previous : saves_) {
    if (previous.step() == step) previous.OweNothing();
  }
  saves_.push_back(std::move(save));
  attention_ = context.orders_changed = true;
  ++saves_begun_;
  context.Log("step=", step, " state=COLLECTING");
  return saves_.back();
}

void Job::Apply(const Member& member, JobContext& context) {
  for (Save& save : saves_) {
    if (save.ended()) save.NoteTold(member, context);
  }
  for (const v1::SaveState& state : member.state.saves()) {
    if (!CheckStep(state.step()).ok() || EndedSaveOf(member, state) != nullptr) continue;
    Save* save = ActiveSave(state.step());
    if (save == nullptr) {
      const bool settled = state.attempt() > 0 && SettledVerdict(state) != nullptr;
      if (Save* last = LastSave(state.step()); last != nullptr) last->HoldOwed(member, state, context.now);
      if (settled || EndedSaveFor(member, state) != nullptr) continue;
      if (StillCommitted(state.step(), CallerOf(member, state), context).value_or(true)) continue;
      const auto active = std::count_if(saves_.begin(), saves_.end(), [](const Save& each) { return !each.ended(); });
      if (static_cast<size_t>(active) >= kMaxActive) continue;
      save = &NewSave(state.step(), context);
      // Calls of this step that found no save when they were reported belong to this one.
      apply_all_ = members_.reporting(state.step()) > 1;
      for (SaveRequest& request : requests_) {
        // A request that ended after the ranks had agreed takes its save with it.
        if (request.state == SaveRequest::State::kEnded && request.agreed && request.step == state.step()) {
          save->Abort(request.error, context);
          request.agreed = false;
        }
      }
    }
    if (WasRefused(state.step(), CallerOf(member, state))) continue;
    save->Report(member, state, context);
    attention_ = attention_ || save->attention();
  }
  for (const v1::SaveState& asked : member.asked) ApplyAsked(member, asked, context);
  loads_.Apply(member, context);
}

void Job::ApplyAll(JobContext& context) {
  apply_all_ = false;
  for (const auto& [rank, member] : members_.members()) {
    if (member.reported) Apply(member, context);
  }
}

void Job::Advance(JobContext& context) {
  attention_ = false;
  if (recovered_) {
    while (AdvanceOperations(context)) {
    }
    if (!agreement_recovered_ && members_.all_reported()) {
      agreement_recovered_ = true;
      agreement_.Recover(context);
    }
    // One step of the agreement may make the next one possible.
    for (bool moved = true; moved;) {
      const StepAgreement::State before = agreement_.state();
      AdvanceRequests(context);
      moved = agreement_.state() != before;
    }
    current_plan_.Advance(context);
    AdvanceSweeps(context);
    if (context.now >= next_forget_) Forget(context.now);
    // What a verdict is made of may have changed.
    if (!members_.asking().empty()) context.orders_changed = true;
  }
  RefreshOrders(context);
}

bool Job::AdvanceOperations(JobContext& context) {
  context.earliest_step = EarliestUndecided();
  context.stalled_step = StalledStep();
  bool moved = false;
  for (Save& save : saves_) {
    if (save.ended()) {
      save.AnswerOwed(context);
      continue;
    }
    const Save::Phase before = save.phase();
    do {
      save.Advance(context);
    } while (save.attention() && !save.ended());  // one step makes the next one possible
    moved = moved || save.phase() != before;
    SweepLater(save, context);
  }
  moved = loads_.Advance(context) || moved;
  if (moved) {
    ++revision_;
    next_forget_ = absl::InfinitePast();
    // A call that came meanwhile begins the next attempt.
    ApplyAll(context);
  }
  // The end of one save may let another go on: a later step may commit, or it waits for what has stalled.
  return moved || context.earliest_step != EarliestUndecided() || context.stalled_step != StalledStep();
}

bool Job::restless() const {
  return attention_ || !recovered_ || busy() || !sweeps_.empty() || !step_reads_.empty() ||
         agreement_.state() != StepAgreement::State::kIdle || current_plan_.restless(members_) ||
         saves_.size() > kEndedKept ||
         std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return save.holds_calls(); });
}

void Job::SweepLater(Save& save, const JobContext& context) {
  const auto leftover = save.TakeLeftover();
  if (leftover.has_value()) sweeps_.push_back({*leftover, 0, context.now + options_.storage_timeout});
}

void Job::AdvanceSweeps(JobContext& context) {
  if (context.now - context.started < 2 * options_.lease_ttl) return;
  for (Sweep& sweep : sweeps_) {
    if (sweep.ticket != 0 || sweep.done || context.now < sweep.next_try) continue;
    const auto& [step, attempt, tombstone] = sweep.leftover;
    // Meanwhile a save, or the number of a new attempt, may have taken this one up.
    const auto verdict = verdicts_.find({step, attempt});
    if (verdict != verdicts_.end() && verdict->second.committed) sweep.done = true;
    if (const Save* save = FindSave(step, /*active=*/true); save != nullptr && save->attempt() == attempt) continue;
    for (const auto& [rank, member] : members_.members()) {
      for (const auto& state : member.state.saves()) {
        if (state.step() == step && state.attempt() == attempt) sweep.next_try = context.now + options_.lease_ttl;
      }
    }
    if (sweep.done || context.now < sweep.next_try) continue;
    sweep.ticket = context.NewTicket();
    context.Log("step=", step, " attempt=", attempt, " event=sweeping");
    if (tombstone) {
      context.Do(RemoveFiles{step, attempt, sweep.ticket});
    } else {
      const absl::Status error = OperationError(Reason::kCoordinatorRestarted, context, {"save", step, attempt},
                                                "left unfinished, and no rank came back with it");
      context.Do(PutVerdict{step, attempt, 0, nullptr, nullptr, error, "", sweep.ticket});
    }
  }
  sweeps_.remove_if([](const Sweep& sweep) { return sweep.done; });
}

// Orders.

void Job::OnLayout(const std::string& digest, const Moment& moment) {
  if (!wanted_layouts_.OnLayout(digest, orders_)) return;
  JobContext& context = Begin(moment);
  if (wanted_layouts_.empty()) Advance(context);
  RefreshOrders(context);
}

void Job::RefreshOrders(JobContext& context) {
  if (std::exchange(context.orders_changed, false)) orders_.WakeAll();
}

v1::SaveOrder Job::SaveOrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const {
  if (const Save* save = EndedSaveOf(member, state); save != nullptr) return save->OrderFor(member, state, context);
  if (WasRefused(state.step(), CallerOf(member, state))) {
    v1::SaveOrder order;
    order.set_step(state.step());
    order.set_call(state.call());
    order.set_action(v1::SaveOrder::ABORTED);
    *order.mutable_error() = StatusToProto(StepCommitted(state.step()));
    return order;
  }
  if (const Save* save = FindSave(state.step(), /*active=*/true); save != nullptr) {
    return save->OrderFor(member, state, context);
  }
  if (const Save* save = EndedSaveFor(member, state); save != nullptr) return save->OrderFor(member, state, context);
  v1::SaveOrder order;
  order.set_step(state.step());
  order.set_call(state.call());
  order.set_attempt(state.attempt());
  order.set_attempt_nonce(state.attempt_nonce());
  if (!recovered_ || !CheckStep(state.step()).ok()) {
    order.set_action(v1::SaveOrder::WAIT);
    if (!recovery_stalled_.ok()) *order.mutable_stalled() = StatusToProto(recovery_stalled_);
    return order;
  }
  if (const VerdictSummary* found = SettledVerdict(state); found != nullptr) {
    const VerdictSummary& verdict = *found;
    const bool stopped = state.phase() == v1::SaveState::STOPPED || state.phase() == v1::SaveState::FAILED;
    if (verdict.committed) {
      order.set_action(v1::SaveOrder::COMMITTED);
      order.set_bytes(verdict.bytes);
      order.set_world_size(verdict.world_size);
      SetTimestamp(verdict.commit_time, *order.mutable_commit_time());
    } else {
      order.set_action(stopped ? v1::SaveOrder::ABORTED : v1::SaveOrder::ABORT);
      *order.mutable_error() = StatusToProto(verdict.error);
    }
    return order;
  }
  order.set_action(v1::SaveOrder::WAIT);
  const auto read = step_reads_.find(state.step());
  if (read == step_reads_.end()) return order;
  if (read->second.ticket != 0 && context.now - read->second.begun >= options_.storage_timeout) {
    *order.mutable_stalled() =
        StatusToProto(OperationError(Reason::kStorageStalled, context, {"save", state.step()},
                                     absl::StrCat("storage has not said for ", Seconds(options_.storage_timeout),
                                                  " whether the step is still committed")));
  }
  return order;
}

const VerdictSummary* Job::SettledVerdict(const v1::SaveState& state) const {
  const auto found = verdicts_.find({state.step(), state.attempt()});
  if (found == verdicts_.end()) return nullptr;
  const VerdictSummary& verdict = found->second;
  // A verdict that could not be read once may stand all the same. The attempt goes on, and its own put will find that
  // verdict.
  const bool unread = verdict.damaged && !HasReason(verdict.error, Reason::kManifestCorrupt) &&
                      !HasReason(verdict.error, Reason::kFormatTooNew);
  return unread ? nullptr : &verdict;
}

std::string Job::CallerOf(const Member& member, const v1::SaveState& state) {
  return absl::StrCat("rank ", member.rank, " ", member.incarnation, " ", state.call());
}

bool Job::WasRefused(int64_t step, const std::string& caller) const {
  const auto read = step_reads_.find(step);
  return read != step_reads_.end() && read->second.answered.contains(caller);
}

std::optional<bool> Job::StillCommitted(int64_t step, const std::string& caller, JobContext& context) {
  // A caller that was refused has heard so, though the step may have gone since.
  if (WasRefused(step, caller)) return true;
  if (!Committed(step)) return false;
  StepRead& read = step_reads_[step];
  if (!read.asking.contains(caller)) read.waiting.insert(caller);
  ReadAgain(step, read, context);
  return std::nullopt;
}

void Job::ReadAgain(int64_t step, StepRead& read, JobContext& context) {
  if (read.ticket != 0 || read.waiting.empty()) return;
  read.ticket = context.NewTicket();
  read.begun = context.now;
  read.asking = std::exchange(read.waiting, {});
  context.Do(ReadStep{step, read.ticket});
}

absl::Status Job::RecoveryStalled(absl::Time now) const {
  if (recovered_ || now - recovery_begun_ < options_.storage_timeout) return absl::OkStatus();
  return MakeError(Reason::kStorageStalled,
                   absl::StrCat(name_, ": storage has not said for ", Seconds(options_.storage_timeout),
                                " what the job has saved", recovery_error_.ok() ? "" : ": ", recovery_error_.message()),
                   {{"job", name_}});
}

v1::SynchronizeAgentResponse Job::MakeOrders(const Member& member, const JobContext& context) const {
  v1::SynchronizeAgentResponse response;
  wanted_layouts_.AddTo(member.rank, response);
  if (const auto arm = agreement_.OrderFor(member.rank); arm.has_value()) *response.mutable_arm() = *arm;
  for (const v1::SaveState& state : member.state.saves()) {
    *response.add_saves() = SaveOrderFor(member, state, context);
  }
  for (const v1::SaveState& asked : member.asked) *response.add_saves() = VerdictFor(asked, context);
  for (const v1::LoadState& state : member.state.loads()) {
    v1::LoadOrder& order = *response.add_loads();
    if (recovered_) {
      order = loads_.OrderFor(member, state, context);
      continue;
    }
    order.set_number(state.number());
    order.set_trainer_incarnation(state.trainer_incarnation());
    order.set_action(v1::LoadOrder::WAIT);
    if (recovery_stalled_.ok()) continue;
    order.set_action(v1::LoadOrder::FAILED);
    *order.mutable_error() = StatusToProto(recovery_stalled_);
  }
  if (!member.state.trainer().layout_digest().empty()) current_plan_.WriteTo(response);
  response.set_check_replicas(current_plan_.check_replicas());
  response.set_sample_replicas(options_.check_replicas != ReplicaCheck::kNever);
  return response;
}

v1::SynchronizeAgentResponse Job::OrdersFor(int rank, const Moment& moment) {
  const Member* member = members_.Find(rank);
  if (member == nullptr) return {};
  v1::SynchronizeAgentResponse response = MakeOrders(*member, Begin(moment));
  const uint64_t revision = orders_.Keep(*member, response.SerializeAsString(), revision_);
  // It only dates what the agent knows of others: nobody is woken for it.
  response.set_membership_epoch(members_.epoch());
  response.set_coordinator_epoch(options_.coordinator_epoch);
  response.set_revision(revision);
  SetDuration(options_.lease_ttl, *response.mutable_lease_ttl());
  return response;
}

bool Job::KnowsOrders(int rank, uint64_t known) const {
  const Member* member = members_.Find(rank);
  return member != nullptr && orders_.Knows(*member, known);
}

std::string Job::Inconsistency(const Moment& moment) {
  JobContext& context = Begin(moment);
  const auto seen = [&] {
    return std::tuple(context.effects.actions.size(), context.effects.log.size(), orders_.version());
  };
  const auto before = seen();
  if (recovered_) ApplyAll(context);
  Advance(context);
  if (seen() != before) {
    return absl::StrCat(name_, ": a step was possible and not taken: ",
                        context.effects.log.size() > std::get<1>(before)       ? context.effects.log.back()
                        : context.effects.actions.size() > std::get<0>(before) ? "an action follows"
                                                                               : "orders change");
  }
  for (const auto& [rank, member] : members_.members()) {
    const std::string* told = orders_.Current(member);
    if (told == nullptr || MakeOrders(member, context).SerializeAsString() == *told) continue;
    return absl::StrCat(name_, ": the orders of rank ", rank,
                        " have changed, and nobody was told: ", MakeOrders(member, context).ShortDebugString());
  }
  return wanted_layouts_.IsConsistent(members_, context.layouts)
             ? ""
             : absl::StrCat(name_, ": the missing layouts are not those that are wanted");
}

// Results.

void Job::EnsureRecovered(const Moment& moment) {
  if (recovered_ || recovering_ || moment.now < next_recovery_) return;
  recovering_ = true;
  recovery_begun_ = std::min(recovery_begun_, moment.now);
  context_.Do(RecoverJob{});
}

void Job::OnRecovered(const absl::StatusOr<Recovered>& recovered, const Moment& moment) {
  recovering_ = false;
  ++revision_;
  if (!recovered.ok()) {
    recovery_error_ = recovered.status();
    next_recovery_ = moment.now + kRecoveryRetry;
    Begin(moment).Log("event=recovery-failed error=\"", recovered.status().message(), "\"");
    return;
  }
  recovered_ = context_.orders_changed = true;
  recovery_error_ = absl::OkStatus();
  for (const VerdictSummary& verdict : recovered->verdict) Keep(verdict);
  JobContext& context = Begin(moment);
  for (const Leftover& leftover : recovered->leftover) sweeps_.push_back({leftover});
  context.Log("event=recovered verdicts=", recovered->verdict.size(), " unfinished=", recovered->leftover.size());
  ApplyAll(context);
  Advance(context);
}

void Job::OnStepRead(int64_t step, uint64_t ticket, const absl::StatusOr<Recovered>& recovered, const Moment& moment) {
  const auto found = step_reads_.find(step);
  if (found == step_reads_.end() || found->second.ticket != ticket) return;
  ++revision_;
  context_.orders_changed = true;
  if (recovered.ok()) {
    verdicts_.erase(verdicts_.lower_bound({step, 0}), verdicts_.lower_bound({step + 1, 0}));
    last_committed_.reset();
    for (const auto& [key, verdict] : verdicts_) {
      if (verdict.committed) last_committed_ = key.first;
    }
    for (const VerdictSummary& verdict : recovered->verdict) Keep(verdict);
  }
  JobContext& context = Begin(moment);
  StepRead& read = found->second;
  read.ticket = 0;
  if (Committed(step)) {
    read.answered.merge(read.asking);
    read.answered_time = context.now;
    read.asking.clear();
    ReadAgain(step, read, context);
  } else {
    context.Log("step=", step, " event=gone");
    read.asking.clear();
    read.waiting.clear();
    ApplyAll(context);
  }
  Advance(context);
}

void Job::OnSavePlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan, const Moment& moment) {
  JobContext& context = Begin(moment);
  plans_.OnPlanned(key, plan);
  current_plan_.OnPlanned();
  ++revision_;
  Advance(context);
}

void Job::OnReserved(int64_t step, uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++revision_;
  Save* save = ActiveSave(step);
  const bool taken = save != nullptr && save->OnReserved(ticket, reserved, context);
  // The number comes too late. The directory that was made gets a tombstone and is removed, as that of an attempt that
  // nobody finished.
  if (!taken && reserved.ok()) sweeps_.push_back({{step, reserved->attempt}});
  Advance(context);
}

void Job::OnManifest(int64_t step, uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++revision_;
  if (Save* save = ActiveSave(step); save != nullptr) save->OnManifest(ticket, made, context);
  current_plan_.InputsChanged();  // its replicas may have been compared
  Advance(context);
}

void Job::OnVerdict(int64_t step, uint64_t ticket, const PutOutcome& outcome, const Moment& moment) {
  const absl::StatusOr<VerdictSummary>& standing = outcome.standing;
  if (standing.ok()) Keep(*standing);
  JobContext& context = Begin(moment);
  ++revision_;
  if (Save* save = ActiveSave(step); save != nullptr) {
    save->OnVerdict(ticket, outcome, context);
    if (save->ended()) ApplyAll(context);
  }
  for (Sweep& sweep : sweeps_) {
    if (sweep.ticket != ticket) continue;
    sweep.ticket = 0;
    sweep.leftover.tombstone = standing.ok() && !standing->committed;
    sweep.done = standing.ok() && standing->damaged;  // its files stay for whoever may rescue them
    if (!standing.ok()) sweep.next_try = context.now + options_.lease_ttl;
  }
  Advance(context);
}

void Job::OnRemoved(int64_t step, uint64_t ticket, const absl::Status& status, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++revision_;
  if (Save* save = ActiveSave(step); save != nullptr) {
    save->OnRemoved(ticket, status, context);
    SweepLater(*save, context);
    if (save->ended()) ApplyAll(context);
  }
  for (Sweep& sweep : sweeps_) {
    if (sweep.ticket == ticket) sweep.done = true;
  }
  Advance(context);
}

void Job::OnLoadPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++revision_;
  loads_.OnPlanned(id, ticket, plan, context);
  Advance(context);
}

void Job::Tick(const Moment& moment, absl::Duration deaf) {
  if (!recovered_ && !members_.empty()) EnsureRecovered(moment);
  JobContext& context = Begin(moment);
  // Leases end here and nowhere else: an agent that is heard before that has kept its own.
  members_.set_deaf(deaf);
  OnLost(members_.Expire(context.now), context);
  if (absl::Status stalled = RecoveryStalled(context.now); stalled != recovery_stalled_) {
    recovery_stalled_ = std::move(stalled);
    context.orders_changed = true;
  }
  if (restless()) Advance(context);
  RefreshOrders(context);
}

void Job::Forget(absl::Time now) {
  next_forget_ = now + kForgetInterval;
  const auto held = [&](const Save& save) { return members_.reporting(save.step()) > 0; };
  for (auto save = saves_.begin(); saves_.size() > kEndedKept && save != saves_.end();) {
    save = save->ended() && !held(*save) ? saves_.erase(save) : std::next(save);
  }
  loads_.Forget(members_);
  std::erase_if(step_reads_, [&](const auto& entry) {
    const StepRead& read = entry.second;
    return read.ticket == 0 && read.waiting.empty() && now - read.answered_time > kStepReadKept;
  });
  for (auto request = requests_.begin(); requests_.size() > 4 * kEndedKept && request != requests_.end();) {
    request = request->state == SaveRequest::State::kWaiting ? std::next(request) : requests_.erase(request);
  }
}

}  // namespace cairn
