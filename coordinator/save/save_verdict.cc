// How a save ends: the one record that commits or aborts it, and what follows from it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc/reason.h"
#include "coordinator/job/plan_table.h"
#include "coordinator/save/save.h"

namespace cairn {
namespace {

constexpr absl::Duration kVerdictRetry = absl::Seconds(1);

}  // namespace

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
  context.Do(PutVerdict{step_, attempt_, attempt_nonce_, manifest_->manifest, manifest_->bins, absl::OkStatus(),
                        request_ids_.empty() ? "" : request_ids_.front(), verdict_ticket_});
}

void Save::Commit(const VerdictSummary& verdict, Context& context) {
  verdict_ = verdict;
  error_ = absl::OkStatus();
  End(Phase::kCommitted, context);
}

void Save::OnVerdict(uint64_t ticket, const PutOutcome& outcome, Context& context) {
  const absl::StatusOr<VerdictSummary>& standing = outcome.standing;
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
  context.Do(PutVerdict{step_, attempt_, attempt_nonce_, nullptr, nullptr, error_,
                        request_ids_.empty() ? "" : request_ids_.front(), verdict_ticket_});
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

}  // namespace cairn
