#include "coordinator/save/save.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/enum_text.h"
#include "common/format/alarm.h"
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

uint32_t SaveRank::marks() const {
  if (!begun) return 0;
  return 1u << kBegun | uint32_t{staged()} << kStaged | uint32_t{state.phase() == v1::Phase::WRITTEN} << kWritten |
         uint32_t{failed()} << kFailed | uint32_t{!stopped && !gone} << kActive;
}

bool SaveRank::staged() const {
  return state.phase() == v1::Phase::STAGED || state.phase() == v1::Phase::WRITING ||
         state.phase() == v1::Phase::WRITTEN;
}

bool SaveRank::failed() const { return state.phase() == v1::Phase::FAILED || state.phase() == v1::Phase::STOPPED; }

void Save::AddRequest(const std::string& request_id, absl::Time deadline) {
  if (request_id.empty() || HasRequest(request_id)) return;
  request_ids_.push_back(request_id);
  deadline_ = std::min(deadline_, deadline);
}

bool Save::HasRequest(const std::string& request_id) const {
  return std::find(request_ids_.begin(), request_ids_.end(), request_id) != request_ids_.end();
}

bool Save::Written(const SaveRank& rank) const {
  return rank.begun && rank.state.phase() == v1::Phase::WRITTEN && attempt_ > 0 && rank.state.attempt() == attempt_ &&
         rank.state.attempt_nonce() == attempt_nonce_ && rank.state.plan_digest() == plan_.plan_digest;
}

bool Save::AllBegun(const JobContext& context) const {
  return context.members.world_size() > 0 && ranks_.size() == static_cast<size_t>(context.members.world_size()) &&
         ranks_.all(SaveRank::kBegun);
}

Save::Told Save::told() const {
  return {phase_, has_plan(), attempt_, !request_ids_.empty(), exchange_.kind(), stalled_, error_};
}

News Save::Since(const Told& before, const Told& after) const {
  if (before == after) return {};
  News news = News::Step(before.phase != after.phase);
  Told alike = before;
  // Until the outcome a rank is told the same, however far the others are.
  const auto is_open = [](v1::Phase::Value phase) { return phase <= v1::Phase::COMMITTING; };
  if (is_open(before.phase) && is_open(after.phase)) alike.phase = after.phase;
  if (alike == after) return news;
  alike.planned = after.planned;
  // Who stages by the plan already need not hear of it, unless there is more to hear.
  if (alike != after || after.attempt > 0 || after.requested || !after.stalled.ok()) {
    news.orders = News::Orders::kUrgent;
    return news;
  }
  news.orders = News::Orders::kChanged;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].state.plan_digest() != plan_.plan_digest) news.ranks.push_back(static_cast<int>(rank));
  }
  return news;
}

News Save::Report(const Member& member, const v1::SaveState& state, const JobContext& context) {
  if (ended()) return {};
  Fit(context);
  if (phase_ == v1::Phase::ABORTING) {
    const size_t active = ranks_.count(SaveRank::kActive);
    OnStopped(member, state);
    return News::Step(active > 0 && ranks_.count(SaveRank::kActive) == 0);
  }
  const SaveRank& known = rank(member.rank);
  if (!known.begun) {
    Begin(member, state, context);
    News news = OnMember(member.rank, context);
    return news += News::Step(told() != told_ || ranks_.all(SaveRank::kBegun) || known.failed());
  }
  if (known.agent != member.incarnation || state.call() < known.state.call()) return {};
  const v1::SaveState& before = known.state;
  const bool moved = before.phase() != state.phase() || before.bytes_done() != state.bytes_done() ||
                     before.attempt() != state.attempt() || before.plan_digest() != state.plan_digest() ||
                     before.awaited_ranks_size() != state.awaited_ranks_size();
  // Durable files stay durable, whatever a message says that was overtaken.
  const bool fails = state.phase() == v1::Phase::FAILED || state.phase() == v1::Phase::STOPPED;
  if (!moved || (Written(known) && !fails)) return {};
  const size_t failed = ranks_.count(SaveRank::kFailed);
  const size_t written = ranks_.count(SaveRank::kWritten);
  const size_t staged = ranks_.count(SaveRank::kStaged);
  ranks_.Change(static_cast<size_t>(member.rank), [&](SaveRank& rank) {
    rank.progress = context.now;
    rank.state = state;
  });
  Record(member.rank, state, context.now);
  const size_t failed_now = ranks_.count(SaveRank::kFailed);
  const size_t written_now = ranks_.count(SaveRank::kWritten);
  const bool over = failed_now + written_now == ranks_.size();
  News news = OnMember(member.rank, context);
  // A rank that failed starts the grace in which others may fail too.
  return news += News::Step((failed_now > failed && (failed == 0 || over)) || (written_now > written && over) ||
                            (ranks_.count(SaveRank::kStaged) > staged && AllStaged()));
}

