#include "coordinator/job/job.h"

#include <algorithm>
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
constexpr absl::Duration kReviewInterval = absl::Seconds(10);
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

void WarnOfFewConnections(int world_size, const JobContext& context) {
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
      base_{name_, options_, members_, layouts, plans_, effects_, next_ticket_, now, &groups_},
      last_used_(now) {}

JobContext Job::At(const Moment& moment) const {
  JobContext context = base_;
  context.now = moment.now;
  context.wall = moment.wall;
  context.revision = revision_;
  context.lineage = &outcomes_.lineage();
  context.known_steps = outcomes_.known_steps();
  context.last_committed = context.lineage->latest();
  context.stalled_step = saves_.StalledStep();
  return context;
}

JobContext Job::Begin(const Moment& moment) const {
  JobContext context = At(moment);
  ++context.revision;
  return context;
}

void Job::Finish(News news, const JobContext& context) {
  if (news.step) news += Advance(context);
  Tell(news, context);
}

void Job::Tell(const News& news, const JobContext& context) {
  revision_ = context.revision;
  orders_.Take(news);
  woken_.all = woken_.all || news.orders == News::Orders::kUrgent;
  woken_.ranks.insert(woken_.ranks.end(), news.ranks.begin(), news.ranks.end());
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

// These are the calls of agents.

absl::StatusOr<v1::RegisterAgentResponse> Job::Register(const v1::RegisterAgentRequest& request, const Moment& moment) {
  const JobContext context = Begin(moment);
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
  News news;
  if (restarted) news += OnLost({rank}, "restarted", context);
  if (members_.world_size() != world_size) {
    news.step = true;
    WarnOfFewConnections(members_.world_size(), context);
  }
  if (*changed) {
    current_plan_.InputsChanged();
    news += OnMember(rank, context);
    context.Log(LogLevel::kInfo, "registered",
                {{"rank", request.agent().rank()},
                 {"incarnation", ShortId(request.agent().incarnation())},
                 {"node", request.node()},
                 {"agents", members_.size()},
                 {"world_size", members_.world_size()}});
  }
  recovery_.Begin(context);
  Finish(std::move(news), context);
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
  if (uploaded) members_.Uploaded(**member, moment.now);
  return absl::OkStatus();
}

absl::Status Job::Synchronize(const v1::SynchronizeAgentRequest& request, const Moment& moment) {
  last_used_ = moment.now;
  const auto found = members_.Authenticate(request.agent(), moment.now);
  if (!found.ok()) return found.status();
  const Member& member = **found;
  const bool all_had_layouts = AllHaveLayouts(members_);
  absl::StatusOr<v1::AgentState> completed;
  if (request.base_sequence() != 0) {
    completed = members_.Complete(member, request);
    if (!completed.ok()) return completed.status();
  }
  const v1::AgentState& state = request.base_sequence() == 0 ? request.state() : *completed;
  const ReportChange change = members_.Report(member, state, request.sequence(), base_.layouts, moment.now);
  if (moment.now >= next_heard_) {
    next_heard_ = moment.now + kHeardInterval;
    ++revision_;
  }
  // A member that asks for an outcome may have it read again.
  if (change.stale || (change.same && member.asked.empty())) return absl::OkStatus();
  const JobContext context = Begin(moment);
  News news = wanted_layouts_.Apply(member, context.layouts);
  news += groups_.Apply(member, context.now);
  if (recovery_.done()) {
    const uint64_t begun = saves_.begun();
    news += Apply(member, context);
    // Calls that found no save when they were reported may belong to one that has begun now.
    if (saves_.begun() != begun) news += ApplyAll(context);
    news += Watch(member, change, context);
    // If all had one before, what follows waits for the next tick: all may be changing theirs, one after the other.
    news += News::Step(!all_had_layouts && AllHaveLayouts(members_));
  }
  Finish(std::move(news), context);
  return absl::OkStatus();
}

News Job::Watch(const Member& member, const ReportChange& change, const JobContext& context) {
  News news;
  if (change.trainer || change.first) news += OnMember(member.rank, context);
  if (change.layout || change.prepare || change.first) {
    current_plan_.OnReport(member, change.layout || change.first);
  }
  news += requests_.OnReport(member, context);
  return news += News::Step(!member.asked.empty() || (change.first && members_.all_reported()));
}

News Job::OnMember(int rank, const JobContext& context) {
  News news = saves_.OnMember(rank, context);
  news += loads_.OnMember(rank, context);
  news += requests_.OnMember(rank, context);
  return news += News::Step(!groups_.empty());
}

absl::Status Job::Unregister(const v1::AgentIdentity& agent, const Moment& moment) {
  const JobContext context = Begin(moment);
  const auto member = members_.Authenticate(agent, context.now);
  if (!member.ok()) return member.status();
  const int rank = (*member)->rank;
  members_.Remove(rank);
  context.Log(LogLevel::kInfo, "unregistered", {{"rank", rank}});
  Finish(OnLost({rank}, "unregistered", context), context);
  return absl::OkStatus();
}

News Job::OnLost(const std::vector<int>& ranks, std::string_view cause, const JobContext& context) {
  News news;
  if (ranks.empty()) return news;
  for (int rank : ranks) {
    context.Log(LogLevel::kWarn, "lost", {{"rank", rank}, {"cause", cause}});
    news += wanted_layouts_.OnLost(rank);
    news.ranks.push_back(rank);  // its agent's held call has no member any more
  }
  current_plan_.InputsChanged();
  requests_.OnLost(ranks, context);
  for (int rank : ranks) news += OnMember(rank, context);
  return news += News::Step(requests_.agreeing() || current_plan_.told());
}

News Job::Apply(const Member& member, const JobContext& context) {
  News news;
  saves_.NoteTold(member, context.now);
  for (const v1::SaveState& state : member.state.saves()) {
    if (!CheckStep(state.step()).ok() || saves_.EndedOf(member, state) != nullptr) continue;
    Save* save = saves_.Active(state.step());
    if (save != nullptr && save_answers_.IsOfEarlierAttempt(state, *save)) continue;
    if (save == nullptr) save = BeginSave(member, state, context, news);
    if (save == nullptr || outcomes_.WasRefused(state.step(), CallerOf(member, state))) continue;
    news += save->Report(member, state, context);
  }
  for (const v1::SaveState& asked : member.asked) {
    saves_.Heard(member.rank, asked);
    outcomes_.ReadUnsettled(asked.step(), asked.attempt(), CallerOf(member, asked), context);
  }
  return news += loads_.Apply(member, context);
}

Save* Job::BeginSave(const Member& member, const v1::SaveState& state, const JobContext& context, News& news) {
  const int64_t step = state.step();
  if (Save* last = saves_.Last(step); last != nullptr) last->HoldForReply(member, state, context.now);
  if (state.attempt() > 0 && outcomes_.FindSettled(step, state.attempt()) != nullptr) return nullptr;
  if (saves_.EndedFor(member, state) != nullptr) return nullptr;
  // A checkpoint may be replaced that the trainers say they want replaced, or from before which they have gone on.
  const bool replaces =
      state.overwrite() || (outcomes_.Committed(step) && context.lineage->LeavesBehind(ResumedFrom(state), step));
  if (!replaces && outcomes_.StillCommitted(step, CallerOf(member, state), context).value_or(true)) return nullptr;
  if (saves_.full()) return nullptr;
  Save& save = saves_.Begin(step, context);
  news += News::Step();
  // Other ranks whose calls of this step wait hear that they are in a save now.
  news += News::Urgent(members_.Reporting(step) > 1);
  news += requests_.OnSaveBegun(save, context);
  return &save;
}

News Job::ApplyAll(const JobContext& context) {
  News news;
  for (const auto& [rank, member] : members_.members()) {
    if (!member.reported) continue;
    news += Apply(member, context);
    news += requests_.OnReport(member, context);
  }
  return news;
}

// Steps.

News Job::Advance(JobContext context) {
  News news = groups_.Advance(members_, context.now);
  if (!recovery_.done()) return news;
  for (bool again = true; again;) {
    context.stalled_step = saves_.StalledStep();
    News round = AdvanceOperations(context);
    round += requests_.Advance(saves_, outcomes_, context);
    again = round.step;
    news += round;
  }
  news += current_plan_.Advance(context);
  step_changes_.Advance(loads_, outcomes_, context);
  leftovers_.Advance(saves_, loads_, outcomes_, context);
  if (context.now >= next_forget_) Forget(context.now);
  // An outcome may have to be made of other things now.
  return news += News{false, News::Orders::kSame, members_.Asking()};
}

News Job::AdvanceOperations(const JobContext& context) {
  News news = saves_.Advance(context);
  KeepLeftovers(context);
  news += loads_.Advance(context);
  const uint64_t ended = saves_.ended() + loads_.ended();
  if (std::exchange(ended_applied_, ended) == ended) return news;
  next_forget_ = absl::InfinitePast();
  // A call that came meanwhile begins the next attempt.
  return news += ApplyAll(context);
}

void Job::KeepLeftovers(const JobContext& context) {
  for (const StoredAttempt& leftover : saves_.TakeLeftovers()) {
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
  const JobContext context = Begin(moment);
  const auto left = [this] { return effects_.actions.size() + effects_.log.size(); };
  const size_t left_before = left();
  if (!members_.empty()) recovery_.Begin(context);
  // Leases end here and nowhere else: an agent that is heard before that has kept its own.
  members_.set_deaf(deaf);
  const std::vector<int> expired = members_.Expire(context.now);
  effects_.leases_ended += expired.size();
  News news = OnLost(expired, "lease-ended", context);
  news += recovery_.Tick(context);
  if (context.now >= next_review_) {
    next_review_ = context.now + kReviewInterval;
    if (recovery_.done()) news += ApplyAll(context);
  }
  news += Advance(context);
  if (!news.empty() || left() != left_before) Tell(news, context);
}

void Job::Review(const Moment& moment) {
  const JobContext context = Begin(moment);
  News news = recovery_.done() ? ApplyAll(context) : News();
  news += Advance(context);
  Tell(news, context);
}

void Job::OnLayout(const std::string& digest, const Moment& moment) {
  News news = wanted_layouts_.OnLayout(digest);
  if (news.empty()) return;
  news.step = wanted_layouts_.empty();
  Finish(std::move(news), Begin(moment));
}

// Orders.

v1::SynchronizeAgentResponse Job::MakeOrders(const Member& member, const JobContext& context) const {
  v1::SynchronizeAgentResponse response;
  wanted_layouts_.AddTo(member.rank, response);
  if (const auto arm = requests_.Order(); arm.has_value()) *response.mutable_arm() = *arm;
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
    order.set_phase(v1::Phase::WAITING);
    if (recovery_.stalled().ok()) continue;
    order.set_phase(v1::Phase::FAILED);
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
  v1::SynchronizeAgentResponse response = MakeOrders(*member, At(moment));
  const bool same_plan = orders_.KnowsPlan(*member, known, response.current_plan_digest());
  const uint64_t revision = orders_.Keep(*member, response.current_plan_digest(), NewsIn(response, member->state));
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

}  // namespace cairn
