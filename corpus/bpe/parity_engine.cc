#include "corpus/bpe/parity_engine.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/step_team.h"

namespace cairn::corpus {
namespace {

MergeState::Options StateOptions(const MergeOptions& options) {
  MergeState::Options state = ToStateOptions(options);
  if (options.tie_break == TieBreak::kHuggingFace) state.ties = MergeState::Ties::kGreatestText;
  state.any_pair = true;  // most merges are those of another group
  return state;
}

}  // namespace

ParityEngine::ParityEngine(MergeOptions options, ParityOptions parity, size_t groups, bool development)
    : options_(std::move(options)), parity_(std::move(parity)) {
  const MergeState::Options state = StateOptions(options_);
  for (size_t i = 0; i < groups; ++i) groups_.push_back(std::make_unique<MergeState>(state));
  for (size_t i = 0; development && i < groups; ++i) development_.push_back(std::make_unique<MergeState>(state));
  if (parity_.together > 0) together_ = std::make_unique<MergeState>(state);
}

size_t ParityEngine::shards() const { return groups_.front()->shards(); }

void ParityEngine::Reserve(size_t group, Use use, size_t shard, uint64_t words, uint64_t bytes) {
  (use == Use::kWords ? groups_ : development_)[group]->shard(shard).Reserve(words, bytes);
}

absl::Status ParityEngine::AddWord(size_t group, Use use, size_t shard, std::string_view word, uint64_t count) {
  if (use == Use::kDevelopmentWords) return development_[group]->shard(shard).AddWord(word, count);
  if (together_ != nullptr) CAIRN_RETURN_IF_ERROR(together_->shard(shard).AddWord(word, count));
  return groups_[group]->shard(shard).AddWord(word, count);
}

uint64_t ParityEngine::EstimatedBytes() const {
  uint64_t bytes = together_ == nullptr ? 0 : together_->EstimatedBytes();
  for (const auto& state : groups_) bytes += state->EstimatedBytes();
  for (const auto& state : development_) bytes += state->EstimatedBytes();
  return bytes;
}

absl::StatusOr<MergeResult> ParityEngine::Run() {
  const auto for_each = [this](absl::FunctionRef<absl::Status(MergeState&)> work) -> absl::Status {
    for (const auto& state : groups_) CAIRN_RETURN_IF_ERROR(work(*state));
    for (const auto& state : development_) CAIRN_RETURN_IF_ERROR(work(*state));
    return together_ == nullptr ? absl::OkStatus() : work(*together_);
  };
  std::optional<StepTeam> team;
  if (shards() > 1) team.emplace(static_cast<uint32_t>(shards()));
  CAIRN_RETURN_IF_ERROR(for_each([&](MergeState& state) {
    if (team.has_value() && state.word_bytes() >= MergeState::kTeamBytes) state.UseTeam(&*team);
    return state.Begin(options_.first);
  }));
  const auto& counted = development_.empty() ? groups_ : development_;
  std::vector<uint64_t> bytes, tokens;
  for (const auto& state : counted) {
    bytes.push_back(state->TextBytes());
    tokens.push_back(state->Tokens());
  }
  ParityChoice choice(parity_, std::move(bytes), std::move(tokens));
  const MergeState& any = *groups_.front();
  const size_t begun = any.merges().size();
  MergeState::Candidate best;
  while (MadeFor(options_, any) < options_.wanted) {
    if (any.merges().size() - begun >= parity_.together) together_.reset();
    const std::optional<size_t> group = together_ == nullptr ? choice.Next() : std::nullopt;
    if (together_ == nullptr && !group.has_value()) break;
    CAIRN_ASSIGN_OR_RETURN(const bool found, (group.has_value() ? *groups_[*group] : *together_).Next(best));
    if (!found) {
      if (!group.has_value()) break;
      choice.Exhaust(*group);
      continue;
    }
    CAIRN_RETURN_IF_ERROR(for_each([&](MergeState& state) { return state.MergeAll(best.left, best.right); }));
    for (size_t i = 0; i < counted.size(); ++i) choice.Shorten(i, counted[i]->merged());
    CAIRN_RETURN_IF_ERROR(ReportProgress(options_, any));
  }
  return groups_.front()->TakeResult();
}

}  // namespace cairn::corpus
