#include "coordinator/job/step_changes.h"

#include <algorithm>
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

void StepChanges::AskToPrune(const JobContext& context) {
  for (const Change& change : changes_) {
    const auto* prune = std::get_if<PruneSteps>(&change.action.change);
    if (prune != nullptr && !prune->policy.has_value() && !change.ended && change.action.ticket == 0) return;
  }
  // If too many wait, the next commit asks again.
  Ask({PruneSteps{}}, context).status().IgnoreError();
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

void StepChanges::Advance(const Loads& loads, JobContext& context) {
  for (Change& change : changes_) {
    if (change.ended) continue;
    if (change.action.ticket != 0) return;  // under way
    if (context.now < change.next_try) continue;
    if (absl::Status refused = Check(change.action, loads, context); !refused.ok()) {
      End(change, std::move(refused), context);
      continue;
    }
    if (auto* prune = std::get_if<PruneSteps>(&change.action.change)) prune->in_use = loads.WantedSteps();
    change.action.ticket = context.NewTicket();
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
  End(*found, result, context);
  return true;
}

void StepChanges::Forget(absl::Time now) {
  changes_.remove_if([&](const Change& change) { return change.ended && now - change.end > kKept; });
}

}  // namespace cairn
