#include "coordinator/save/save.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/quantity.h"
#include "common/rpc/reason.h"
#include "common/rpc/status_proto.h"
#include "common/storage/checkpoint_path.h"
#include "coordinator/job/plan_table.h"
#include "coordinator/job/transfer_peers.h"

namespace cairn {
namespace {

constexpr absl::Duration kVerdictRetry = absl::Seconds(1);

bool Failed(const v1::SaveState& state) {
  return state.phase() == v1::SaveState::FAILED || state.phase() == v1::SaveState::STOPPED;
}

bool Staged(const v1::SaveState& state) {
  return state.phase() == v1::SaveState::STAGED || state.phase() == v1::SaveState::WRITING ||
         state.phase() == v1::SaveState::WRITTEN;
}

}  // namespace

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
  Touch();
}

bool Save::HasRequest(const std::string& request_id) const {
  return std::find(request_ids_.begin(), request_ids_.end(), request_id) != request_ids_.end();
}

Save::Rank& Save::At(int rank, const Context& context) {
  const size_t size = std::max(static_cast<size_t>(rank) + 1, static_cast<size_t>(context.members.world_size()));
  if (ranks_.size() < size) ranks_.resize(size);
  return ranks_[static_cast<size_t>(rank)];
}

bool Save::Written(const Rank& rank) const {
  return rank.begun && rank.state.phase() == v1::SaveState::WRITTEN && attempt_ > 0 &&
         rank.state.attempt() == attempt_ && rank.state.plan_digest() == plan_.plan_digest;
}

bool Save::AllBegun(const Context& context) const {
  return context.members.world_size() > 0 && ranks_.size() == static_cast<size_t>(context.members.world_size()) &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.begun; });
}

void Save::Report(const Member& member, const v1::SaveState& state, Context& context) {
  if (ended()) return;
  Rank& rank = At(member.rank, context);
  if (phase_ == Phase::kAborting) {
    if (rank.begun && rank.agent == member.incarnation &&
        (state.phase() == v1::SaveState::STOPPED || state.call() > rank.state.call())) {
      rank.stopped = true;
    } else if (!rank.begun) {
      // It comes too late for this attempt; it is told so when the attempt has ended.
    }
    return;
  }
  if (!rank.begun) {
    rank.begun = true;
    rank.agent = member.incarnation;
    rank.trainer = member.state.trainer().incarnation();
    rank.trainer_attached = member.state.trainer().attached();
    rank.state = state;
    rank.progress = context.now;
    if (attempt_ == 0 && reserve_ticket_ == 0 && state.attempt() > 0) {
      attempt_ = state.attempt();
      adopted_ = true;
      context.Log("step=", step_, " attempt=", attempt_, " event=adopted rank=", member.rank);
    }
    if (!state.request_id().empty()) AddRequest(state.request_id(), absl::InfiniteFuture());
    Touch();
    return;
  }
  if (rank.agent != member.incarnation || state.call() < rank.state.call()) return;
  const v1::SaveState& before = rank.state;
  const bool moved = before.phase() != state.phase() || before.bytes_done() != state.bytes_done() ||
                     before.attempt() != state.attempt() || before.plan_digest() != state.plan_digest() ||
                     before.waiting_for_size() != state.waiting_for_size();
  if (!moved) return;
  // What is durable stays durable, whatever a message that was overtaken says.
  if (Written(rank) && !Failed(state)) return;
  rank.progress = context.now;
  rank.state = state;
  Touch();
}

std::string Save::PhaseOf(const Rank& rank) const {
  if (!rank.begun) return "waiting";
  switch (rank.state.phase()) {
    case v1::SaveState::STAGING:
      return "staging";
    case v1::SaveState::STAGED:
      return "staged";
    case v1::SaveState::WRITING:
      return "writing";
    case v1::SaveState::WRITTEN:
      return "written";
    case v1::SaveState::FAILED:
    case v1::SaveState::STOPPED:
      return rank.state.attempt() > 0 ? "writing" : "staging";
    default:
      return has_plan() ? "staging" : "planning";
  }
}

absl::Time Save::ProgressOf(int index, const Rank& rank, const Context& context) const {
  absl::Time progress = std::max(rank.progress, progress_base_);
  const Member* member = context.members.Find(index);
  if (member == nullptr) return progress;
  if (!rank.begun) {
    // A trainer on its way to the step is slow, not late; one that has passed it will not come.
    const std::optional<int64_t> at = member->current_step();
    if (at.has_value() && *at <= step_) progress = std::max(progress, member->stepped);
  } else if (!has_plan()) {
    progress = std::max(progress, member->uploaded);
  }
  return progress;
}

