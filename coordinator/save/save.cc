#include "coordinator/save/save.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "coordinator/decision/plan_table.h"

namespace cairn {
namespace {

// Returns why the exchange of a save cannot be, with the names of the save.
absl::Status WhyRefused(const absl::Status& refused, const JobContext& context, const Operation& operation) {
  const absl::Status error = OperationError(*ReasonOf(refused), context, operation, std::string(refused.message()));
  return WithMetadata(error, {{"next", MetadataOf(refused)["next"]}});
}

}  // namespace

std::optional<ResumePoint> ResumedFrom(const v1::SaveState& state) {
  if (!state.has_resumed_from()) return std::nullopt;
  return ResumePoint{state.resumed_from().line(), state.resumed_from().step()};
}

std::string_view SavePhaseName(Save::Phase phase) {
  switch (phase) {
    case Save::Phase::kCollecting:
      return "COLLECTING";
    case Save::Phase::kWriting:
      return "WRITING";
    case Save::Phase::kCommitting:
      return "COMMITTING";
    case Save::Phase::kCommitted:
      return "COMMITTED";
    case Save::Phase::kAborting:
      return "ABORTING";
    case Save::Phase::kAborted:
      return "ABORTED";
  }
  return "UNKNOWN";
}

void Save::AddRequest(const std::string& request_id, absl::Time deadline) {
  if (request_id.empty() || HasRequest(request_id)) return;
  request_ids_.push_back(request_id);
  deadline_ = std::min(deadline_, deadline);
  attention_ = true;
  Touch();
}

bool Save::HasRequest(const std::string& request_id) const {
  return std::find(request_ids_.begin(), request_ids_.end(), request_id) != request_ids_.end();
}

void Save::Fit(const JobContext& context) {
  const size_t size = std::max<size_t>(1, static_cast<size_t>(context.members.world_size()));
  if (ranks_.size() < size) ranks_.resize(size);
}

Save::Rank& Save::At(int rank, const JobContext& context) {
  Fit(context);
  return ranks_.At(static_cast<size_t>(rank));
}

bool Save::Written(const Rank& rank) const {
  return rank.begun && rank.state.phase() == v1::SaveState::WRITTEN && attempt_ > 0 &&
         rank.state.attempt() == attempt_ && rank.state.attempt_nonce() == attempt_nonce_ &&
         rank.state.plan_digest() == plan_.plan_digest;
}

bool Save::AllBegun(const JobContext& context) const {
  return context.members.world_size() > 0 && ranks_.size() == static_cast<size_t>(context.members.world_size()) &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.begun; });
}

void Save::Report(const Member& member, const v1::SaveState& state, JobContext& context) {
  if (ended()) return;
  Rank& rank = At(member.rank, context);
  if (phase_ == Phase::kAborting) {
    // A rank that has not begun comes too late for this attempt; it is told so when the attempt has ended.
    if (rank.begun && rank.agent == member.incarnation &&
        (state.phase() == v1::SaveState::STOPPED || state.call() > rank.state.call()) && !rank.stopped) {
      rank.stopped = true;
      // Advance counts those that it still waits for.
      attention_ = attention_ || unstopped_ <= 1;
      if (unstopped_ > 0) --unstopped_;
    }
    return;
  }
  if (!rank.begun) {
    See(rank, member, context.now);
    Count(rank, -1);
    rank.begun = true;
    plan_key_.clear();
    rank.agent = member.incarnation;
    rank.trainer = state.trainer_incarnation();
    rank.state = state;
    rank.progress = context.now;
    Record(member.rank, state, context.now);
    if (attempt_ == 0 && reserve_ticket_ == 0 && state.attempt() > 0) {
      attempt_ = state.attempt();
      attempt_nonce_ = state.attempt_nonce();
      adopted_ = true;
      timeline_->Mark(OperationMark::kNumbered, context.now);
      attention_ = context.orders_changed = true;
      Recount();  // with this rank
      context.Log(LogLevel::kInfo, "adopted", {{"step", step_}, {"attempt", attempt_}, {"rank", member.rank}});
    } else {
      Count(rank, +1);
    }
    if (!state.request_id().empty() && !HasRequest(state.request_id())) {
      AddRequest(state.request_id(), absl::InfiniteFuture());
      context.orders_changed = true;
    }
    attention_ = attention_ || counts_.begun == ranks_.size() || Failed(state);
    Touch();
    OnMember(member.rank, context);
    return;
  }
  if (rank.agent != member.incarnation || state.call() < rank.state.call()) return;
  const v1::SaveState& before = rank.state;
  const bool moved = before.phase() != state.phase() || before.bytes_done() != state.bytes_done() ||
                     before.attempt() != state.attempt() || before.plan_digest() != state.plan_digest() ||
                     before.awaited_ranks_size() != state.awaited_ranks_size();
  if (!moved) return;
  // Durable files stay durable, whatever a message says that was overtaken.
  if (Written(rank) && !Failed(state)) return;
  const auto counts = counts_;
  Count(rank, -1);
  rank.progress = context.now;
  rank.state = state;
  Count(rank, +1);
  Record(member.rank, state, context.now);
  Touch();
  const size_t all = ranks_.size();
  // A rank that failed starts the grace in which others may fail too.
  attention_ = attention_ || (counts_.failed > 0 && counts.failed == 0) ||
               (counts_.failed > counts.failed && counts_.failed + counts_.written == all) ||
               (counts_.written > counts.written && counts_.failed + counts_.written == all) ||
               (counts_.staged > counts.staged && counts_.staged == all);
  OnMember(member.rank, context);
}