void Save::Begin(const Member& member, const v1::SaveState& state, const JobContext& context) {
  ranks_.Change(static_cast<size_t>(member.rank), [&](SaveRank& rank) {
    rank.awaited.SeeTrainer(member, context.now);
    rank.begun = true;
    rank.agent = member.incarnation;
    rank.trainer = state.trainer_incarnation();
    rank.state = state;
    rank.progress = context.now;
  });
  plan_key_.clear();
  Record(member.rank, state, context.now);
  if (attempt_ == 0 && reserve_ticket_ == 0 && state.attempt() > 0) {
    attempt_ = state.attempt();
    attempt_nonce_ = state.attempt_nonce();
    adopted_ = true;
    timeline_->Mark(OperationMark::kNumbered, context.now);
    context.Log(LogLevel::kInfo, "adopted", {{"step", step_}, {"attempt", attempt_}, {"rank", member.rank}});
  }
  AddRequest(state.request_id(), absl::InfiniteFuture());
}

void Save::OnStopped(const Member& member, const v1::SaveState& state) {
  // A rank that has not begun comes too late for this attempt; it is told so when the attempt has ended.
  if (!HasBegunBy(member)) return;
  if (state.phase() != v1::Phase::STOPPED && state.call() <= rank(member.rank).state.call()) return;
  ranks_.Change(static_cast<size_t>(member.rank), [](SaveRank& rank) { rank.stopped = true; });
}

void Save::NoteGone(int rank, const JobContext& context) {
  const Member* member = context.members.Find(rank);
  ranks_.Change(static_cast<size_t>(rank),
                [&](SaveRank& each) { each.gone = member == nullptr || member->incarnation != each.agent; });
}

News Save::OnMember(int rank, const JobContext& context) {
  if (ended() || phase_ == v1::Phase::COMMITTING) return {};
  Fit(context);
  if (phase_ != v1::Phase::ABORTING) return News::Step(LookAt(rank, context).has_value());
  const size_t active = ranks_.count(SaveRank::kActive);
  NoteGone(rank, context);
  return News::Step(active > 0 && ranks_.count(SaveRank::kActive) == 0);
}

void Save::Record(int rank, const v1::SaveState& state, absl::Time now) {
  timeline_->Mark(rank, RankMark::kCalled, now);
  if (state.phase() == v1::Phase::STAGING) timeline_->Mark(rank, RankMark::kStaging, now);
  if (ranks_[static_cast<size_t>(rank)].staged()) timeline_->Mark(rank, RankMark::kStaged, now);
  if (state.phase() == v1::Phase::WRITING) timeline_->Mark(rank, RankMark::kMoving, now);
  if (state.phase() == v1::Phase::WRITTEN) timeline_->Mark(rank, RankMark::kDone, now);
  const bool awaits = state.awaited_ranks_size() > 0 && state.awaited_ranks(0) < ranks_.size();
  timeline_->Await(rank, awaits ? static_cast<int>(state.awaited_ranks(0)) : -1, now);
}