std::string Save::DetailOf(int index, const Rank& rank, const Context& context) const {
  const Member* member = context.members.Find(index);
  std::string text = absl::StrCat("no progress for ", Seconds(context.now - ProgressOf(index, rank, context)));
  if (member == nullptr) return absl::StrCat(text, ", no agent registered");
  if (!rank.begun) {
    absl::StrAppend(&text, ", its trainer has not begun the save");
    if (member->current_step().has_value()) absl::StrAppend(&text, ", last reported step ", *member->current_step());
    if (member->reported && !member->state.trainer().attached()) absl::StrAppend(&text, ", no trainer attached");
  } else if (rank.state.bytes_total() > 0) {
    absl::StrAppend(&text, ", ", FormatSize(static_cast<int64_t>(rank.state.bytes_done())), " of ",
                    FormatSize(static_cast<int64_t>(rank.state.bytes_total())));
  }
  const absl::Duration silent = context.now - member->heard;
  if (silent > absl::Seconds(1)) absl::StrAppend(&text, ", agent last heard ", Seconds(silent), " ago");
  if (!member->node.empty()) absl::StrAppend(&text, ", node ", member->node);
  return text;
}

std::vector<int> Save::Awaited(const Context& context) const {
  std::vector<int> ranks;
  const bool all_begun = AllBegun(context);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    bool awaited;
    if (!all_begun) {
      awaited = !rank.begun;
    } else if (!has_plan()) {
      awaited = !context.layouts.contains(rank.state.layout_digest());
    } else {
      awaited = attempt_ > 0 ? !Written(rank) : !Staged(rank.state);
    }
    if (awaited) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

std::vector<Culprit> Save::Culprits(const std::vector<int>& ranks, const Context& context) const {
  std::vector<Culprit> culprits;
  for (int rank : ranks) {
    const Rank& state = ranks_[static_cast<size_t>(rank)];
    culprits.push_back({rank, PhaseOf(state), DetailOf(rank, state, context)});
  }
  return culprits;
}

void Save::SetPhase(Phase phase, Context& context) {
  if (phase_ == phase) return;
  phase_ = phase;
  Touch();
  context.Log("step=", step_, " attempt=", attempt_, " state=", std::string(SavePhaseName(phase)),
              error_.ok() ? "" : absl::StrCat(" error=\"", error_.message(), "\""));
}

void Save::Advance(Context& context) {
  if (ended()) return;
  At(0, context);  // the world's size may have become known
  if (phase_ == Phase::kCollecting || phase_ == Phase::kWriting) {
    if (CheckMembers(context) && CheckErrors(context) && CheckDeadlines(context)) AdvanceForward(context);
  }
  if (phase_ == Phase::kCommitting) AdvanceCommit(context);
  if (phase_ == Phase::kAborting) AdvanceAbort(context);
}

bool Save::CheckMembers(Context& context) {
  if (context.members.world_size() > 0 && ranks_.size() != static_cast<size_t>(context.members.world_size())) {
    Abort(OperationError(Reason::kRankLost, context, operation(), "the job's world size changed during the save"),
          context);
    return false;
  }
  std::vector<Culprit> lost;
  std::vector<Culprit> trainers;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const int index = static_cast<int>(i);
    const Member* member = context.members.Find(index);
    if (rank.begun) {
      if (Written(rank)) continue;  // its part is durable: nobody is needed any more
      if (member == nullptr) {
        lost.push_back({index, PhaseOf(rank), DetailOf(index, rank, context)});
      } else if (member->incarnation != rank.agent) {
        lost.push_back({index, PhaseOf(rank), "its agent was restarted"});
      } else if (!Staged(rank.state) && !Failed(rank.state) && rank.trainer_attached &&
                 (!member->state.trainer().attached() || member->state.trainer().incarnation() != rank.trainer)) {
        trainers.push_back({index, PhaseOf(rank), DetailOf(index, rank, context)});
      }
      continue;
    }
    if (member == nullptr) {
      if (rank.seen) {
        lost.push_back({index, "waiting", "its agent is gone"});
      } else if (adopted_ && context.now - created_ > 2 * context.options.lease_ttl) {
        lost.push_back({index, "waiting", "its agent did not come back after the coordinator restarted"});
      }
      continue;
    }
    rank.seen = true;
    if (!member->reported) continue;
    if (adopted_) {
      // An attempt only has a number when all ranks have begun it, and agents report all that they know.
      lost.push_back({index, "waiting", "its agent was restarted and knows nothing of the save"});
      continue;
    }
    const v1::TrainerState& trainer = member->state.trainer();
    if (rank.seen_trainer != 0 && (!trainer.attached() || trainer.incarnation() != rank.seen_trainer)) {
      trainers.push_back({index, "waiting", "its trainer ended before it began the save"});
    } else if (trainer.attached()) {
      rank.seen_trainer = trainer.incarnation();
    }
  }
  if (!lost.empty()) {
    Abort(Blame(Reason::kRankLost, context, operation(), "lost", std::move(lost)), context);
    return false;
  }
  if (!trainers.empty()) {
    Abort(Blame(Reason::kTrainerLost, context, operation(), "lost the trainer", std::move(trainers)), context);
    return false;
  }
  return true;
}

