#include "coordinator/job/outcome_book.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/status/reason.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {
namespace {

// A caller that asks about a step again within this time gets the same answer.
constexpr absl::Duration kReadKept = absl::Minutes(1);
constexpr absl::Duration kReadAgain = absl::Seconds(1);

}  // namespace

void OutcomeBook::Keep(const StoredAttempt& outcome) { Change()[{outcome.step, outcome.attempt}] = outcome; }

const JobLineage& OutcomeBook::lineage() const {
  if (std::exchange(lineage_stale_, false)) {
    lineage_ = MakeLineage();
    auto known = std::make_shared<KnownSteps>();
    for (const auto& [key, outcome] : outcomes_) {
      if (known->all.empty() || known->all.back() != key.first) known->all.push_back(key.first);
    }
    known->current = Checkpoints();
    std::erase_if(known->current, [&](int64_t step) { return lineage_.superseded().contains(step); });
    std::copy_if(known->current.begin(), known->current.end(), std::back_inserter(known->committed),
                 [this](int64_t step) { return Committed(step); });
    known_steps_ = std::move(known);
  }
  return lineage_;
}

std::shared_ptr<const KnownSteps> OutcomeBook::known_steps() const {
  lineage();
  return known_steps_;
}

JobLineage OutcomeBook::MakeLineage() const {
  std::vector<JobLineage::Commit> commits;
  for (const auto& [key, outcome] : outcomes_) {
    if (!outcome.stands()) continue;
    if (!commits.empty() && commits.back().step == key.first) commits.pop_back();
    commits.push_back({key.first, outcome.lineage});
  }
  return JobLineage(std::move(commits));
}

std::vector<int64_t> OutcomeBook::Checkpoints() const {
  std::vector<int64_t> steps;
  for (const auto& [key, outcome] : outcomes_) {
    const bool counts = outcome.stands() || outcome.damaged;
    if (counts && (steps.empty() || steps.back() != key.first)) steps.push_back(key.first);
  }
  return steps;
}

std::vector<int64_t> OutcomeBook::Replaced() const {
  std::vector<int64_t> steps;
  std::optional<int64_t> before;
  for (const auto& [key, outcome] : outcomes_) {
    if (!outcome.stands()) continue;
    if (before == key.first && (steps.empty() || steps.back() != key.first)) steps.push_back(key.first);
    before = key.first;
  }
  return steps;
}

bool OutcomeBook::Committed(int64_t step) const {
  for (auto it = outcomes_.lower_bound({step, 0}); it != outcomes_.end() && it->first.first == step; ++it) {
    if (it->second.stands()) return true;
  }
  return false;
}

absl::Status OutcomeBook::CommittedError(int64_t step, const JobContext& context) {
  return MakeError(Reason::kStepCommitted, absl::StrCat(context.job, "@", step, " is committed already"),
                   {{"job", context.job}, {"step", absl::StrCat(step)}});
}

const StoredAttempt* OutcomeBook::Find(int64_t step, uint32_t attempt) const {
  const auto found = outcomes_.find({step, attempt});
  return found == outcomes_.end() ? nullptr : &found->second;
}

const StoredAttempt* OutcomeBook::FindSettled(int64_t step, uint32_t attempt) const {
  const StoredAttempt* outcome = Find(step, attempt);
  // An outcome that could not be read once may stand all the same. The attempt goes on, and its own put will find that
  // outcome.
  const bool unread = outcome != nullptr && outcome->damaged && !HasReason(outcome->error, Reason::kManifestCorrupt) &&
                      !HasReason(outcome->error, Reason::kFormatTooNew);
  return unread ? nullptr : outcome;
}

const StoredAttempt* OutcomeBook::Find(const CheckpointKey& key) const {
  const std::optional<int64_t> step = key.step.has_value() || key.by_request() ? key.step : last_committed();
  const StoredAttempt* found = nullptr;
  for (const auto& [at, outcome] : outcomes_) {
    const bool named = key.by_request() ? outcome.request_id == key.request_id : at.first == step;
    // An attempt that failed to take the place of a checkpoint has changed nothing about it.
    if (named && (outcome.stands() || found == nullptr || !found->stands())) found = &outcome;
  }
  return found;
}

bool OutcomeBook::HasLater(int64_t step, uint32_t attempt) const {
  const auto later = outcomes_.upper_bound({step, attempt});
  return later != outcomes_.end() && later->first.first == step;
}

std::optional<bool> OutcomeBook::StillCommitted(int64_t step, const std::string& caller, const JobContext& context) {
  if (WasRefused(step, caller)) return true;
  if (!Committed(step)) return false;
  Read& read = reads_[step];
  if (!read.asking.contains(caller)) read.waiting.insert(caller);
  Begin(step, read, context);
  return std::nullopt;
}

bool OutcomeBook::WasRefused(int64_t step, const std::string& caller) const {
  const auto read = reads_.find(step);
  return read != reads_.end() && read->second.answered.contains(caller);
}

void OutcomeBook::ReadUnsettled(int64_t step, uint32_t attempt, const std::string& caller, const JobContext& context) {
  const bool unsettled = Find(step, attempt) != nullptr && FindSettled(step, attempt) == nullptr;
  if (!unsettled || context.now < next_unsettled_read_) return;
  next_unsettled_read_ = context.now + kReadAgain;
  Read& read = reads_[step];
  read.waiting.insert(caller);
  Begin(step, read, context);
}

void OutcomeBook::Begin(int64_t step, Read& read, const JobContext& context) {
  if (read.ticket != 0 || read.waiting.empty()) return;
  read.ticket = context.NewTicket();
  read.begun = context.now;
  read.asking = std::exchange(read.waiting, {});
  context.Do(ReadStep{step, read.ticket});
}

bool OutcomeBook::OnRead(int64_t step, uint64_t ticket, const absl::StatusOr<StoredAttempts>& result,
                         const JobContext& context) {
  const auto found = reads_.find(step);
  if (found == reads_.end() || found->second.ticket != ticket) return false;
  if (result.ok()) {
    Outcomes& outcomes = Change();
    outcomes.erase(outcomes.lower_bound({step, 0}), outcomes.lower_bound({step + 1, 0}));
    for (const StoredAttempt& attempt : *result) {
      if (!attempt.unfinished) Keep(attempt);
    }
  }
  Read& read = found->second;
  read.ticket = 0;
  if (Committed(step)) {
    read.answered.merge(read.asking);
    read.answered_time = context.now;
    read.asking.clear();
    Begin(step, read, context);
  } else {
    context.Log(LogLevel::kWarn, "checkpoint_gone", {{"step", step}});
    read.asking.clear();
    read.waiting.clear();
  }
  return true;
}

absl::Status OutcomeBook::ReadStalled(int64_t step, const JobContext& context) const {
  const auto read = reads_.find(step);
  if (read == reads_.end() || read->second.ticket == 0 ||
      context.now - read->second.begun < context.options.storage_timeout) {
    return absl::OkStatus();
  }
  return OperationError(Reason::kStorageStalled, context, {"save", step},
                        absl::StrCat("storage has not said for ", DurationText(context.options.storage_timeout),
                                     " whether the step is still committed"));
}

void OutcomeBook::Forget(absl::Time now) {
  std::erase_if(reads_, [&](const auto& entry) {
    const Read& read = entry.second;
    return read.ticket == 0 && read.waiting.empty() && now - read.answered_time > kReadKept;
  });
}

}  // namespace cairn