void Save::SetPhase(v1::Phase::Value phase, const JobContext& context) {
  if (phase_ == phase) return;
  phase_ = phase;
  // Those whose bytes are held had nothing to do until all had staged.
  if (phase == v1::Phase::WRITING && exchange_.undecided()) progress_base_ = context.now;
  if (phase == v1::Phase::ABORTING) {
    exchange_.GiveUp(error_, context);
    timeline_->Mark(OperationMark::kAborting, context.now);
    for (size_t i = ranks_.NextKept(0); i < ranks_.size(); i = ranks_.NextKept(i + 1)) {
      NoteGone(static_cast<int>(i), context);
    }
  }
  std::vector<LogField> fields = {{"step", step_}, {"attempt", attempt_}, {"state", EnumName(phase)}};
  if (!error_.ok()) fields.emplace_back("error", error_);
  context.Log(error_.ok() ? LogLevel::kInfo : LogLevel::kWarn, "save_state", std::move(fields));
}

News Save::Advance(const Before& before, const JobContext& context) {
  // One step makes the next one possible.
  for (Told last = told(); !ended(); last = told()) {
    AdvanceOnce(before, context);
    if (told() == last) break;
  }
  const Told then = std::exchange(told_, told());
  return Since(then, told_);
}

void Save::AdvanceOnce(const Before& before, const JobContext& context) {
  Fit(context);  // the world's size may have become known
  if (phase_ == v1::Phase::COLLECTING || phase_ == v1::Phase::WRITING) {
    if (CheckMembers(context) && CheckErrors(before.first, context) && CheckDeadlines(context)) {
      AdvanceForward(context);
    }
  }
  if (phase_ == v1::Phase::COMMITTING) AdvanceCommit(before, context);
  if (phase_ == v1::Phase::ABORTING) AdvanceAbort(context);
}

void Save::AdvanceForward(const JobContext& context) {
  if (!AllBegun(context) || !CheckContents(context)) return;
  if (!has_plan()) AdvancePlan(context);
  if (phase_ == v1::Phase::ABORTING || !has_plan() || !CheckExchange(context)) return;
  if (attempt_ == 0) {
    if (reserve_ticket_ != 0) return;
    reserve_ticket_ = context.NewTicket();
    reserve_time_ = context.now;
    ReserveAttempt reserve{step_};
    for (const SaveRank& rank : ranks_) reserve.above = std::max(reserve.above, rank.state.attempt());
    reserve.plan_digest = plan_.plan_digest;
    reserve.allow_dropped_names = std::all_of(ranks_.begin(), ranks_.end(),
                                              [](const SaveRank& rank) { return rank.state.allow_dropped_names(); });
    reserve.overwrite =
        std::all_of(ranks_.begin(), ranks_.end(), [](const SaveRank& rank) { return rank.state.overwrite(); });
    reserve.resumed = ResumedFrom(ranks_.front().state);
    reserve.left_behind = context.lineage->LeftBehindBy(reserve.resumed);
    reserve.ticket = reserve_ticket_;
    context.Do(std::move(reserve));
    return;
  }
  if (AllStaged()) SetPhase(v1::Phase::WRITING, context);
  if (!std::all_of(ranks_.begin(), ranks_.end(), [&](const SaveRank& rank) { return Written(rank); })) return;
  if (context.options.check_replicas == ReplicaCheck::kAlways && !CheckReplicasChecked(context)) return;
  SetPhase(v1::Phase::COMMITTING, context);
  MakeManifest make{step_, attempt_, plan_.plan_digest, request_id()};
  for (const SaveRank& rank : ranks_) {
    make.result.push_back(rank.state.result());
    make.replica_checksum.emplace_back(rank.state.replica_checksums().begin(), rank.state.replica_checksums().end());
  }
  make.replicas_must_match = check_replicas_;
  const std::optional<ResumePoint> resumed = ResumedFrom(ranks_.front().state);
  make.lineage = context.lineage->Next(resumed);
  make.alarms = context.options.alarms;
  make.builds_on = BuildsOn(resumed, context);
  for (const v1::Metric& metric : ranks_.front().state.metrics())
    make.metrics.push_back({metric.name(), metric.value()});
  manifest_ticket_ = make.ticket = context.NewTicket();
  manifest_time_ = context.now;
  context.Do(std::move(make));
}