bool Save::CheckErrors(Context& context) {
  std::vector<RankError> errors;
  bool all_done = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.begun && Failed(rank.state)) {
      absl::Status error = StatusFromProto(rank.state.error());
      if (error.ok()) error = MakeError(Reason::kInternal, "the agent gave the save up without a reason");
      // Who could not get another rank's shards is not to blame for it.
      int blamed = static_cast<int>(i);
      if (HasReason(error, Reason::kTransportFailed)) {
        int source = 0;
        if (absl::SimpleAtoi(MetadataOf(error)["source_rank"], &source) && source >= 0) blamed = source;
      }
      errors.push_back({blamed, PhaseOf(rank), std::move(error)});
    } else {
      all_done = all_done && Written(rank);
    }
  }
  if (errors.empty()) return true;
  first_failure_ = std::min(first_failure_, context.now);
  if (!all_done && context.now - first_failure_ < kSaveFailureGrace) return true;
  // A rank that gave up waiting for the others is not to blame for it: they are.
  const bool timed_out = !has_plan() && std::all_of(errors.begin(), errors.end(), [](const RankError& error) {
    return HasReason(error.error, Reason::kTimedOut) || HasReason(error.error, Reason::kRankLate);
  });
  if (timed_out) {
    std::vector<int> awaited;
    for (int rank : Awaited(context)) {
      if (!Failed(ranks_[static_cast<size_t>(rank)].state)) awaited.push_back(rank);
    }
    if (!awaited.empty()) {
      Abort(Blame(Reason::kRankLate, context, operation(), "held up the others beyond their timeout",
                  Culprits(awaited, context)),
            context);
      return false;
    }
  }
  Abort(BlameErrors(context, operation(), errors), context);
  return false;
}

std::vector<int> Save::WithoutExcused(std::vector<int> ranks) const {
  std::erase_if(ranks, [&](int rank) {
    const auto& others = ranks_[static_cast<size_t>(rank)].state.waiting_for();
    return std::any_of(others.begin(), others.end(),
                       [&](uint32_t other) { return other < ranks_.size() && !Staged(ranks_[other].state); });
  });
  return ranks;
}

bool Save::CheckDeadlines(Context& context) {
  const std::vector<int> awaited = WithoutExcused(Awaited(context));
  std::vector<int> late;
  for (int rank : awaited) {
    const Rank& state = ranks_[static_cast<size_t>(rank)];
    if (context.now - ProgressOf(rank, state, context) >= context.options.phase_timeout) late.push_back(rank);
  }
  if (!late.empty()) {
    Abort(Blame(Reason::kRankLate, context, operation(), absl::StrCat(late.size() == 1 ? "is" : "are", " late"),
                Culprits(late, context)),
          context);
    return false;
  }
  if (awaited.empty() && context.now - progress_base_ >= context.options.phase_timeout &&
      (!has_plan() || attempt_ == 0)) {
    Abort(OperationError(Reason::kTimedOut, context, operation(),
                         "the coordinator could not plan the save within the phase timeout; is its storage slow?"),
          context);
    return false;
  }
  if (context.now >= deadline_) {
    Abort(Blame(Reason::kRankLate, context, operation(), "held up the save beyond the request's timeout",
                Culprits(awaited, context)),
          context);
    return false;
  }
  return true;
}

