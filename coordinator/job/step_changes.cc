#include "coordinator/job/step_changes.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMaxChanges = 64;
constexpr absl::Duration kKept = absl::Minutes(1);

}  // namespace

absl::StatusOr<uint64_t> StepChanges::Ask(ChangeSteps change, const JobContext& context) {
  if (const auto* wanted = std::get_if<PruneSteps>(&change.change); wanted != nullptr) {
    for (const Change& each : changes_) {
      const auto* prune = std::get_if<PruneSteps>(&each.action.change);
      if (!each.ended && prune != nullptr && prune->after.has_value() && prune->policy == wanted->policy &&
          prune->dry_run == wanted->dry_run) {
        return each.number;
      }
    }
  }
  return Add(std::move(change), context);
}

absl::StatusOr<uint64_t> StepChanges::Add(ChangeSteps change, const JobContext& context) {
  const auto open = std::count_if(changes_.begin(), changes_.end(), [](const Change& each) { return !each.ended; });
  if (static_cast<size_t>(open) >= kMaxChanges) {
    return MakeError(Reason::kOverloaded,
                     absl::StrCat(context.job, ": ", open, " changes of its steps wait for storage already"),
                     {{"job", context.job}});
  }
  Change& added = changes_.emplace_back();
  added.number = ++last_number_;
  added.action = std::move(change);
  return added.number;
}

void StepChanges::AskToPrune(const JobContext& context, absl::Time next_try) {
  for (Change& change : changes_) {
    const auto* prune = std::get_if<PruneSteps>(&change.action.change);
    if (prune == nullptr || prune->policy.has_value() || prune->dry_run || change.ended) continue;
    // One that has begun may have chosen without what is committed now.
    if (change.action.ticket != 0 || prune->after.has_value()) continue;
    change.next_try = std::min(change.next_try, next_try);
    return;
  }
  // If too many wait, the next commit asks again.
  if (Add({PruneSteps{}}, context).ok()) changes_.back().next_try = next_try;
}

void StepChanges::AskToDeleteReplaced(int64_t step, const JobContext& context) {
  // If too many wait, the next commit of the step or the next coordinator asks again.
  Ask({DeleteReplaced{step}}, context).status().IgnoreError();
}

const absl::StatusOr<ChangedSteps>* StepChanges::Find(uint64_t number) const {
  const auto found = std::find_if(changes_.begin(), changes_.end(),
                                  [&](const Change& change) { return change.number == number && change.ended; });
  return found == changes_.end() ? nullptr : &found->result;
}

absl::Status StepChanges::Check(const ChangeSteps& action, const Loads& loads, const JobContext& context) {
  const auto* deletion = std::get_if<DeleteStep>(&action.change);
  if (deletion == nullptr) return absl::OkStatus();
  const int64_t step = deletion->step;
  if (!loads.MayRead(step)) return absl::OkStatus();
  return MakeError(Reason::kCheckpointInUse, absl::StrCat(context.job, "@", step, " is being loaded"),
                   {{"job", context.job}, {"step", absl::StrCat(step)}});
}

const ChangedSteps* StepChanges::SoFar(uint64_t number) const {
  const auto found = std::find_if(changes_.begin(), changes_.end(),
                                  [&](const Change& change) { return change.number == number && !change.ended; });
  if (found == changes_.end() || !found->result.ok() || found->result->choices.empty()) return nullptr;
  return &*found->result;
}

void StepChanges::Advance(const Loads& loads, const OutcomeBook& outcomes, const JobContext& context) {
  for (Change& change : changes_) {
    if (change.ended) continue;
    if (change.action.ticket != 0) return;  // under way
    if (context.now < change.next_try) continue;
    if (absl::Status refused = Check(change.action, loads, context); !refused.ok()) {
      End(change, std::move(refused), context);
      continue;
    }
    if (auto* prune = std::get_if<PruneSteps>(&change.action.change)) {
      prune->in_use = loads.WantedSteps();
      // After each commit it is too dear to list all steps that a job ever had.
      if (!prune->policy.has_value()) prune->steps = outcomes.Checkpoints();
    }
    change.action.ticket = context.NewTicket();
    change.action.latest = context.last_committed;
    context.Do(ChangeSteps(change.action));
    return;
  }
}

void StepChanges::End(Change& change, absl::StatusOr<ChangedSteps> result, const JobContext& context) {
  change.ended = true;
  change.result = std::move(result);
  change.end = context.now;
}

bool StepChanges::OnChanged(uint64_t ticket, const absl::StatusOr<ChangedSteps>& result, const JobContext& context) {
  const auto found = std::find_if(changes_.begin(), changes_.end(), [&](const Change& change) {
    return change.action.ticket == ticket && !change.ended;
  });
  if (found == changes_.end()) return false;
  if (!result.ok() && std::holds_alternative<DeleteReplaced>(found->action.change)) {
    found->action.ticket = 0;
    found->next_try = context.now + context.options.storage_timeout;
    return true;
  }
  auto* prune = std::get_if<PruneSteps>(&found->action.change);
  if (prune != nullptr && !result.ok() && !found->result->deleted.empty()) {
    // What was deleted before is told with the error.
    found->result->ended_by = result.status();
    End(*found, std::move(found->result), context);
    return true;
  }
  if (prune == nullptr || !result.ok()) {
    End(*found, result, context);
    return true;
  }
  AddTo(*found->result, *result, prune->after);
  if (!result->stopped_after.has_value()) {
    End(*found, std::move(found->result), context);
    return true;
  }
  prune->after = result->stopped_after;
  found->action.ticket = 0;
  changes_.splice(changes_.end(), changes_, found);
  return true;
}

void StepChanges::AddTo(ChangedSteps& sum, const ChangedSteps& part, std::optional<int64_t> after) {
  // The steps up to `after` had their turn. The fate of the others was chosen anew.
  const auto had_turn = [&](const PruneChoice& choice) { return after.has_value() && choice.step <= *after; };
  std::erase_if(sum.choices, std::not_fn(had_turn));
  std::copy_if(part.choices.begin(), part.choices.end(), std::back_inserter(sum.choices), std::not_fn(had_turn));
  sum.deleted.insert(sum.deleted.end(), part.deleted.begin(), part.deleted.end());
  sum.policy = part.policy;
  sum.ended_by = part.ended_by;
  sum.stopped_after = part.stopped_after;
}

void StepChanges::Forget(absl::Time now) {
  changes_.remove_if([&](const Change& change) { return change.ended && now - change.end > kKept; });
}

}  // namespace cairn