std::optional<int64_t> Save::BuildsOn(const std::optional<ResumePoint>& resumed, const JobContext& context) const {
  if (context.known_steps == nullptr) return std::nullopt;
  const std::set<int64_t> left_behind = context.lineage->LeftBehindBy(resumed);
  std::optional<int64_t> newest;
  for (const int64_t step : context.known_steps->committed) {
    if (step < step_ && !left_behind.contains(step)) newest = step;
  }
  return newest;
}

void Save::AdvancePlan(const JobContext& context) {
  SavePlanEntry* entry = plan_key_.empty() ? nullptr : context.plans.FindByKey(plan_key_);
  if (entry == nullptr) {
    std::vector<std::string> layout;
    for (const SaveRank& rank : ranks_) layout.push_back(rank.state.layout_digest());
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
  TakePlan(*entry, context);
}

void Save::TakePlan(const SavePlanEntry& entry, const JobContext& context) {
  plan_ = entry.plan;
  moving_.assign(ranks_.size(), false);
  for (const PlannedSave::Move& move : plan_.moves) {
    for (const int rank : {move.from, move.to}) moving_[static_cast<size_t>(rank)] = true;
  }
  timeline_->Mark(OperationMark::kPlanned, context.now);
  check_replicas_ = context.options.check_replicas == ReplicaCheck::kAlways ||
                    (context.options.check_replicas == ReplicaCheck::kFirst && !entry.replicas_checked);
  progress_base_ = context.now;
  if (const absl::Status refused = exchange_.Begin(step_, plan_, adopted_, context); !refused.ok()) {
    Abort(WhyRefused(refused, context, operation()), context);
    return;
  }
  if (adopted_) CheckAdopted(context);
}

bool Save::CheckExchange(const JobContext& context) {
  const bool held = exchange_.undecided();
  const absl::Status refused = exchange_.Advance(AllStaged(), context);
  if (!refused.ok()) {
    Abort(WhyRefused(refused, context, operation()), context);
    return false;
  }
  if (held && !exchange_.undecided()) progress_base_ = context.now;  // bytes were held until now
  return true;
}

bool Save::OnReserved(uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const JobContext& context) {
  if (ticket != reserve_ticket_ || ended()) return false;
  reserve_ticket_ = 0;
  if (reserved.ok()) {
    attempt_ = reserved->attempt;
    attempt_nonce_ = reserved->nonce;
    timeline_->Mark(OperationMark::kNumbered, context.now);
    progress_base_ = context.now;
    context.Log(LogLevel::kInfo, "numbered", {{"step", step_}, {"attempt", attempt_}});
  } else {
    Abort(WithOperation(reserved.status(), context, absl::StrCat(context.job, "@", step_),
                        {{"job", context.job}, {"step", absl::StrCat(step_)}}),
          context);
  }
  return true;
}

void Save::OnManifest(uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const JobContext& context) {
  if (ticket != manifest_ticket_ || phase_ != v1::Phase::COMMITTING) return;
  if (!made.ok()) {
    Abort(Annotate(made.status(), absl::StrCat(context.job, "@", step_, " attempt ", attempt_),
                   {{"job", context.job}, {"step", absl::StrCat(step_)}, {"attempt", absl::StrCat(attempt_)}}),
          context);
    return;
  }
  const bool compared =
      std::all_of(ranks_.begin(), ranks_.end(), [](const SaveRank& rank) { return rank.state.all_replicas_checked(); });
  if (SavePlanEntry* entry = context.plans.Find(plan_.plan_digest); entry != nullptr && compared) {
    entry->replicas_checked = true;
  }
  manifest_ = *made;
  for (const Alarm& alarm : made->alarms) {
    absl::Status warning = AlarmStatus(alarm, context.job, step_);
    if (context.options.alarms.LevelOf(alarm.kind) == AlarmPolicy::Level::kFail) {
      warning = WithMetadata(warning, {{"fail", "yes"}});
    }
    context.Log(LogLevel::kWarn, "alarm",
                {{"step", step_}, {"attempt", attempt_}, {"alarm", alarm.kind}, {"warning", warning}});
    warnings_.push_back(std::move(warning));
  }
}

}  // namespace cairn
