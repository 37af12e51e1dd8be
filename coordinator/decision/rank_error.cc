#include "coordinator/decision/rank_error.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMaxDetails = 4;
constexpr size_t kMaxRanksText = 1000;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// As people read it: "staging".
std::string PhaseName(v1::RankProgress::Phase phase) {
  return absl::AsciiStrToLower(v1::RankProgress::Phase_Name(phase));
}

std::string Name(const JobContext& context, const Operation& operation) {
  std::string name = context.job;
  if (operation.step.has_value()) absl::StrAppend(&name, "@", *operation.step);
  if (operation.attempt > 0) absl::StrAppend(&name, " attempt ", operation.attempt);
  if (operation.kind == "load") absl::StrAppend(&name, " (load)");
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
  std::vector<int> ranks;
  const auto metadata = MetadataOf(error.error);
  const auto said = metadata.find("ranks");
  if (said != metadata.end() && said->second.size() <= kMaxRanksText) {
    const std::vector<absl::string_view> texts = absl::StrSplit(said->second, ", ");
    ranks.reserve(texts.size());
    for (const absl::string_view each : texts) {
      int rank = 0;
      if (!absl::SimpleAtoi(each, &rank) || rank < 0) break;
      ranks.push_back(rank);
    }
  }
  if (ranks.empty()) ranks.push_back(error.rank);
  return ranks;
}

}  // namespace

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(
      absl::Trunc(duration, duration < absl::Seconds(10) ? absl::Milliseconds(100) : absl::Seconds(1)));
}

absl::Status OperationError(Reason reason, const JobContext& context, const Operation& operation,
                            std::string_view what) {
  ErrorMetadata metadata = Metadata(context, operation);
  AddLastCommitted(context, metadata);
  return MakeError(reason, absl::StrCat(Name(context, operation), ": ", View(what), Tail(context)), metadata);
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
  return MakeError(reason, message, metadata);
}

void MemberFaults::Add(int rank, v1::RankProgress::Phase phase, MemberFault fault) {
  (fault.trainer ? trainers_ : lost_).push_back({rank, phase, std::move(fault.detail)});
}

absl::Status MemberFaults::ToError(const JobContext& context, const Operation& operation) && {
  return lost_.empty() ? ErrorNaming(Reason::kTrainerLost, context, operation, "lost the trainer", std::move(trainers_))
                       : ErrorNaming(Reason::kRankLost, context, operation, "lost", std::move(lost_));
}

absl::Status ErrorFromRanks(const JobContext& context, const Operation& operation,
                            const std::vector<RankError>& errors) {
  std::set<int> named;
  for (const RankError& error : errors) {
    for (const int rank : RanksOf(error)) named.insert(rank);
  }
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
    if (std::none_of(metadata.begin(), metadata.end(), [&](const auto& pair) { return pair.first == key; })) {
      metadata.emplace_back(key, value);
    }
  }
  return MakeError(ReasonOf(first.error).value_or(Reason::kInternal), message, metadata);
}

}  // namespace cairn
