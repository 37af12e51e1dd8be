// Ends a save: by the one record that commits or aborts it, and by what follows from it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/status/reason.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/save/save.h"

namespace cairn {
namespace {

constexpr absl::Duration kOutcomeRetry = absl::Seconds(1);

}  // namespace

void Save::AdvanceCommit(const Before& before, const JobContext& context) {
  const bool first = before.step.value_or(step_) >= step_;
  const bool held_up = manifest_.has_value() && !first && context.stalled_step.value_or(step_) < step_;
  if (!decided_) {
    if (context.now >= deadline_) {
      Abort(held_up ? *StorageStall({}, context)
                    : OperationError(Reason::kTimedOut, context, operation(),
                                     manifest_.has_value()
                                         ? "the request's timeout passed while an earlier step's save was undecided"
                                         : "the request's timeout passed before the manifest was made"),
            context);
      return;
    }
    if (!manifest_.has_value() && context.now - manifest_time_ >= context.options.storage_patience()) {
      Abort(OperationError(
                Reason::kStorageStalled, context, operation(),
                absl::StrCat("the manifest was not made within ", DurationText(context.options.storage_patience()),
                             ", because the coordinator's storage does not answer")),
            context);
      return;
    }
    if (held_up) Stall(*StorageStall({}, context), context);
    if (!manifest_.has_value() || !first) return;
    Stall(absl::OkStatus(), context);
    decided_ = true;
    decided_time_ = context.now;
    PutManifest(context);
    return;
  }
  if (stalled_.ok() && context.now - decided_time_ >= context.options.storage_timeout) {
    Stall(OperationError(Reason::kStorageStalled, context, operation(),
                         absl::StrCat("storage has not said for ", DurationText(context.options.storage_timeout),
                                      " whether the commit stands; nobody knows the outcome yet")),
          context);
  }
  if (context.now < next_outcome_try_) return;
  // Any number of puts may be under way, repeated ones and opposite ones: the first record that stands decides.
  if (!given_up_.ok() && (outcome_ticket_ == 0 || outcome_ticket_is_manifest_)) {
    PutAbortRecord(given_up_, context);
  } else if (outcome_ticket_ == 0) {
    PutManifest(context);
  }
}

void Save::Stall(absl::Status stalled, const JobContext& context) {
  if (stalled_ == stalled) return;
  stalled_ = std::move(stalled);
  std::vector<LogField> fields = {{"step", step_}, {"attempt", attempt_}};
  if (!stalled_.ok()) fields.emplace_back("error", stalled_);
  context.Log(stalled_.ok() ? LogLevel::kInfo : LogLevel::kWarn, stalled_.ok() ? "resumed" : "stalled",
              std::move(fields));
}

void Save::Commit(const StoredAttempt& outcome, const JobContext& context) {
  outcome_ = outcome;
  error_ = absl::OkStatus();
  End(v1::Phase::COMMITTED, context);
}

void Save::OnOutcome(uint64_t ticket, const PutAnswer& answer, const JobContext& context) {
  const absl::StatusOr<StoredAttempt>& standing = answer.standing;
  if (ended() || (standing.ok() && standing->attempt != attempt_)) return;
  const bool newest = ticket != 0 && ticket == outcome_ticket_;
  if (!standing.ok()) {
    // If another put has followed this one, only what this one found counts.
    if (!newest) return;
    const bool manifest = outcome_ticket_is_manifest_;
    const auto committing_failed = [&] {
      return Annotate(standing.status(), absl::StrCat(context.job, "@", step_, " attempt ", attempt_, ": committing"),
                      {{"job", context.job}, {"step", absl::StrCat(step_)}, {"phase", "committing"}});
    };
    outcome_ticket_ = 0;
    next_outcome_try_ = context.now + kOutcomeRetry;
    in_doubt_ = in_doubt_ || (manifest && answer.in_doubt);
    context.Log(
        LogLevel::kWarn, manifest ? "manifest_failed" : "abort_record_failed",
        {{"step", step_}, {"attempt", attempt_}, {"in_doubt", in_doubt_ ? 1 : 0}, {"error", standing.status()}});
    // Its files are gone, so it cannot be put again: whether it stands is found by an abort record, which is created
    // only if it does not.
    const bool lost = manifest && HasReason(standing.status(), Reason::kRootMismatch);
    if (phase_ == v1::Phase::COMMITTING && lost && in_doubt_ && given_up_.ok()) given_up_ = committing_failed();
    if (phase_ != v1::Phase::COMMITTING || !manifest || in_doubt_) return;
    // The manifest does not stand there and never will. From here only an abort record settles the attempt.
    decided_ = false;
    manifest_.reset();
    next_outcome_try_ = absl::InfinitePast();
    Abort(given_up_.ok() ? committing_failed() : given_up_, context);
    return;
  }
  outcome_ticket_ = 0;
  if (standing->stands()) {
    Commit(*standing, context);
    return;
  }
  if (standing->deleted) {
    error_ = OperationError(
        Reason::kStorageError, context, operation(),
        absl::StrCat("attempt ", attempt_, " was committed and deleted before, and storage did not list it"));
    End(v1::Phase::ABORTED, context);
    return;
  }
  if (standing->damaged) {
    // The record may have been misread. Nobody is told how the save ended before that is certain.
    if (decided_ && context.now - decided_time_ < context.options.storage_timeout) {
      in_doubt_ = true;
      next_outcome_try_ = context.now + kOutcomeRetry;
      context.Log(LogLevel::kWarn, "outcome_damaged",
                  {{"step", step_}, {"attempt", attempt_}, {"error", standing->error}});
      return;
    }
    // Nobody can load the attempt. Its files stay, so that a person may rescue it.
    error_ = standing->error;
    End(v1::Phase::ABORTED, context);
    return;
  }
  abort_record_stands_ = true;
  if (phase_ == v1::Phase::COMMITTING) {
    // Another process has ended the attempt, so that is how it ended.
    decided_ = false;
    const bool ours = !given_up_.ok() && standing->error.message() == given_up_.message();
    Abort(ours                   ? given_up_
          : standing->error.ok() ? OperationError(Reason::kSuperseded, context, operation(), "ended by an abort record")
                                 : standing->error,
          context);
  } else if (!standing->error.ok() && standing->error.message() != error_.message()) {
    // It is another one's. Our own comes back without its metadata, which an abort record does not hold.
    error_ = standing->error;
  }
}

void Save::Abort(const absl::Status& error, const JobContext& context) {
  if (ended() || phase_ == v1::Phase::ABORTING || decided_) return;
  error_ = WithRoot(error, context);
  abort_time_ = context.now;
  stalled_ = absl::OkStatus();
  SetPhase(v1::Phase::ABORTING, context);
}

void Save::Cancel(const JobContext& context) {
  const absl::Status error = OperationError(Reason::kSaveCancelled, context, operation(), "cancelled on request");
  if (phase_ == v1::Phase::COMMITTING && decided_) {
    if (given_up_.ok()) given_up_ = error;
    return;
  }
  Abort(error, context);
}

void Save::PutManifest(const JobContext& context) {
  outcome_ticket_ = context.NewTicket();
  outcome_ticket_is_manifest_ = true;
  context.Do(PutOutcome{step_, attempt_, attempt_nonce_, manifest_->manifest, manifest_->bins, absl::OkStatus(),
                        request_id(), outcome_ticket_});
}

void Save::PutAbortRecord(const absl::Status& error, const JobContext& context) {
  outcome_ticket_ = context.NewTicket();
  outcome_ticket_is_manifest_ = false;
  context.Do(PutOutcome{step_, attempt_, attempt_nonce_, nullptr, nullptr, error, request_id(), outcome_ticket_});
}

void Save::AdvanceAbort(const JobContext& context) {
  if (reserve_ticket_ != 0 && context.now - reserve_time_ < context.options.storage_patience()) {
    return;  // a number may come yet, and with it something to bury
  }
  if (attempt_ == 0) {
    // A number that comes later is buried as what nobody finished.
    End(v1::Phase::ABORTED, context);
    return;
  }
  if (!abort_record_stands_) {
    // No manifest was handed out, or it is known not to stand: nobody can commit the attempt.
    if (context.now - abort_time_ >= context.options.phase_timeout) {
      // Storage takes no abort record for now. No later attempt of the step begins before one stands.
      context.Log(LogLevel::kWarn, "abort_record_given_up", {{"step", step_}, {"attempt", attempt_}});
      leftover_ = {.step = step_, .attempt = attempt_, .unfinished = true};
      End(v1::Phase::ABORTED, context);
      return;
    }
    if (outcome_ticket_ == 0 && context.now >= next_outcome_try_) PutAbortRecord(error_, context);
    return;
  }
  if (remove_ticket_ != 0) {
    if (context.now - remove_time_ < context.options.storage_patience()) return;
    context.Log(LogLevel::kWarn, "remove_given_up", {{"step", step_}, {"attempt", attempt_}});
    leftover_ = {.step = step_, .attempt = attempt_};
    End(v1::Phase::ABORTED, context);
    return;
  }
  if (ranks_.count(SaveRank::kActive) > 0 && context.now - abort_time_ < context.options.lease_ttl) return;
  remove_ticket_ = context.NewTicket();
  remove_time_ = context.now;
  context.Do(RemoveFiles{step_, attempt_, /*deleted=*/false, remove_ticket_});
}

void Save::OnRemoved(uint64_t ticket, const absl::Status& status, const JobContext& context) {
  if (ticket != remove_ticket_ || phase_ != v1::Phase::ABORTING) return;
  if (!status.ok()) {
    context.Log(LogLevel::kWarn, "remove_failed", {{"step", step_}, {"attempt", attempt_}, {"error", status}});
    leftover_ = {.step = step_, .attempt = attempt_};
  }
  End(v1::Phase::ABORTED, context);
}

void Save::End(v1::Phase::Value phase, const JobContext& context) {
  const bool committed = phase == v1::Phase::COMMITTED;
  timeline_->Finish(
      {context.job, v1::Timeline::SAVE, step_, attempt_, committed ? outcome_.bytes : plan_.bytes, ranks_.size(),
       committed ? absl::OkStatus() : error_, committed ? AlarmKinds() : std::vector<std::string>()},
      context.now);
  context.effects.timelines.push_back(timeline_);
  end_revision_ = context.revision;
  if (phase == v1::Phase::ABORTED) OpenReplies(context);
  if (committed) exchange_.Finish(context);
  // Frees what an ended save does not need any more.
  ranks_.ChangeKept([](SaveRank& rank) {
    rank.state.clear_result();
    rank.state.clear_replica_checksums();
    rank.state.clear_awaited_ranks();
    rank.state.clear_error();
  });
  plan_.moves = {};
  moving_ = {};
  plan_.transfer_token.clear();
  plan_.hold = nullptr;
  manifest_.reset();
  stalled_ = absl::OkStatus();
  given_up_ = absl::OkStatus();
  SetPhase(phase, context);
}

std::vector<std::string> Save::AlarmKinds() const {
  std::vector<std::string> kinds;
  for (const absl::Status& warning : warnings_) kinds.push_back(MetadataOf(warning)["alarm"]);
  return kinds;
}

void Save::OpenReplies(const JobContext& context) {
  replies_.Open(step_, ranks_.size(), abort_time_ + 2 * context.options.lease_ttl);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const SaveRank& rank = ranks_[i];
    const int index = static_cast<int>(i);
    uint64_t trainer = 0;
    if (rank.begun) {
      // A call that had staged has returned: its trainer asks for the outcome itself.
      trainer = rank.staged() ? 0 : rank.trainer;
    } else if (!rank.awaited.successor()) {
      // A trainer whose agent has just restarted attaches again in a moment.
      trainer = rank.awaited.trainer() != 0 ? rank.awaited.trainer() : context.members.LastTrainer(index);
      // After a restart of the coordinator one whose agent has not come back yet may have called long before.
      const Member* member = context.members.Find(index);
      if (trainer == 0 && (member == nullptr || !member->reported)) continue;
    }
    replies_.Expect(index, trainer);
  }
}

void Save::HoldForReply(const Member& member, const v1::SaveState& state, absl::Time now) {
  if (HasBegunBy(member)) return;  // its call is answered already
  replies_.Hold(member, state, now);
}

void Save::NoteTold(const Member& member, absl::Time now) {
  const std::optional<uint64_t> own_call =
      HasBegunBy(member) ? std::optional(rank(member.rank).state.call()) : std::nullopt;
  replies_.OnReport(member, own_call, now);
}

}  // namespace cairn