void Save::AdvanceForward(Context& context) {
  if (!AllBegun(context)) return;
  if (!has_plan()) AdvancePlan(context);
  if (phase_ == Phase::kAborting || !has_plan()) return;
  if (attempt_ == 0) {
    if (reserve_ticket_ != 0) return;
    reserve_ticket_ = context.next_ticket++;
    const bool allow =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.state.allow_dropped_names(); });
    uint32_t above = 0;
    for (const Rank& rank : ranks_) above = std::max(above, rank.state.attempt());
    context.Do(ReserveAttempt{step_, above, plan_.plan_digest, allow, reserve_ticket_});
    return;
  }
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return Staged(rank.state); })) {
    SetPhase(Phase::kWriting, context);
  }
  if (!std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return Written(rank); })) return;
  SetPhase(Phase::kCommitting, context);
  MakeManifest make{step_, attempt_, plan_.plan_digest, request_ids_.empty() ? "" : request_ids_.front()};
  for (const Rank& rank : ranks_) {
    make.result.push_back(rank.state.result());
    make.replica_checksum.emplace_back(rank.state.replica_checksum().begin(), rank.state.replica_checksum().end());
  }
  manifest_ticket_ = make.ticket = context.next_ticket++;
  context.Do(std::move(make));
}

void Save::AdvancePlan(Context& context) {
  std::vector<std::string> layout;
  for (const Rank& rank : ranks_) layout.push_back(rank.state.layout_digest());
  SavePlanEntry* entry = context.plans.Request(layout, context);
  if (entry == nullptr || entry->state == SavePlanEntry::State::kPending) return;
  if (entry->state == SavePlanEntry::State::kFailed) {
    Abort(Annotate(entry->error, absl::StrCat(context.job, "@", step_),
                   {{"job", context.job}, {"step", absl::StrCat(step_)}, {"phase", "planning"}}),
          context);
    return;
  }
  plan_ = entry->plan;
  const bool first = !entry->replicas_checked;
  check_replicas_ = context.options.check_replicas == ReplicaCheck::kAlways ||
                    (context.options.check_replicas == ReplicaCheck::kFirst && first);
  progress_base_ = context.now;
  Touch();
  if (!adopted_) return;
  std::vector<Culprit> other;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const v1::SaveState& state = ranks_[i].state;
    const bool writes = state.phase() == v1::SaveState::WRITING || state.phase() == v1::SaveState::WRITTEN;
    if (writes && state.plan_digest() != plan_.plan_digest) {
      other.push_back({static_cast<int>(i), PhaseOf(ranks_[i]), "it wrote by a plan that is not today's"});
    }
  }
  if (other.empty()) return;
  Abort(Blame(Reason::kCoordinatorRestarted, context, operation(), "cannot go on after the coordinator restarted",
              std::move(other)),
        context);
}

void Save::OnReserved(uint64_t ticket, const absl::StatusOr<uint32_t>& attempt, Context& context) {
  if (ticket != reserve_ticket_ || ended()) return;
  reserve_ticket_ = 0;
  if (attempt.ok()) {
    attempt_ = *attempt;
    progress_base_ = context.now;
    Touch();
    context.Log("step=", step_, " attempt=", attempt_, " event=numbered");
  } else {
    Abort(Annotate(attempt.status(), absl::StrCat(context.job, "@", step_),
                   {{"job", context.job}, {"step", absl::StrCat(step_)}}),
          context);
  }
}

void Save::OnManifest(uint64_t ticket, const absl::StatusOr<MadeManifest>& made, Context& context) {
  if (ticket != manifest_ticket_ || phase_ != Phase::kCommitting) return;
  if (!made.ok()) {
    Abort(Annotate(made.status(), absl::StrCat(context.job, "@", step_, " attempt ", attempt_),
                   {{"job", context.job}, {"step", absl::StrCat(step_)}, {"attempt", absl::StrCat(attempt_)}}),
          context);
    return;
  }
  const bool compared = std::any_of(ranks_.begin(), ranks_.end(),
                                    [](const Rank& rank) { return rank.state.replica_checksum_size() > 0; });
  if (SavePlanEntry* entry = context.plans.Find(plan_.plan_digest); entry != nullptr && compared) {
    entry->replicas_checked = true;
  }
  manifest_ = *made;
}

