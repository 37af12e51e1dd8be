#include "corpus/bpe/merge_engine.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/step_team.h"

namespace cairn::corpus {
namespace {

constexpr uint32_t kMostThreads = 16;
constexpr uint32_t kProgressEvery = 64;  // merges

}  // namespace

MergeState::Options ToStateOptions(const MergeOptions& options) {
  const bool as_hugging_face = options.tie_break == TieBreak::kHuggingFace;
  return {.ties = as_hugging_face ? MergeState::Ties::kSmallestIds : MergeState::Ties::kGreatestBytes,
          .bytes_by_text = as_hugging_face,
          .min_frequency = options.min_frequency,
          .most_merges = options.wanted + static_cast<uint32_t>(options.first.size()),
          .shards = std::clamp<uint32_t>(options.threads, 1, kMostThreads),
          .veto = options.veto};
}

uint64_t MadeFor(const MergeOptions& options, const MergeState& state) {
  return options.tie_break == TieBreak::kBytes ? state.merges().size() : state.tokens().size() - 256;
}

absl::Status ReportProgress(const MergeOptions& options, const MergeState& state) {
  const auto merges = static_cast<uint32_t>(state.merges().size());
  if (merges % kProgressEvery != 0) return absl::OkStatus();
  if (options.checkpoint) CAIRN_RETURN_IF_ERROR(options.checkpoint(state));
  if (!options.progress || options.progress(merges)) return absl::OkStatus();
  return MakeError(Reason::kInterrupted, "interrupted while pairs were merged");
}

MergeEngine::MergeEngine(MergeOptions options) : options_(std::move(options)), state_(ToStateOptions(options_)) {}

size_t MergeEngine::shards() const { return state_.shards(); }
absl::Status MergeEngine::AddWord(size_t shard, std::string_view word, uint64_t count) {
  return state_.shard(shard).AddWord(word, count);
}
void MergeEngine::Reserve(size_t shard, uint64_t words, uint64_t bytes) { state_.shard(shard).Reserve(words, bytes); }
uint64_t MergeEngine::EstimatedBytes() const { return state_.EstimatedBytes(); }

absl::StatusOr<MergeResult> MergeEngine::Run() {
  std::optional<StepTeam> team;
  if (shards() > 1 && state_.word_bytes() >= MergeState::kTeamBytes) {
    state_.UseTeam(&team.emplace(static_cast<uint32_t>(shards())));
  }
  CAIRN_RETURN_IF_ERROR(state_.Begin(options_.first));
  MergeState::Candidate best;
  while (MadeFor(options_, state_) < options_.wanted) {
    CAIRN_ASSIGN_OR_RETURN(const bool found, state_.Next(best));
    if (!found) break;
    CAIRN_RETURN_IF_ERROR(state_.MergeBest(best));
    CAIRN_RETURN_IF_ERROR(ReportProgress(options_, state_));
  }
  return state_.TakeResult();
}

}  // namespace cairn::corpus
