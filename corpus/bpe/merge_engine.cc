#include "corpus/bpe/merge_engine.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/step_team.h"

namespace cairn::corpus {
namespace {

// Several threads are quicker than one if the words have this many bytes.
constexpr uint64_t kTeamBytes = uint64_t{1} << 20;

MergeState::Options StateOptions(const MergeOptions& options) {
  const bool as_hugging_face = options.tie_break == TieBreak::kHuggingFace;
  return {.ties = as_hugging_face ? MergeState::Ties::kSmallestIds : MergeState::Ties::kGreatestBytes,
          .bytes_by_text = as_hugging_face,
          .min_frequency = options.min_frequency,
          .most_merges = options.wanted + static_cast<uint32_t>(options.first.size()),
          .shards = std::clamp<uint32_t>(options.threads, 1, kMostMergeThreads),
          .veto = options.veto};
}

}  // namespace

MergeEngine::MergeEngine(MergeOptions options) : options_(std::move(options)), state_(StateOptions(options_)) {}

size_t MergeEngine::shards() const { return state_.shards(); }
absl::Status MergeEngine::AddWord(size_t shard, std::string_view word, uint64_t count) {
  return state_.shard(shard).AddWord(word, count);
}
void MergeEngine::Reserve(size_t shard, uint64_t words, uint64_t bytes) { state_.shard(shard).Reserve(words, bytes); }
uint64_t MergeEngine::EstimatedBytes() const { return state_.EstimatedBytes(); }

absl::StatusOr<MergeResult> MergeEngine::Run() {
  std::optional<StepTeam> team;
  if (shards() > 1 && state_.word_bytes() >= kTeamBytes) {
    state_.UseTeam(&team.emplace(static_cast<uint32_t>(shards())));
  }
  CAIRN_RETURN_IF_ERROR(state_.Begin(options_.first));
  const auto made = [&] {
    return options_.tie_break == TieBreak::kBytes ? state_.merges().size() : state_.tokens().size() - 256;
  };
  MergeState::Candidate best;
  while (made() < options_.wanted) {
    CAIRN_ASSIGN_OR_RETURN(const bool found, state_.Next(best));
    if (!found) break;
    CAIRN_RETURN_IF_ERROR(state_.MergeBest(best));
    const auto merges = static_cast<uint32_t>(state_.merges().size());
    if (options_.progress && merges % kProgressEvery == 0 && !options_.progress(merges)) {
      return MakeError(Reason::kInterrupted, "interrupted while pairs were merged");
    }
  }
  return state_.TakeResult();
}

}  // namespace cairn::corpus
