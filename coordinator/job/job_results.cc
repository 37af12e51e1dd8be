// Takes in what has come of the actions that a job has asked for.
#include "coordinator/job/job.h"

namespace cairn {

void Job::EnsureRecovered(const Moment& moment) { recovery_.Begin(At(moment)); }

void Job::OnRecovered(const absl::StatusOr<StoredAttempts>& recovered, const Moment& moment) {
  if (recovered.ok()) {
    for (const StoredAttempt& attempt : *recovered) {
      if (!attempt.unfinished) outcomes_.Keep(attempt);
    }
  }
  const JobContext context = Begin(moment);
  News news = recovery_.OnRead(recovered.status(), context);
  if (!recovered.ok()) return Tell(news, context);
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
  news += ApplyAll(context);
  Finish(std::move(news), context);
}

void Job::OnStepRead(int64_t step, uint64_t ticket, const absl::StatusOr<StoredAttempts>& recovered,
                     const Moment& moment) {
  if (!outcomes_.OnRead(step, ticket, recovered, At(moment))) return;
  const JobContext context = Begin(moment);  // with what was read
  News news = News::Urgent();
  if (!outcomes_.Committed(step)) news += ApplyAll(context);
  Finish(std::move(news), context);
}

void Job::OnSavePlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan, const Moment& moment) {
  plans_.OnPlanned(key, plan);
  current_plan_.OnPlanned();
  Finish(News::Step(), Begin(moment));
}

void Job::OnReserved(int64_t step, uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const Moment& moment) {
  const JobContext context = Begin(moment);
  Save* save = saves_.Active(step);
  const bool taken = save != nullptr && save->OnReserved(ticket, reserved, context);
  // The number comes too late. The directory that was made gets an abort record and is removed, as that of an attempt
  // that nobody finished.
  if (!taken && reserved.ok()) leftovers_.Add({.step = step, .attempt = reserved->attempt, .unfinished = true});
  Finish(News::Step(), context);
}

void Job::OnManifest(int64_t step, uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const Moment& moment) {
  const JobContext context = Begin(moment);
  if (Save* save = saves_.Active(step); save != nullptr) save->OnManifest(ticket, made, context);
  current_plan_.InputsChanged();  // its replicas may have been compared
  Finish(News::Step(), context);
}

void Job::OnOutcome(int64_t step, uint64_t ticket, const PutAnswer& answer, const Moment& moment) {
  if (answer.standing.ok()) outcomes_.Keep(*answer.standing);
  const JobContext context = Begin(moment);
  if (answer.standing.ok() && answer.standing->stands()) {
    for (int64_t replaced : outcomes_.Replaced()) {
      if (replaced == step) step_changes_.AskToDeleteReplaced(step, context);
    }
    step_changes_.AskToPrune(context);
  }
  if (Save* save = saves_.Active(step); save != nullptr) save->OnOutcome(ticket, answer, context);
  leftovers_.OnOutcome(ticket, answer.standing, context);
  Finish(News::Step(), context);
}

void Job::OnRemoved(int64_t step, uint64_t ticket, const absl::Status& status, const Moment& moment) {
  const JobContext context = Begin(moment);
  if (Save* save = saves_.Active(step); save != nullptr) save->OnRemoved(ticket, status, context);
  leftovers_.OnRemoved(ticket, status, context);
  Finish(News::Step(), context);
}

void Job::OnStepsChanged(uint64_t ticket, const absl::StatusOr<ChangedSteps>& changed, const Moment& moment) {
  const JobContext context = At(moment);
  if (!step_changes_.OnChanged(ticket, changed, context)) return;
  if (changed.ok()) {
    for (const StoredAttempt& deleted : changed->only_at_mirror ? StoredAttempts() : changed->deleted) {
      outcomes_.Keep(deleted);
      // One that was recovered before its commit, and is known as unfinished, may be there still: it removes nothing.
      if (leftovers_.Removing(deleted.step, deleted.attempt)) continue;
      leftovers_.Add(deleted);
      context.Log(LogLevel::kInfo, "deleted", {{"step", deleted.step}, {"attempt", deleted.attempt}});
    }
  }
  Finish(News::Step(), Begin(moment));  // with what is deleted now
}

void Job::OnLoadPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const Moment& moment) {
  const JobContext context = Begin(moment);
  loads_.OnPlanned(id, ticket, plan, context);
  Finish(News::Step(), context);
}

void Job::OnLoadVerified(uint64_t id, uint64_t ticket, const absl::StatusOr<uint64_t>& tensors, const Moment& moment) {
  const JobContext context = Begin(moment);
  loads_.OnVerified(id, ticket, tensors, context);
  Finish(News::Step(), context);
}

}  // namespace cairn
