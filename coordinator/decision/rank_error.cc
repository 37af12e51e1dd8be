#include "coordinator/decision/rank_error.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/process/quantity.h"
#include "common/rpc/exchange_fault.h"
#include "common/status/named_ranks.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMaxDetails = 4;
// An agent that goes on is heard three times in a lease.
constexpr double kSilentPart = 2.0 / 3;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// As people read it: "staging".
std::string PhaseName(v1::Phase::Value phase) { return absl::AsciiStrToLower(v1::Phase::Value_Name(phase)); }

std::string Name(const JobContext& context, const Operation& operation) {
  std::string name = context.job;
  if (operation.step.has_value()) absl::StrAppend(&name, "@", *operation.step);
  if (operation.attempt > 0) absl::StrAppend(&name, " attempt ", operation.attempt);
  if (operation.kind != "save") absl::StrAppend(&name, " (", View(operation.kind), ")");
  return name;
}

std::string Tail(const JobContext& context) {
  if (!context.last_committed.has_value()) return "; no step is committed";
  return absl::StrCat("; last committed step ", *context.last_committed);
}

ErrorMetadata Metadata(const JobContext& context, const Operation& operation) {
  ErrorMetadata metadata = {{"job", context.job}};
  if (operation.step.has_value()) metadata.emplace_back("step", absl::StrCat(*operation.step));
  if (operation.attempt > 0) metadata.emplace_back("attempt", absl::StrCat(operation.attempt));
  return metadata;
}

void AddLastCommitted(const JobContext& context, ErrorMetadata& metadata) {
  if (context.last_committed.has_value()) {
    metadata.emplace_back("last_committed", absl::StrCat(*context.last_committed));
  }
}

// Returns the ranks that an agent's error says it is about, such as the peer that did not answer; else the agent's own.
// An agent's word is not trusted.
std::vector<int> RanksOf(const RankError& error) {
  std::vector<int> ranks = RanksNamedIn(error.error);
  if (ranks.empty()) ranks.push_back(error.rank);
  return ranks;
}

// Returns whether an error of an exchange says this of its ranks; see exchange_fault.h.
bool Says(const RankError& error, std::string_view what) { return MetadataOf(error.error).contains(std::string(what)); }

std::set<int> ToBlame(const std::vector<RankError>& errors) {
  std::set<int> named, certain, waited;
  bool all_waited = true;
  for (const RankError& error : errors) {
    const auto ranks = RanksOf(error);
    named.insert(ranks.begin(), ranks.end());
    if (Says(error, kWorkerAtFault)) certain.insert(ranks.begin(), ranks.end());
    all_waited = all_waited && Says(error, kStepStalled);
    waited.insert(error.rank);
  }
  if (!certain.empty()) return certain;
  if (!all_waited) return named;
  // Those that say that they waited for each other all waited for who says nothing.
  std::set<int> silent;
  std::set_difference(named.begin(), named.end(), waited.begin(), waited.end(), std::inserter(silent, silent.end()));
  return silent.empty() ? named : silent;
}

}  // namespace

bool IsSilent(const Member& member, const JobContext& context) {
  return context.now - member.heard >= kSilentPart * context.options.lease_ttl;
}

std::string SilenceOf(const Member& member, const JobContext& context) {
  const absl::Duration unheard = context.now - member.heard;
  if (IsSilent(member, context)) return absl::StrCat(", its agent has not answered for ", DurationText(unheard));
  return unheard > absl::Seconds(1) ? absl::StrCat(", agent last heard ", DurationText(unheard), " ago") : "";
}

std::string HaltOf(const Member& member, const JobContext& context) {
  if (!member.halted()) return "";
  const std::string time = DurationText(context.now - member.process_since);
  switch (member.state.trainer().process()) {
    case v1::JobRank::STOPPED:
      return absl::StrCat("its trainer's process has been stopped for ", time, " (SIGSTOP or a debugger)");
    case v1::JobRank::UNINTERRUPTIBLE:
      return absl::StrCat("its trainer's process has waited in the kernel for ", time, " (for storage or a device)");
    default:
      return absl::StrCat("the main thread of its trainer's process ended ", time, " ago");
  }
}

bool AnyHalted(const std::vector<int>& ranks, const JobContext& context) {
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    const Member* member = context.members.Find(rank);
    return member != nullptr && member->halted();
  });
}

std::vector<int> HoldingUp(std::vector<int> ranks, const JobContext& context) {
  if (!AnyHalted(ranks, context)) return ranks;
  std::erase_if(ranks, [&](int rank) {
    const Member* member = context.members.Find(rank);
    return member != nullptr && member->has_trainer() && !member->halted() && !IsSilent(*member, context);
  });
  return ranks;
}

std::vector<NamedRank> HoldingUp(std::vector<NamedRank> named_ranks, const JobContext& context) {
  std::vector<int> ranks;
  for (const NamedRank& named : named_ranks) ranks.push_back(named.rank);
  const std::vector<int> kept = HoldingUp(std::move(ranks), context);
  const std::set<int> holding(kept.begin(), kept.end());
  std::erase_if(named_ranks, [&](const NamedRank& named) { return !holding.contains(named.rank); });
  return named_ranks;
}

absl::Status OperationError(Reason reason, const JobContext& context, const Operation& operation,
                            std::string_view what) {
  ErrorMetadata metadata = Metadata(context, operation);
  AddLastCommitted(context, metadata);
  return MakeError(reason, absl::StrCat(Name(context, operation), ": ", View(what), Tail(context)), metadata);
}

