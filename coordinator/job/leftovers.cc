#include "coordinator/job/leftovers.h"

#include <algorithm>

#include "common/status/reason.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {

namespace {

// Files are removed by this many actions at a time. Each of them uses many threads of the storage.
constexpr int kRemovalsAtOnce = 2;

// By then the agents of an earlier coordinator have come back with what they do, or their leases have ended.
absl::Time FirstRemoval(const JobContext& context) { return context.started + 2 * context.options.lease_ttl; }

}  // namespace

bool Leftovers::Removing(int64_t step, uint32_t attempt) const {
  const auto [begin, end] = sweeps_.equal_range({step, attempt});
  return std::any_of(begin, end, [](const auto& entry) {
    const Sweep& sweep = entry.second;
    return !sweep.leftover.unfinished && sweep.ticket != 0;
  });
}

Leftovers::Due Leftovers::DueRemovals(const JobContext& context) const {
  Due due;
  for (const auto& [place, sweep] : sweeps_) {
    if (!sweep.leftover.deleted || sweep.done) continue;
    ++due.attempts;
    due.refused += sweep.refused ? 1 : 0;
  }
  due.delay = std::max(FirstRemoval(context) - context.now, absl::ZeroDuration());
  return due;
}

void Leftovers::Advance(const Saves& saves, const Loads& loads, const OutcomeBook& outcomes,
                        const JobContext& context) {
  if (context.now < FirstRemoval(context)) return;
  std::erase_if(sweeps_, [](const auto& entry) { return entry.second.done; });
  auto removals = std::count_if(sweeps_.begin(), sweeps_.end(), [](const auto& entry) {
    return !entry.second.leftover.unfinished && entry.second.ticket != 0;
  });
  for (auto& [place, sweep] : sweeps_) {
    if (sweep.ticket != 0 || sweep.done || context.now < sweep.next_try) continue;
    if (!sweep.leftover.unfinished && removals >= kRemovalsAtOnce) continue;
    const auto& [step, attempt] = place;
    if (sweep.leftover.deleted) {
      // Whatever begins now finds the deletion; what has begun before may have found the checkpoint.
      if (loads.MayRead(step)) continue;
      Begin(sweep, context);
      ++removals;
      continue;
    }
    // Meanwhile a save, or the number of a new attempt, may have taken this one up.
    const StoredAttempt* outcome = outcomes.Find(step, attempt);
    if (outcome != nullptr && outcome->committed) sweep.done = true;
    if (const Save* save = saves.Active(step); save != nullptr && save->attempt() == attempt) continue;
    for (const auto& [rank, member] : context.members.members()) {
      for (const v1::SaveState& state : member.state.saves()) {
        if (state.step() == step && state.attempt() == attempt) {
          sweep.next_try = context.now + context.options.lease_ttl;
        }
      }
    }
    if (sweep.done || context.now < sweep.next_try) continue;
    Begin(sweep, context);
    removals += sweep.leftover.unfinished ? 0 : 1;
  }
  std::erase_if(sweeps_, [](const auto& entry) { return entry.second.done; });
}

void Leftovers::Begin(Sweep& sweep, const JobContext& context) {
  const int64_t step = sweep.leftover.step;
  const uint32_t attempt = sweep.leftover.attempt;
  sweep.ticket = context.NewTicket();
  context.Log(LogLevel::kInfo, "sweeping", {{"step", step}, {"attempt", attempt}});
  if (!sweep.leftover.unfinished) {
    context.Do(RemoveFiles{step, attempt, sweep.leftover.deleted, sweep.ticket, context.last_committed});
    return;
  }
  const absl::Status error = OperationError(Reason::kCoordinatorRestarted, context, {"save", step, attempt},
                                            "left unfinished, and no rank came back with it");
  context.Do(PutOutcome{step, attempt, 0, nullptr, nullptr, error, "", sweep.ticket});
}

void Leftovers::OnOutcome(uint64_t ticket, const absl::StatusOr<StoredAttempt>& standing, const JobContext& context) {
  for (auto& [place, sweep] : sweeps_) {
    if (sweep.ticket != ticket) continue;
    sweep.ticket = 0;
    sweep.leftover.unfinished = !standing.ok() || standing->committed;
    sweep.done = standing.ok() && standing->damaged;  // its files stay for whoever may rescue them
    if (!standing.ok()) sweep.next_try = context.now + context.options.lease_ttl;
  }
}

void Leftovers::OnRemoved(uint64_t ticket, const absl::Status& status, const JobContext& context) {
  for (auto& [place, sweep] : sweeps_) {
    if (sweep.ticket != ticket) continue;
    // The next coordinator tries what has failed again. People who deleted a checkpoint want its room before.
    sweep.done = status.ok() || !sweep.leftover.deleted;
    if (sweep.done) continue;
    sweep.ticket = 0;
    sweep.refused = true;
    sweep.next_try = context.now + context.options.storage_timeout;
    context.Log(LogLevel::kWarn, "files_left",
                {{"step", sweep.leftover.step}, {"attempt", sweep.leftover.attempt}, {"error", status}});
  }
}

}  // namespace cairn