void Save::OnMember(int rank, JobContext& context) {
  if (phase_ == Phase::kAborting) {
    attention_ = true;
  } else if (phase_ == Phase::kCollecting || phase_ == Phase::kWriting) {
    At(rank, context);
    attention_ = attention_ || LookAt(rank, context).has_value();
  }
}

void Save::Record(int rank, const v1::SaveState& state, absl::Time now) {
  timeline_->Mark(rank, RankMark::kCalled, now);
  if (state.phase() == v1::SaveState::STAGING) timeline_->Mark(rank, RankMark::kStaging, now);
  if (Staged(state)) timeline_->Mark(rank, RankMark::kStaged, now);
  if (state.phase() == v1::SaveState::WRITING) timeline_->Mark(rank, RankMark::kMoving, now);
  if (state.phase() == v1::SaveState::WRITTEN) timeline_->Mark(rank, RankMark::kDone, now);
  timeline_->Await(rank, state.awaited_ranks_size() > 0 ? static_cast<int>(state.awaited_ranks(0)) : -1, now);
}

void Save::Count(const Rank& rank, int sign, Counts& counts) const {
  if (!rank.begun) return;
  const auto add = [&](size_t& count, bool applies) { count += applies ? static_cast<size_t>(sign) : 0; };
  add(counts.begun, true);
  add(counts.staged, Staged(rank.state));
  add(counts.written, Written(rank));
  add(counts.failed, Failed(rank.state));
}

Save::Counts Save::Counted() const {
  Counts counts;
  for (const Rank& rank : ranks_) Count(rank, +1, counts);
  return counts;
}

std::string Save::Inconsistency() const {
  if (ended()) return "";
  if (Counted() != counts_)
    return absl::StrCat("the ranks of the save of step ", step_, " are not counted as they are");
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool moves = std::any_of(plan_.moves.begin(), plan_.moves.end(), [&](const PlannedSave::Move& move) {
      return static_cast<size_t>(move.from) == rank || static_cast<size_t>(move.to) == rank;
    });
    if (moves != (rank < moving_.size() && moving_[rank])) {
      return absl::StrCat("rank ", rank, " of the save of step ", step_, moves ? " lacks" : " needs no", " token");
    }
  }
  return "";
}

void Save::SetPhase(Phase phase, JobContext& context) {
  if (phase_ == phase) return;
  // Until the outcome a rank is told the same, however far the others are.
  const bool orders_stay = phase == Phase::kWriting || phase == Phase::kCommitting;
  phase_ = phase;
  attention_ = true;
  if (!orders_stay) context.orders_changed = true;
  // Those whose bytes are held had nothing to do until all had staged.
  if (phase == Phase::kWriting && exchange_.undecided()) progress_base_ = context.now;
  if (phase == Phase::kAborting) {
    exchange_.GiveUp(error_, context);
    timeline_->Mark(OperationMark::kAborting, context.now);
  }
  Touch();
  std::vector<LogField> fields = {{"step", step_}, {"attempt", attempt_}, {"state", std::string(SavePhaseName(phase))}};
  if (!error_.ok()) fields.emplace_back("error", error_);
  context.Log(error_.ok() ? LogLevel::kInfo : LogLevel::kWarn, "save_state", std::move(fields));
}

