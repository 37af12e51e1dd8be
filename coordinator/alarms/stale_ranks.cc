#include "coordinator/alarms/stale_ranks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

// A matrix with this multiple of its columns as rows may be a table.
constexpr int64_t kTableRows = 16;

// A rank may hand over an old copy of one of these alone.
enum Part { kMoments, kTrained, kUntrained, kAverages, kStatistics, kOthers, kParts };

// Returns the part of each tensor.
std::vector<Part> PartsOf(const StatePairs& states) {
  std::vector<Part> parts(states.tensors.size(), kOthers);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (states.roles[i].kind == TensorRole::Kind::kMoment) parts[i] = kMoments;
    if (states.roles[i].kind != TensorRole::Kind::kWeight) continue;
    const Follower follower = FollowedBy(states.tensors[i].now->name);
    parts[i] = follower == Follower::kNone ? kUntrained : follower == Follower::kAverage ? kAverages : kStatistics;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (states.trained[i]) parts[i] = kTrained;
  }
  return parts;
}

// What a rank wrote of one part of the state.
struct Written {
  size_t same = 0, changed = 0;
  std::vector<uint32_t> tensors;  // of the shards that are the same
  // Those of the same shards whose tensors other ranks have changed.
  std::vector<uint32_t> changed_elsewhere;
};

using WrittenByPart = std::array<Written, kParts>;

// Updates of single rows leave out the shards of rare ones: of tables, and of matrices with as many rows as these have.
bool HasRareRows(const StateSummary::Tensor& tensor) {
  for (const char* word : {"emb", "table", "factors"}) {
    if (absl::StrContains(tensor.name, word)) return true;
  }
  return tensor.shape.size() == 2 && tensor.shape[0] >= kTableRows * tensor.shape[1];
}

// Chance does not explain that a shard of this tensor stands still.
bool ShardsAreExpected(const TensorPair& pair) {
  return pair.expected() && pair.now->shard_count > 0 &&
         (!IsNarrow(pair.now->dtype) || Elements(*pair.now) / pair.now->shard_count >= kElementsThatRound);
}

std::vector<WrittenByPart> WrittenBy(const StatePairs& states) {
  std::vector<WrittenByPart> ranks(states.now->world_size);
  const std::vector<Part> parts = PartsOf(states);
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (!ShardsAreExpected(pair)) continue;
    // An expert without tokens stands still, and nothing is wrong.
    const bool expert = absl::StrContains(pair.now->name, "expert");
    if (!pair.changed && expert) continue;
    if (pair.now->shard_count != pair.before->shard_count) continue;  // a record that contradicts its plan
    for (uint32_t k = 0; k < pair.now->shard_count; ++k) {
      const StateSummary::Shard& shard = states.now->shards[pair.now->first_shard + k];
      if (static_cast<size_t>(shard.rank) >= ranks.size()) continue;
      Written& written = ranks[static_cast<size_t>(shard.rank)][parts[i]];
      if (shard.crc32c != states.before->shards[pair.before->first_shard + k].crc32c) {
        ++written.changed;
        continue;
      }
      if (HasRareRows(*pair.now)) continue;
      ++written.same;
      written.tensors.push_back(static_cast<uint32_t>(i));
      const bool moves = pair.before->history.movement > kMovementThatRounds;
      if (pair.changed && moves && !expert) written.changed_elsewhere.push_back(static_cast<uint32_t>(i));
    }
  }
  return ranks;
}

}  // namespace

std::set<uint32_t> FindStaleRanks(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::set<uint32_t> tensors;
  if (states.now->plan_digest != states.before->plan_digest ||
      states.now->shards.size() != states.before->shards.size()) {
    return tensors;
  }
  const std::vector<WrittenByPart> ranks = WrittenBy(states);
  std::set<int32_t> whole, in_part;
  bool others_moved = false;
  // Buffers and queues rest as they like, and normalizing layers move at a step that the optimizer skips.
  const bool names_tell = std::ranges::find(states.trained, true) != states.trained.end();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    size_t same = 0, changed = 0;
    for (size_t part = 0; part < kParts; ++part) {
      const bool counts = !names_tell || part == kMoments || part == kTrained;
      same += counts ? ranks[rank][part].same : 0;
      changed += ranks[rank][part].changed;
      others_moved = others_moved || (counts && ranks[rank][part].changed > 0);
    }
    if (changed == 0 && same >= 2) whole.insert(static_cast<int32_t>(rank));
  }
  if (!others_moved) return tensors;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool all = whole.contains(static_cast<int32_t>(rank));
    for (size_t part = 0; part < kParts; ++part) {
      // A rank may hold those rows of a buffer or queue that are not written now.
      if (!all && (part == kUntrained || part == kOthers)) continue;
      const Written& written = ranks[rank][part];
      const std::vector<uint32_t>& old = all ? written.tensors : written.changed_elsewhere;
      if (!all && (written.changed > 0 || old.size() < 2)) continue;
      if (!all) in_part.insert(static_cast<int32_t>(rank));
      tensors.insert(old.begin(), old.end());
    }
  }
  if (tensors.empty()) return tensors;
  std::vector<std::string> names;
  for (const uint32_t tensor : tensors) names.push_back(states.tensors[tensor].now->name);
  std::set<int32_t> stale = whole;
  stale.insert(in_part.begin(), in_part.end());
  alarms.push_back({std::string(alarm::kStaleRank),
                    absl::StrCat("what ", RankNames(stale), " wrote is", in_part.empty() ? "" : ", of these tensors,",
                                 " bit for bit what ", stale.size() == 1 ? "it" : "they", " wrote at ", states.Before(),
                                 ", while the other ranks' tensors changed: ", NameGroups(names))});
  return tensors;
}

}  // namespace cairn