void Save::AdvanceCommit(Context& context) {
  if (!decided_ && context.now >= deadline_) {
    Abort(
        OperationError(Reason::kTimedOut, context, operation(),
                       manifest_.has_value() ? "the request's timeout passed while an earlier step's save was undecided"
                                             : "the request's timeout passed before the manifest was made"),
        context);
    return;
  }
  if (!manifest_.has_value() || decided_) return;
  if (context.earliest_step.has_value() && *context.earliest_step < step_) return;
  decided_ = true;
  verdict_ticket_ = context.next_ticket++;
  context.Do(PutVerdict{step_, attempt_, manifest_->manifest, absl::OkStatus(),
                        request_ids_.empty() ? "" : request_ids_.front(), verdict_ticket_});
}

void Save::Commit(const VerdictSummary& verdict, Context& context) {
  verdict_ = verdict;
  error_ = absl::OkStatus();
  End(Phase::kCommitted, context);
}

void Save::OnVerdict(uint64_t ticket, const absl::StatusOr<VerdictSummary>& standing, Context& context) {
  if (ticket != verdict_ticket_ || ended()) return;
  verdict_ticket_ = 0;
  if (!standing.ok()) {
    // Nothing is known to stand there: from here only a tombstone settles it.
    decided_ = false;
    manifest_.reset();
    if (phase_ == Phase::kCommitting) {
      Abort(Annotate(standing.status(), absl::StrCat(context.job, "@", step_, " attempt ", attempt_, ": committing"),
                     {{"job", context.job}, {"step", absl::StrCat(step_)}, {"phase", "committing"}}),
            context);
    } else {
      next_verdict_try_ = context.now + kVerdictRetry;
      context.Log("step=", step_, " attempt=", attempt_, " event=tombstone-failed error=\"",
                  standing.status().message(), "\"");
    }
    return;
  }
  if (standing->committed) {
    Commit(*standing, context);
    return;
  }
  tombstone_stands_ = true;
  if (phase_ == Phase::kCommitting) {
    // Someone else ended the attempt: that is how it ended.
    decided_ = false;
    Abort(standing->error.ok() ? OperationError(Reason::kSuperseded, context, operation(), "ended by a tombstone")
                               : standing->error,
          context);
  } else if (!standing->error.ok() && standing->error.message() != error_.message()) {
    // Another one's. Our own comes back without its metadata, which a tombstone does not hold.
    error_ = standing->error;
  }
  Touch();
}

void Save::Abort(absl::Status error, Context& context) {
  if (ended() || phase_ == Phase::kAborting || decided_) return;
  error_ = std::move(error);
  abort_time_ = context.now;
  SetPhase(Phase::kAborting, context);
}

void Save::Cancel(Context& context) {
  Abort(OperationError(Reason::kSaveCancelled, context, operation(), "cancelled on request"), context);
}

bool Save::AllStopped(const Context& context) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.begun || rank.stopped) continue;
    const Member* member = context.members.Find(static_cast<int>(i));
    if (member != nullptr && member->incarnation == rank.agent) return false;
  }
  return true;
}

void Save::PutTombstone(Context& context) {
  verdict_ticket_ = context.next_ticket++;
  context.Do(
      PutVerdict{step_, attempt_, nullptr, error_, request_ids_.empty() ? "" : request_ids_.front(), verdict_ticket_});
}

void Save::AdvanceAbort(Context& context) {
  if (reserve_ticket_ != 0) return;  // a number may come yet, and with it something to bury
  if (attempt_ == 0) {
    End(Phase::kAborted, context);
    return;
  }
  if (!tombstone_stands_) {
    if (verdict_ticket_ != 0 || context.now < next_verdict_try_) return;
    if (context.now - abort_time_ >= context.options.phase_timeout) {
      // Storage takes no tombstone. The files stay, and no later attempt of the step begins before one stands.
      context.Log("step=", step_, " attempt=", attempt_, " event=tombstone-given-up");
      End(Phase::kAborted, context);
      return;
    }
    PutTombstone(context);
    return;
  }
  if (remove_ticket_ != 0) return;
  if (!AllStopped(context) && context.now - abort_time_ < context.options.lease_ttl) return;
  remove_ticket_ = context.next_ticket++;
  context.Do(RemoveFiles{step_, attempt_, remove_ticket_});
}

void Save::OnRemoved(uint64_t ticket, const absl::Status& status, Context& context) {
  if (ticket != remove_ticket_ || phase_ != Phase::kAborting) return;
  if (!status.ok()) {
    context.Log("step=", step_, " attempt=", attempt_, " event=remove-failed error=\"", status.message(), "\"");
  }
  End(Phase::kAborted, context);
}