void Save::Advance(JobContext& context, const Save* earlier) {
  if (ended()) return;
  attention_ = false;
  Fit(context);  // the world's size may have become known
  if (phase_ == Phase::kCollecting || phase_ == Phase::kWriting) {
    if (CheckMembers(context) && CheckErrors(earlier, context) && CheckDeadlines(context)) AdvanceForward(context);
  }
  if (phase_ == Phase::kCommitting) AdvanceCommit(context);
  if (phase_ == Phase::kAborting) AdvanceAbort(context);
}

void Save::AdvanceForward(JobContext& context) {
  if (!AllBegun(context)) return;
  if (!has_plan()) AdvancePlan(context);
  if (phase_ == Phase::kAborting || !has_plan() || !CheckExchange(context)) return;
  if (attempt_ == 0) {
    if (reserve_ticket_ != 0) return;
    reserve_ticket_ = context.NewTicket();
    reserve_time_ = context.now;
    ReserveAttempt reserve{step_};
    for (const Rank& rank : ranks_) reserve.above = std::max(reserve.above, rank.state.attempt());
    reserve.plan_digest = plan_.plan_digest;
    reserve.allow_dropped_names =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.state.allow_dropped_names(); });
    reserve.overwrite =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.state.overwrite(); });
    reserve.left_behind = context.lineage->LeftBehindBy(ResumedFrom(ranks_.front().state));
    reserve.ticket = reserve_ticket_;
    context.Do(std::move(reserve));
    return;
  }
  if (AllStaged()) SetPhase(Phase::kWriting, context);
  if (!std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return Written(rank); })) return;
  if (context.options.check_replicas == ReplicaCheck::kAlways && !CheckReplicasChecked(context)) return;
  SetPhase(Phase::kCommitting, context);
  MakeManifest make{step_, attempt_, plan_.plan_digest, request_ids_.empty() ? "" : request_ids_.front()};
  for (const Rank& rank : ranks_) {
    make.result.push_back(rank.state.result());
    make.replica_checksum.emplace_back(rank.state.replica_checksums().begin(), rank.state.replica_checksums().end());
  }
  make.replicas_must_match = check_replicas_;
  make.lineage = context.lineage->Next(ResumedFrom(ranks_.front().state));
  for (const v1::Metric& metric : ranks_.front().state.metrics())
    make.metrics.push_back({metric.name(), metric.value()});
  manifest_ticket_ = make.ticket = context.NewTicket();
  manifest_time_ = context.now;
  context.Do(std::move(make));
}

void Save::AdvancePlan(JobContext& context) {
  SavePlanEntry* entry = plan_key_.empty() ? nullptr : context.plans.FindByKey(plan_key_);
  if (entry == nullptr) {
    std::vector<std::string> layout;
    for (const Rank& rank : ranks_) layout.push_back(rank.state.layout_digest());
    entry = context.plans.Request(layout, context);
    plan_key_ = entry == nullptr ? "" : entry->key;
  }
  if (entry == nullptr || entry->state == SavePlanEntry::State::kPending) return;
  if (entry->state == SavePlanEntry::State::kFailed) {
    Abort(Annotate(entry->error, absl::StrCat(context.job, "@", step_),
                   {{"job", context.job}, {"step", absl::StrCat(step_)}, {"phase", "planning"}}),
          context);
    return;
  }
  plan_ = entry->plan;
  timeline_->Mark(OperationMark::kPlanned, context.now);
  const bool first = !entry->replicas_checked;
  check_replicas_ = context.options.check_replicas == ReplicaCheck::kAlways ||
                    (context.options.check_replicas == ReplicaCheck::kFirst && first);
  progress_base_ = context.now;
  moving_.assign(ranks_.size(), false);
  for (const PlannedSave::Move& move : plan_.moves) {
    for (const int rank : {move.from, move.to}) moving_[static_cast<size_t>(rank)] = true;
  }
  attention_ = true;
  if (const absl::Status refused = exchange_.Begin(step_, plan_, adopted_, context); !refused.ok()) {
    Abort(WhyRefused(refused, context, operation()), context);
    return;
  }
  TellPlan(context);
  Recount();
  Touch();
  if (!adopted_) return;
  std::vector<NamedRank> other;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const v1::SaveState& state = ranks_[i].state;
    const bool writes = state.phase() == v1::SaveState::WRITING || state.phase() == v1::SaveState::WRITTEN;
    if (writes && state.plan_digest() != plan_.plan_digest) {
      other.push_back({static_cast<int>(i), PhaseOf(ranks_[i]), "it wrote by a plan that is not today's"});
    } else if (state.attempt() == attempt_ && state.attempt_nonce() != attempt_nonce_) {
      other.push_back({static_cast<int>(i), PhaseOf(ranks_[i]), "it holds the attempt of another coordinator"});
    }
  }
  if (other.empty()) return;
  Abort(ErrorNaming(Reason::kCoordinatorRestarted, context, operation(), "cannot go on after the coordinator restarted",
                    std::move(other)),
        context);
}

