#include "coordinator/job/verdict_book.h"

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

void VerdictBook::Keep(const VerdictSummary& verdict) {
  verdicts_[{verdict.step, verdict.attempt}] = verdict;
  lines_stale_ = true;
}

const CommittedLines& VerdictBook::lines() const {
  if (std::exchange(lines_stale_, false)) {
    lines_ = MakeLines();
    auto known = std::make_shared<KnownSteps>();
    for (const auto& [key, verdict] : verdicts_) {
      if (known->all.empty() || known->all.back() != key.first) known->all.push_back(key.first);
    }
    known->current = Checkpoints();
    std::erase_if(known->current, [&](int64_t step) { return lines_.superseded().contains(step); });
    std::copy_if(known->current.begin(), known->current.end(), std::back_inserter(known->committed),
                 [this](int64_t step) { return Committed(step); });
    known_steps_ = std::move(known);
  }
  return lines_;
}

std::shared_ptr<const KnownSteps> VerdictBook::known_steps() const {
  lines();
  return known_steps_;
}

bool VerdictBook::IsConsistent() const {
  const CommittedLines made = MakeLines();
  return lines().superseded() == made.superseded() && lines().latest() == made.latest() &&
         lines().sequence() == made.sequence();
}

CommittedLines VerdictBook::MakeLines() const {
  std::vector<CommittedLines::Commit> commits;
  for (const auto& [key, verdict] : verdicts_) {
    if (!verdict.stands()) continue;
    if (!commits.empty() && commits.back().step == key.first) commits.pop_back();
    commits.push_back({key.first, verdict.lineage});
  }
  return CommittedLines(std::move(commits));
}

std::vector<int64_t> VerdictBook::Checkpoints() const {
  std::vector<int64_t> steps;
  for (const auto& [key, verdict] : verdicts_) {
    const bool counts = verdict.stands() || verdict.damaged;
    if (counts && (steps.empty() || steps.back() != key.first)) steps.push_back(key.first);
  }
  return steps;
}

std::vector<int64_t> VerdictBook::Replaced() const {
  std::vector<int64_t> steps;
  std::optional<int64_t> before;
  for (const auto& [key, verdict] : verdicts_) {
    if (!verdict.stands()) continue;
    if (before == key.first && (steps.empty() || steps.back() != key.first)) steps.push_back(key.first);
    before = key.first;
  }
  return steps;
}

bool VerdictBook::Committed(int64_t step) const {
  for (auto it = verdicts_.lower_bound({step, 0}); it != verdicts_.end() && it->first.first == step; ++it) {
    if (it->second.stands()) return true;
  }
  return false;
}

absl::Status VerdictBook::CommittedError(int64_t step, const JobContext& context) {
  return MakeError(Reason::kStepCommitted, absl::StrCat(context.job, "@", step, " is committed already"),
                   {{"job", context.job}, {"step", absl::StrCat(step)}});
}

const VerdictSummary* VerdictBook::Find(int64_t step, uint32_t attempt) const {
  const auto found = verdicts_.find({step, attempt});
  return found == verdicts_.end() ? nullptr : &found->second;
}

const VerdictSummary* VerdictBook::FindSettled(int64_t step, uint32_t attempt) const {
  const VerdictSummary* verdict = Find(step, attempt);
  // A verdict that could not be read once may stand all the same. The attempt goes on, and its own put will find that
  // verdict.
  const bool unread = verdict != nullptr && verdict->damaged && !HasReason(verdict->error, Reason::kManifestCorrupt) &&
                      !HasReason(verdict->error, Reason::kFormatTooNew);
  return unread ? nullptr : verdict;
}

const VerdictSummary* VerdictBook::Find(const CheckpointKey& key) const {
  const std::optional<int64_t> step = key.step.has_value() || key.by_request() ? key.step : last_committed();
  const VerdictSummary* found = nullptr;
  for (const auto& [at, verdict] : verdicts_) {
    const bool named = key.by_request() ? verdict.request_id == key.request_id : at.first == step;
    // An attempt that failed to take the place of a checkpoint has changed nothing about it.
    if (named && (verdict.stands() || found == nullptr || !found->stands())) found = &verdict;
  }
  return found;
}

bool VerdictBook::HasLater(int64_t step, uint32_t attempt) const {
  const auto later = verdicts_.upper_bound({step, attempt});
  return later != verdicts_.end() && later->first.first == step;
}

std::optional<bool> VerdictBook::StillCommitted(int64_t step, const std::string& caller, JobContext& context) {
  if (WasRefused(step, caller)) return true;
  if (!Committed(step)) return false;
  Read& read = reads_[step];
  if (!read.asking.contains(caller)) read.waiting.insert(caller);
  Begin(step, read, context);
  return std::nullopt;
}

bool VerdictBook::WasRefused(int64_t step, const std::string& caller) const {
  const auto read = reads_.find(step);
  return read != reads_.end() && read->second.answered.contains(caller);
}

void VerdictBook::ReadUnsettled(int64_t step, uint32_t attempt, const std::string& caller, JobContext& context) {
  const bool unsettled = Find(step, attempt) != nullptr && FindSettled(step, attempt) == nullptr;
  if (!unsettled || context.now < next_unsettled_read_) return;
  next_unsettled_read_ = context.now + kReadAgain;
  Read& read = reads_[step];
  read.waiting.insert(caller);
  Begin(step, read, context);
}

void VerdictBook::Begin(int64_t step, Read& read, JobContext& context) {
  if (read.ticket != 0 || read.waiting.empty()) return;
  read.ticket = context.NewTicket();
  read.begun = context.now;
  read.asking = std::exchange(read.waiting, {});
  context.Do(ReadStep{step, read.ticket});
}

bool VerdictBook::OnRead(int64_t step, uint64_t ticket, const absl::StatusOr<Recovered>& result, JobContext& context) {
  const auto found = reads_.find(step);
  if (found == reads_.end() || found->second.ticket != ticket) return false;
  if (result.ok()) {
    verdicts_.erase(verdicts_.lower_bound({step, 0}), verdicts_.lower_bound({step + 1, 0}));
    lines_stale_ = true;
    for (const VerdictSummary& verdict : result->verdict) Keep(verdict);
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
  context.orders_changed = true;
  return true;
}

absl::Status VerdictBook::ReadStalled(int64_t step, const JobContext& context) const {
  const auto read = reads_.find(step);
  if (read == reads_.end() || read->second.ticket == 0 ||
      context.now - read->second.begun < context.options.storage_timeout) {
    return absl::OkStatus();
  }
  return OperationError(Reason::kStorageStalled, context, {"save", step},
                        absl::StrCat("storage has not said for ", DurationText(context.options.storage_timeout),
                                     " whether the step is still committed"));
}

void VerdictBook::Forget(absl::Time now) {
  std::erase_if(reads_, [&](const auto& entry) {
    const Read& read = entry.second;
    return read.ticket == 0 && read.waiting.empty() && now - read.answered_time > kReadKept;
  });
}

}  // namespace cairn
