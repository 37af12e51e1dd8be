// Takes in what has come of the actions that a job has asked for.
#include "coordinator/job/job.h"

namespace cairn {

void Job::EnsureRecovered(const Moment& moment) { recovery_.Begin(Begin(moment)); }

void Job::OnRecovered(const absl::StatusOr<StoredAttempts>& recovered, const Moment& moment) {
  if (recovered.ok()) {
    for (const StoredAttempt& attempt : *recovered) {
      if (!attempt.unfinished) outcomes_.Keep(attempt);
    }
  }
  JobContext& context = Begin(moment);
  ++context.revision;
  if (!recovery_.OnRead(recovered.status(), context)) return;
  size_t unfinished = 0;
  for (const StoredAttempt& attempt : *recovered) {
    if (!attempt.left_over()) continue;
    leftovers_.Add(attempt);
    ++unfinished;
  }
  for (int64_t step : outcomes_.Replaced()) step_changes_.AskToDeleteReplaced(step, context);
  // The last coordinator may have had no time for it. Loads that it has begun may come back with their agents before.
  // A name without checkpoints has nothing to prune, and may be no job at all.
  if (!outcomes_.empty()) step_changes_.AskToPrune(context, context.started + 2 * options_.lease_ttl);
  context.Log(LogLevel::kInfo, "recovered", {{"outcomes", outcomes_.size()}, {"unfinished", unfinished}});
  ApplyAll(context);
  Advance(context);
}

void Job::OnStepRead(int64_t step, uint64_t ticket, const absl::StatusOr<StoredAttempts>& recovered,
                     const Moment& moment) {
  if (!outcomes_.OnRead(step, ticket, recovered, Begin(moment))) return;
  JobContext& context = Begin(moment);  // with what was read
  ++context.revision;
  if (!outcomes_.Committed(step)) ApplyAll(context);
  Advance(context);
}

void Job::OnSavePlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan, const Moment& moment) {
  JobContext& context = Begin(moment);
  plans_.OnPlanned(key, plan);
  current_plan_.OnPlanned();
  ++context.revision;
  Advance(context);
}

void Job::OnReserved(int64_t step, uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++context.revision;
  Save* save = saves_.Active(step);
  const bool taken = save != nullptr && save->OnReserved(ticket, reserved, context);
  // The number comes too late. The directory that was made gets an abort record and is removed, as that of an attempt
  // that nobody finished.
  if (!taken && reserved.ok()) leftovers_.Add({.step = step, .attempt = reserved->attempt, .unfinished = true});
  Advance(context);
}

void Job::OnManifest(int64_t step, uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++context.revision;
  if (Save* save = saves_.Active(step); save != nullptr) save->OnManifest(ticket, made, context);
  current_plan_.InputsChanged();  // its replicas may have been compared
  Advance(context);
}

void Job::OnOutcome(int64_t step, uint64_t ticket, const PutAnswer& answer, const Moment& moment) {
  if (answer.standing.ok()) outcomes_.Keep(*answer.standing);
  JobContext& context = Begin(moment);
  if (answer.standing.ok() && answer.standing->stands()) {
    for (int64_t replaced : outcomes_.Replaced()) {
      if (replaced == step) step_changes_.AskToDeleteReplaced(step, context);
    }
    step_changes_.AskToPrune(context);
  }
  ++context.revision;
  if (Save* save = saves_.Active(step); save != nullptr) {
    save->OnOutcome(ticket, answer, context);
    if (save->ended()) ApplyAll(context);
  }
  leftovers_.OnOutcome(ticket, answer.standing, context);
  Advance(context);
}

void Job::OnRemoved(int64_t step, uint64_t ticket, const absl::Status& status, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++context.revision;
  if (Save* save = saves_.Active(step); save != nullptr) {
    save->OnRemoved(ticket, status, context);
    KeepLeftovers(context);
    if (save->ended()) ApplyAll(context);
  }
  leftovers_.OnRemoved(ticket, status, context);
  Advance(context);
}

void Job::OnStepsChanged(uint64_t ticket, const absl::StatusOr<ChangedSteps>& changed, const Moment& moment) {
  JobContext& context = Begin(moment);
  if (!step_changes_.OnChanged(ticket, changed, context)) return;
  ++context.revision;
  if (changed.ok()) {
    for (const StoredAttempt& deleted : changed->deleted) {
      outcomes_.Keep(deleted);
      // One that was recovered before its commit, and is known as unfinished, may be there still: it removes nothing.
      if (leftovers_.Removing(deleted.step, deleted.attempt)) continue;
      leftovers_.Add(deleted);
      context.Log(LogLevel::kInfo, "deleted", {{"step", deleted.step}, {"attempt", deleted.attempt}});
    }
  }
  Advance(Begin(moment));  // with what is deleted now
}

void Job::OnLoadPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const Moment& moment) {
  JobContext& context = Begin(moment);
  ++context.revision;
  loads_.OnPlanned(id, ticket, plan, context);
  Advance(context);
}

}  // namespace cairn
