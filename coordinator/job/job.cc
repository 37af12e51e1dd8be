#include "coordinator/job/job.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/open_files.h"
#include "common/rpc/short_orders.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/job/order_news.h"

namespace cairn {
namespace {

// The time at which agents were last heard is brought up to date for people so often.
constexpr absl::Duration kHeardInterval = absl::Seconds(1);
constexpr absl::Duration kForgetInterval = absl::Seconds(1);
// A job without agents is forgotten after this; what it saved is found again in storage.
constexpr absl::Duration kForgetAfter = absl::Minutes(10);
constexpr absl::Duration kForgetUnknownAfter = absl::Seconds(1);

absl::Status RootMismatch(const v1::RegisterAgentRequest& request, const JobContext& context) {
  const std::string rank = absl::StrCat(request.agent().rank());
  return MakeError(
      Reason::kRootMismatch,
      absl::StrCat(context.job, ": rank ", rank, " on ", request.node().empty() ? "an unnamed node" : request.node(),
                   request.root_proof().empty() ? " finds nothing below its root where"
                                                : " finds something else below its root than what",
                   " this coordinator has put into ", context.options.root, "/.cairn/root-proof"),
      {{"job", context.job},
       {"rank", rank},
       {"ranks", rank},
       {"node", request.node()},
       {"root", context.options.root}});
}

bool AllHaveLayouts(const Membership& members) {
  return members.complete() && members.with_layout() == static_cast<size_t>(members.world_size());
}

void WarnOfFewConnections(int world_size, JobContext& context) {
  const auto agents = static_cast<uint64_t>(world_size);
  if (context.options.open_files == 0 || PeersWithin(context.options.open_files) >= agents) return;
  const uint64_t wanted = LimitForPeers(agents);
  context.Log(
      LogLevel::kError, "open_files_too_few",
      {{"world_size", world_size},
       {"open_files", context.options.open_files},
       {"wanted", wanted},
       {"next", absl::StrCat("Not all agents can connect. Start the coordinator with a hard limit of open files "
                             "of ",
                             wanted, " at least: ulimit -n ", wanted, ", or LimitNOFILE=", wanted, " in systemd.")}});
}

}  // namespace

Job::Job(std::string name, const DecisionOptions& options, LayoutTable& layouts, absl::Time now)
    : name_(std::move(name)),
      options_(options),
      members_(name_, options.lease_ttl),
      groups_(options.coordinator_epoch, std::min(Groups::kBuildTimeout, options.phase_timeout / 2)),
      context_{name_, options_, members_, layouts, plans_, effects_, next_ticket_, now, now, now},
      settled_{now, now},
      last_used_(now) {
  context_.groups = &groups_;
}

void Job::SetMoment(const Moment& moment, JobContext& context) const {
  context.now = moment.now;
  context.wall = moment.wall;
  context.lines = &outcomes_.lines();
  context.known_steps = outcomes_.known_steps();
  context.last_committed = context.lines->latest();
  context.stalled_step = saves_.StalledStep();
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

bool Job::busy() const { return saves_.busy() || loads_.busy() || requests_.waiting(); }

bool Job::forgettable(absl::Time now) const {
  const bool idle =
      members_.empty() && !recovery_.under_way() && !busy() && leftovers_.empty() && step_changes_.empty();
  // A name that was only asked for is no job. It stays for as long as somebody may be asking.
  const absl::Duration after = known()                  ? kForgetAfter
                               : recovered()            ? kForgetUnknownAfter
                               : recovery_.error().ok() ? absl::ZeroDuration()
                                                        : options_.lease_ttl;
  return idle && now - last_used_ > after;
}

bool Job::attention() const { return attention_ || saves_.attention() || loads_.attention(); }

bool Job::restless() const {
  return attention() || !recovery_.done() || busy() || !leftovers_.empty() || !step_changes_.empty() ||
         outcomes_.restless() || requests_.agreeing() || !groups_.empty() || current_plan_.restless(members_) ||
         saves_.restless();
}

// These are the calls of agents.

absl::StatusOr<v1::RegisterAgentResponse> Job::Register(const v1::RegisterAgentRequest& request, const Moment& moment) {
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  if (!options_.root_proof.empty() && request.root_proof() != options_.root_proof) {
    return RootMismatch(request, context);
  }
  const int rank = static_cast<int>(request.agent().rank());
  const Member* before = members_.Find(rank);
  const bool restarted = before != nullptr && before->incarnation != request.agent().incarnation();
  const int world_size = members_.world_size();
  const auto changed = members_.Register(request, context.now);
  if (!changed.ok()) return changed.status();
  if (restarted) OnLost({rank}, "restarted", context);
  if (members_.world_size() != world_size) {
    attention_ = true;
    WarnOfFewConnections(members_.world_size(), context);
  }
  if (*changed) {
    ++context.revision;
    current_plan_.InputsChanged();
    OnMember(rank, context);
    context.Log(LogLevel::kInfo, "registered",
                {{"rank", request.agent().rank()},
                 {"incarnation", ShortId(request.agent().incarnation())},
                 {"node", request.node()},
                 {"agents", members_.size()},
                 {"world_size", members_.world_size()}});
  }
  recovery_.Begin(context);
  if (attention()) Advance(context);
  RefreshOrders(context);
  v1::RegisterAgentResponse response;
  response.set_coordinator_epoch(options_.coordinator_epoch);
  response.set_membership_epoch(members_.epoch());
  SetDuration(options_.lease_ttl, *response.mutable_lease_ttl());
  response.set_short_reports(true);
  return response;
}

absl::Status Job::Touch(const v1::AgentIdentity& agent, bool uploaded, const Moment& moment) {
  last_used_ = moment.now;
  const auto member = members_.Authenticate(agent, moment.now);
  if (!member.ok()) return member.status();
  if (uploaded) (*member)->uploaded = moment.now;
  return absl::OkStatus();
}

absl::Status Job::Synchronize(const v1::SynchronizeAgentRequest& request, const Moment& moment) {
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  const auto found = members_.Authenticate(request.agent(), context.now);
  if (!found.ok()) return found.status();
  Member& member = **found;
  const bool all_had_layouts = AllHaveLayouts(members_);
  absl::StatusOr<v1::AgentState> completed;
  if (request.base_sequence() != 0) {
    completed = members_.Complete(member, request);
    if (!completed.ok()) return completed.status();
  }
  const v1::AgentState& state = request.base_sequence() == 0 ? request.state() : *completed;
  const ReportChange change = members_.Report(member, state, request.sequence(), context.layouts, context.now);
  if (context.now >= next_revision_) {
    next_revision_ = context.now + kHeardInterval;
    ++context.revision;
  }
  // A member that asks for an outcome may have it read again.
  if (change.stale || (change.same && member.asked.empty())) return absl::OkStatus();
  ++context.revision;
  wanted_layouts_.Apply(member, context.layouts, orders_);
  if (groups_.Apply(member, context.now)) attention_ = context.orders_changed = true;
  if (recovery_.done()) {
    Apply(member, context);
    if (apply_all_) ApplyAll(context);
    Watch(member, change, context);
    // If all had one before, what follows waits for the next tick: all may be changing theirs, one after the other.
    attention_ = attention_ || (!all_had_layouts && AllHaveLayouts(members_));
  }
  if (attention()) Advance(context);
  RefreshOrders(context);
  return absl::OkStatus();
}

void Job::Watch(const Member& member, const ReportChange& change, JobContext& context) {
  if (change.trainer || change.first) OnMember(member.rank, context);
  if (change.layout || change.prepare || change.first) {
    current_plan_.OnReport(member, change.layout || change.first);
  }
  const bool answered = requests_.OnReport(member, context);
  attention_ = attention_ || answered || !member.asked.empty() || (change.first && members_.all_reported());
}

void Job::OnMember(int rank, JobContext& context) {
  saves_.OnMember(rank, context);
  loads_.OnMember(rank, context);
  attention_ = requests_.OnMember(rank, context) || !groups_.empty() || attention_;
}

absl::Status Job::Unregister(const v1::AgentIdentity& agent, const Moment& moment) {
  JobContext& context = Begin(moment);
  const auto member = members_.Authenticate(agent, context.now);
  if (!member.ok()) return member.status();
  const int rank = (*member)->rank;
  members_.Remove(rank);
  context.Log(LogLevel::kInfo, "unregistered", {{"rank", rank}});
  OnLost({rank}, "unregistered", context);
  if (attention()) Advance(context);
  RefreshOrders(context);
  return absl::OkStatus();
}

void Job::OnLost(const std::vector<int>& ranks, std::string_view cause, JobContext& context) {
  if (ranks.empty()) return;
  ++context.revision;
  for (int rank : ranks) {
    context.Log(LogLevel::kWarn, "lost", {{"rank", rank}, {"cause", cause}});
    wanted_layouts_.OnLost(rank, orders_);
    orders_.Wake(rank);  // its agent's held call has no member any more
  }
  current_plan_.InputsChanged();
  requests_.OnLost(ranks, context);
  attention_ = attention_ || requests_.agreeing() || current_plan_.told();
  for (int rank : ranks) OnMember(rank, context);
}

void Job::Apply(const Member& member, JobContext& context) {
  saves_.NoteTold(member, context);
  for (const v1::SaveState& state : member.state.saves()) {
    if (!CheckStep(state.step()).ok() || saves_.EndedOf(member, state) != nullptr) continue;
    Save* save = saves_.Active(state.step());
    if (save != nullptr && save_answers_.IsOfEarlierAttempt(state, *save)) continue;
    if (save == nullptr) save = BeginSave(member, state, context);
    if (save == nullptr || outcomes_.WasRefused(state.step(), CallerOf(member, state))) continue;
    save->Report(member, state, context);
  }
  for (const v1::SaveState& asked : member.asked) {
    saves_.Heard(member.rank, asked);
    outcomes_.ReadUnsettled(asked.step(), asked.attempt(), CallerOf(member, asked), context);
  }
  loads_.Apply(member, context);
}

Save* Job::BeginSave(const Member& member, const v1::SaveState& state, JobContext& context) {
  const int64_t step = state.step();
  if (Save* last = saves_.Last(step); last != nullptr) last->HoldOwed(member, state, context.now);
  if (state.attempt() > 0 && outcomes_.FindSettled(step, state.attempt()) != nullptr) return nullptr;
  if (saves_.EndedFor(member, state) != nullptr) return nullptr;
  // A checkpoint may be replaced that the trainers say they want replaced, or from before which they have gone on.
  const bool replaces =
      state.overwrite() || (outcomes_.Committed(step) && context.lines->LeavesBehind(ResumedFrom(state), step));
  if (!replaces && outcomes_.StillCommitted(step, CallerOf(member, state), context).value_or(true)) return nullptr;
  if (saves_.full()) return nullptr;
  Save& save = saves_.Begin(step, context);
  // Calls of this step that found no save when they were reported belong to this one.
  apply_all_ = members_.reporting(step) > 1;
  requests_.OnSaveBegun(save, context);
  return &save;
}

void Job::ApplyAll(JobContext& context) {
  apply_all_ = false;
  for (const auto& [rank, member] : members_.members()) {
    if (member.reported) Apply(member, context);
  }
}

// Steps.

void Job::Advance(JobContext& context) {
  attention_ = false;
  settled_ = {context.now, context.wall};
  if (groups_.Advance(members_, context.now)) context.orders_changed = true;
  if (recovery_.done()) {
    do {
      while (AdvanceOperations(context)) {
      }
      requests_.Advance(saves_, outcomes_, context);
    } while (saves_.attention());  // the timeout of a request that has come to a save may be over
    current_plan_.Advance(context);
    step_changes_.Advance(loads_, outcomes_, context);
    leftovers_.Advance(saves_, loads_, outcomes_, context);
    if (context.now >= next_forget_) Forget(context.now);
    // An outcome may have to be made of other things now.
    context.waking.insert(context.waking.end(), members_.asking().begin(), members_.asking().end());
  }
  RefreshOrders(context);
}

bool Job::AdvanceOperations(JobContext& context) {
  const std::optional<int64_t> earliest = saves_.EarliestUndecided();
  context.stalled_step = saves_.StalledStep();
  bool moved = saves_.Advance(context);
  KeepLeftovers(context);
  moved = loads_.Advance(context) || moved;
  if (moved) {
    ++context.revision;
    next_forget_ = absl::InfinitePast();
    // A call that came meanwhile begins the next attempt.
    ApplyAll(context);
  }
  // The end of one save may let another go on: a later step may commit, or it waits for what has stalled.
  return moved || earliest != saves_.EarliestUndecided() || context.stalled_step != saves_.StalledStep();
}

void Job::KeepLeftovers(const JobContext& context) {
  for (const Leftover& leftover : saves_.TakeLeftovers()) {
    leftovers_.Add(leftover, context.now + options_.storage_timeout);
  }
}

void Job::Forget(absl::Time now) {
  next_forget_ = now + kForgetInterval;
  saves_.Forget(members_);
  loads_.Forget(members_);
  outcomes_.Forget(now);
  requests_.Forget();
  step_changes_.Forget(now);
}

void Job::Tick(const Moment& moment, absl::Duration deaf) {
  JobContext& context = Begin(moment);
  if (!members_.empty()) recovery_.Begin(context);
  // Leases end here and nowhere else: an agent that is heard before that has kept its own.
  members_.set_deaf(deaf);
  const std::vector<int> expired = members_.Expire(context.now);
  context.effects.leases_ended += expired.size();
  OnLost(expired, "lease-ended", context);
  recovery_.Tick(context);
  if (restless()) Advance(context);
  RefreshOrders(context);
  settled_ = moment;
}

void Job::OnLayout(const std::string& digest, const Moment& moment) {
  if (!wanted_layouts_.OnLayout(digest, orders_)) return;
  JobContext& context = Begin(moment);
  if (wanted_layouts_.empty()) Advance(context);
  RefreshOrders(context);
}

// Orders.

void Job::RefreshOrders(JobContext& context) {
  const std::vector<int> waking = std::exchange(context.waking, {});
  const bool outdated = std::exchange(context.orders_outdated, false);
  if (std::exchange(context.orders_changed, false)) return orders_.WakeAll();
  if (outdated) orders_.ChangeAll();
  for (const int rank : waking) orders_.Wake(rank);
}

v1::SynchronizeAgentResponse Job::MakeOrders(const Member& member, const JobContext& context) const {
  v1::SynchronizeAgentResponse response;
  wanted_layouts_.AddTo(member.rank, response);
  if (const auto arm = requests_.OrderFor(member.rank); arm.has_value()) *response.mutable_arm() = *arm;
  for (const v1::SaveState& state : member.state.saves()) {
    *response.add_saves() = save_answers_.OrderFor(member, state, context);
  }
  for (const v1::SaveState& asked : member.asked)
    *response.add_saves() = save_answers_.OutcomeFor(member, asked, context);
  for (const v1::LoadState& state : member.state.loads()) {
    v1::LoadOrder& order = *response.add_loads();
    if (recovery_.done()) {
      order = loads_.OrderFor(member, state, context);
      continue;
    }
    order.set_number(state.number());
    order.set_trainer_incarnation(state.trainer_incarnation());
    order.set_action(v1::LoadOrder::WAIT);
    if (recovery_.stalled().ok()) continue;
    order.set_action(v1::LoadOrder::FAILED);
    *order.mutable_error() = StatusToProto(recovery_.stalled());
  }
  groups_.AddTo(member, response);
  if (!member.state.trainer().layout_digest().empty()) current_plan_.WriteTo(member, response);
  response.set_check_replicas(current_plan_.check_replicas());
  response.set_sample_replicas(options_.check_replicas != ReplicaCheck::kNever);
  return response;
}

v1::SynchronizeAgentResponse Job::OrdersFor(int rank, const Moment& moment, uint64_t known) {
  const Member* member = members_.Find(rank);
  if (member == nullptr) return {};
  JobContext& context = Begin(moment);
  v1::SynchronizeAgentResponse response = MakeOrders(*member, context);
  const bool same_plan = orders_.KnowsPlan(*member, known, response.current_plan_digest());
  const uint64_t revision = orders_.Keep(
      *member, {response.SerializeAsString(), response.current_plan_digest(), NewsIn(response, member->state)},
      context.revision);
  if (member->short_orders) ShortenOrders(name_, same_plan, response);
  // It only dates what the agent knows of others: nobody is woken for it.
  response.set_membership_epoch(members_.epoch());
  response.set_coordinator_epoch(options_.coordinator_epoch);
  response.set_revision(revision);
  if (!member->short_orders || known == 0) SetDuration(options_.lease_ttl, *response.mutable_lease_ttl());
  return response;
}

bool Job::KnowsOrders(int rank, uint64_t known) const {
  const Member* member = members_.Find(rank);
  return member != nullptr && orders_.Knows(*member, known);
}

std::string Job::MiscountedPart(const JobContext& context) const {
  if (std::string missed = members_.Inconsistency(); !missed.empty()) return missed;
  if (std::string missed = saves_.Inconsistency(); !missed.empty()) return missed;
  if (!loads_.IsConsistent()) return "the ranks of a load are not counted as they are";
  if (!requests_.IsConsistent(members_)) return "the answers of ranks that agree on a step are not counted as they are";
  if (!outcomes_.IsConsistent()) return "the lines of checkpoints are not those of the outcomes";
  if (!wanted_layouts_.IsConsistent(members_, context.layouts))
    return "the missing layouts are not those that are wanted";
  return "";
}

std::string Job::Inconsistency() {
  JobContext& context = Begin(settled_);
  if (std::string missed = MiscountedPart(context); !missed.empty()) return absl::StrCat(name_, ": ", missed);
  const auto seen = [&] {
    return std::tuple(context.effects.actions.size(), context.effects.log.size(), orders_.version());
  };
  const auto before = seen();
  if (recovery_.done()) ApplyAll(context);
  Advance(context);
  if (seen() != before) {
    return absl::StrCat(name_, ": a step was possible and not taken: ",
                        context.effects.log.size() > std::get<1>(before)       ? context.effects.log.back().Text()
                        : context.effects.actions.size() > std::get<0>(before) ? "an action follows"
                                                                               : "orders change");
  }
  for (const auto& [rank, member] : members_.members()) {
    const v1::SynchronizeAgentResponse orders = MakeOrders(member, context);
    const std::string* kept = orders_.Current(member);
    if (kept != nullptr && orders.SerializeAsString() != *kept) {
      return absl::StrCat(name_, ": the orders of rank ", rank, " have changed unseen: ", orders.ShortDebugString());
    }
    const std::vector<uint64_t>* told = orders_.NewsToldTo(member);
    const std::vector<uint64_t> news = NewsIn(orders, member.state);
    if (told != nullptr && !std::includes(told->begin(), told->end(), news.begin(), news.end())) {
      return absl::StrCat(name_, ": rank ", rank, " is not told what is new to it: ", orders.ShortDebugString());
    }
  }
  return "";
}

}  // namespace cairn