void Save::End(Phase phase, Context& context) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const Member* member = context.members.Find(static_cast<int>(i));
    if (!rank.begun && member != nullptr && member->reported) {
      // The rank's next call of save for this step is answered by this verdict, as those of the others were.
      rank.agent = member->incarnation;
      rank.trainer = member->state.trainer().incarnation();
      const bool before = rank.answered_agent == rank.agent && rank.answered_trainer == rank.trainer;
      rank.state.set_call((before ? rank.answered_call : 0) + 1);
    }
    rank.state.clear_result();
    rank.state.clear_replica_checksum();
  }
  manifest_.reset();
  SetPhase(phase, context);
}

void Save::TakeAnsweredCalls(const Save& previous) {
  if (ranks_.size() < previous.ranks_.size()) ranks_.resize(previous.ranks_.size());
  for (size_t i = 0; i < previous.ranks_.size(); ++i) {
    ranks_[i].answered_agent = previous.ranks_[i].agent;
    ranks_[i].answered_trainer = previous.ranks_[i].trainer;
    ranks_[i].answered_call = previous.ranks_[i].state.call();
  }
}

bool Save::Answers(const Member& member, const v1::SaveState& state) const {
  if (!ended()) return true;
  if (static_cast<size_t>(member.rank) >= ranks_.size()) return false;
  const Rank& rank = ranks_[static_cast<size_t>(member.rank)];
  if (attempt_ > 0 && state.attempt() == attempt_ && (!rank.begun || state.call() <= rank.state.call())) return true;
  return rank.agent == member.incarnation && (rank.trainer == member.state.trainer().incarnation() || rank.begun) &&
         state.call() <= rank.state.call();
}

std::string Save::OrdersSignature() const {
  return absl::StrCat(step_, ",", static_cast<int>(phase_), ",", plan_.plan_digest, ",", attempt_, ",",
                      tombstone_stands_, check_replicas_, request_ids_.size());
}

v1::SaveOrder Save::OrderFor(const Member& member, const v1::SaveState& state, const Context& context) const {
  v1::SaveOrder order;
  order.set_step(step_);
  if (!request_ids_.empty()) order.set_request_id(request_ids_.front());
  const Rank* rank =
      static_cast<size_t>(member.rank) < ranks_.size() ? &ranks_[static_cast<size_t>(member.rank)] : nullptr;
  switch (phase_) {
    case Phase::kCollecting:
    case Phase::kWriting:
    case Phase::kCommitting:
      if (!has_plan()) {
        order.set_action(v1::SaveOrder::WAIT);
        break;
      }
      order.set_plan_digest(plan_.plan_digest);
      order.set_check_replicas(check_replicas_);
      order.set_action(attempt_ == 0 ? v1::SaveOrder::STAGE : v1::SaveOrder::WRITE);
      for (const auto& [from, to] : plan_.moves) {
        if (from != member.rank && to != member.rank) continue;
        order.set_transfer_token(plan_.transfer_token);
        const Member* peer = to == member.rank ? context.members.Find(from) : nullptr;
        if (peer != nullptr) *order.add_peer() = TransferPeerFor(*peer, member);
      }
      break;
    case Phase::kAborting: {
      const bool begun = rank != nullptr && rank->begun && rank->agent == member.incarnation;
      if (!begun || state.call() > rank->state.call()) {
        order.set_action(v1::SaveOrder::WAIT);  // its call is answered when this attempt has ended
        return order;
      }
      // Who is told ABORTED finds the files gone and may save again.
      order.set_action(v1::SaveOrder::ABORT);
      *order.mutable_error() = StatusToProto(error_);
      order.set_call(rank->state.call());
      break;
    }
    case Phase::kCommitted:
      order.set_action(v1::SaveOrder::COMMITTED);
      order.set_bytes(verdict_.bytes);
      order.set_world_size(verdict_.world_size);
      order.set_call(state.call());
      break;
    case Phase::kAborted:
      order.set_action(v1::SaveOrder::ABORTED);
      *order.mutable_error() = StatusToProto(error_);
      order.set_call(state.call());
      break;
  }
  if (attempt_ > 0) {
    order.set_attempt(attempt_);
    order.set_directory(AttemptDirectory(context.job, step_, attempt_));
  }
  return order;
}

}  // namespace cairn