std::string BytesText(uint64_t done, uint64_t total) {
  const auto text = [](uint64_t bytes) {
    return FormatSize(static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max())));
  };
  return absl::StrCat(text(done), " of ", text(total));
}

absl::Status WithOperation(const absl::Status& status, const JobContext& context, const std::string& operation,
                           const ErrorMetadata& more) {
  const bool named = absl::StartsWith(status.message(), absl::StrCat(context.job, "@"));
  return named ? WithMetadata(status, more) : Annotate(status, operation, more);
}

absl::Status WithRoot(const absl::Status& status, const JobContext& context) {
  const bool named = absl::StrContains(NextActionOf(status), "--root ROOT");
  return named && !context.options.root.empty() ? WithMetadata(status, {{"root", context.options.root}}) : status;
}

absl::Status ErrorNaming(Reason reason, const JobContext& context, const Operation& operation, std::string_view what,
                         std::vector<NamedRank> named_ranks) {
  if (named_ranks.empty()) return OperationError(reason, context, operation, what);
  std::sort(named_ranks.begin(), named_ranks.end(),
            [](const NamedRank& a, const NamedRank& b) { return a.rank < b.rank; });
  const std::string phase =
      PhaseName(std::min_element(named_ranks.begin(), named_ranks.end(), [](const NamedRank& a, const NamedRank& b) {
                  return a.phase < b.phase;
                })->phase);
  std::vector<int> ranks;
  ranks.reserve(named_ranks.size());
  for (const NamedRank& named_rank : named_ranks) ranks.push_back(named_rank.rank);
  std::string message = absl::StrCat(Name(context, operation), ": ", ranks.size() == 1 ? "rank " : "ranks ",
                                     JoinRanks(ranks), " ", View(what), " in phase ", phase);
  for (size_t i = 0; i < named_ranks.size() && i < kMaxDetails; ++i) {
    if (named_ranks[i].detail.empty()) continue;
    absl::StrAppend(&message, "; rank ", named_ranks[i].rank, ": ", named_ranks[i].detail);
  }
  absl::StrAppend(&message, Tail(context));
  ErrorMetadata metadata = Metadata(context, operation);
  metadata.emplace_back("ranks", JoinRanks(ranks));
  metadata.emplace_back("phase", phase);
  AddLastCommitted(context, metadata);
  const bool waits = reason == Reason::kRankLate || reason == Reason::kSaveInProgress;
  if (waits && AnyHalted(ranks, context)) {
    metadata.emplace_back("next",
                          "Look at the named ranks' trainers on their machines: SIGCONT lets a stopped process go on, "
                          "and one that waits in the kernel waits for storage or a device. Then try again.");
  }
  return MakeError(reason, message, metadata);
}

void MemberFaults::Add(int rank, v1::Phase::Value phase, MemberFault fault) {
  (fault.trainer ? trainers_ : lost_).push_back({rank, phase, std::move(fault.detail)});
}

absl::Status MemberFaults::ToError(const JobContext& context, const Operation& operation) && {
  if (lost_.empty()) {
    return ErrorNaming(Reason::kTrainerLost, context, operation, "lost the trainer", std::move(trainers_));
  }
  const std::vector<NamedRank> silent = Silent(context);
  lost_.insert(lost_.end(), silent.begin(), silent.end());
  return ErrorNaming(Reason::kRankLost, context, operation, silent.empty() ? "lost" : "lost or silent",
                     std::move(lost_));
}

std::vector<NamedRank> MemberFaults::Silent(const JobContext& context) const {
  std::set<int> lost;
  for (const NamedRank& named : lost_) lost.insert(named.rank);
  std::vector<NamedRank> silent;
  for (const auto& [rank, member] : context.members.members()) {
    const absl::Duration unheard = context.now - member.heard;
    if (!IsSilent(member, context) || lost.contains(rank)) continue;
    silent.push_back(
        {rank, lost_.front().phase, absl::StrCat("its agent was last heard ", DurationText(unheard), " ago")});
  }
  return silent;
}

absl::Status ErrorFromRanks(const JobContext& context, const Operation& operation,
                            const std::vector<RankError>& errors) {
  const std::set<int> named = ToBlame(errors);
  const std::vector<int> ranks(named.begin(), named.end());
  const RankError& first = errors.front();
  std::string message = absl::StrCat(Name(context, operation), ": ");
  for (size_t i = 0; i < errors.size() && i < kMaxDetails; ++i) {
    const std::string rank = absl::StrCat("rank ", errors[i].rank, ": ");
    const std::string text(errors[i].error.message());  // most agents say themselves whose error it is
    absl::StrAppend(&message, i == 0 ? "" : "; ", text.starts_with(rank) ? "" : rank, text);
  }
  if (errors.size() > kMaxDetails) absl::StrAppend(&message, "; ", errors.size() - kMaxDetails, " more ranks failed");
  absl::StrAppend(&message, Tail(context));
  ErrorMetadata metadata = Metadata(context, operation);
  metadata.emplace_back("ranks", JoinRanks(ranks));
  metadata.emplace_back("phase", PhaseName(first.phase));
  AddLastCommitted(context, metadata);
  // The rest is what the first rank said (file, errno, tensor); ours wins where both speak.
  for (const auto& [key, value] : MetadataOf(first.error)) {
    if (key == kWorkerAtFault || key == kStepStalled) continue;
    if (std::none_of(metadata.begin(), metadata.end(), [&](const auto& pair) { return pair.first == key; })) {
      metadata.emplace_back(key, value);
    }
  }
  return MakeError(ReasonOf(first.error).value_or(Reason::kInternal), message, metadata);
}

}  // namespace cairn