bool Save::CheckExchange(JobContext& context) {
  const bool held = exchange_.undecided();
  const absl::Status refused = exchange_.Advance(AllStaged(), context);
  if (!refused.ok()) {
    Abort(WhyRefused(refused, context, operation()), context);
    return false;
  }
  if (held && !exchange_.undecided()) progress_base_ = context.now;  // bytes were held until now
  return true;
}

void Save::TellPlan(JobContext& context) {
  // Who stages by the plan already need not hear of it, unless there is more to hear.
  if (attempt_ > 0 || !request_ids_.empty() || !stalled_.ok()) {
    context.orders_changed = true;
    return;
  }
  context.orders_outdated = true;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].state.plan_digest() != plan_.plan_digest) context.waking.push_back(static_cast<int>(rank));
  }
}

bool Save::OnReserved(uint64_t ticket, const absl::StatusOr<Reserved>& reserved, JobContext& context) {
  if (ticket != reserve_ticket_ || ended()) return false;
  reserve_ticket_ = 0;
  if (reserved.ok()) {
    attempt_ = reserved->attempt;
    attempt_nonce_ = reserved->nonce;
    timeline_->Mark(OperationMark::kNumbered, context.now);
    progress_base_ = context.now;
    attention_ = context.orders_changed = true;
    Recount();
    Touch();
    context.Log(LogLevel::kInfo, "numbered", {{"step", step_}, {"attempt", attempt_}});
  } else {
    const std::string name = absl::StrCat(context.job, "@", step_);
    const ErrorMetadata metadata = {{"job", context.job}, {"step", absl::StrCat(step_)}};
    // Storage names the step itself where it speaks of the step, and not of a file.
    const bool named = absl::StartsWith(reserved.status().message(), name);
    Abort(named ? WithMetadata(reserved.status(), metadata) : Annotate(reserved.status(), name, metadata), context);
  }
  return true;
}

void Save::OnManifest(uint64_t ticket, const absl::StatusOr<MadeManifest>& made, JobContext& context) {
  if (ticket != manifest_ticket_ || phase_ != Phase::kCommitting) return;
  if (!made.ok()) {
    Abort(Annotate(made.status(), absl::StrCat(context.job, "@", step_, " attempt ", attempt_),
                   {{"job", context.job}, {"step", absl::StrCat(step_)}, {"attempt", absl::StrCat(attempt_)}}),
          context);
    return;
  }
  const bool compared =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.state.all_replicas_checked(); });
  if (SavePlanEntry* entry = context.plans.Find(plan_.plan_digest); entry != nullptr && compared) {
    entry->replicas_checked = true;
  }
  manifest_ = *made;
  if (made->warning.ok()) return;
  warning_ = Annotate(made->warning, absl::StrCat(context.job, "@", step_, " attempt ", attempt_),
                      {{"job", context.job}, {"step", absl::StrCat(step_)}, {"attempt", absl::StrCat(attempt_)}});
  context.Log(LogLevel::kWarn, "replicas_differ", {{"step", step_}, {"attempt", attempt_}, {"warning", warning_}});
}

}  // namespace cairn
