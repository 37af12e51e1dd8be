#include "coordinator/alarms/still_rules.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

// Ranks that wrote what they wrote before, while others went on.
void FindStaleRanks(const StatePairs& states, std::vector<Alarm>& alarms, std::set<uint32_t>& told) {
  if (states.now->plan_digest != states.before->plan_digest || states.now->shards.size() != states.before->shards.size()) return;
  struct Count {
    size_t same = 0, changed = 0;
    std::vector<uint32_t> tensors;
  };
  std::vector<Count> ranks(states.now->world_size);
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (!pair.expected()) continue;
    // An expert without tokens stands still, and nothing is wrong.
    if (!pair.changed && absl::StrContains(pair.now->name, "expert")) continue;
    if (pair.now->shard_count != pair.before->shard_count) continue;  // a record that contradicts its plan
    for (uint32_t k = 0; k < pair.now->shard_count; ++k) {
      const StateSummary::Shard& shard = states.now->shards[pair.now->first_shard + k];
      if (static_cast<size_t>(shard.rank) >= ranks.size()) continue;
      Count& count = ranks[static_cast<size_t>(shard.rank)];
      if (shard.crc32c != states.before->shards[pair.before->first_shard + k].crc32c) {
        ++count.changed;
      } else {
        ++count.same;
        count.tensors.push_back(static_cast<uint32_t>(i));
      }
    }
  }
  std::set<int32_t> stale;
  std::set<uint32_t> tensors;
  size_t moving = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Count& count = ranks[rank];
    if (count.changed > 0) ++moving;
    if (count.changed > 0 || count.same < 2) continue;
    stale.insert(static_cast<int32_t>(rank));
    tensors.insert(count.tensors.begin(), count.tensors.end());
  }
  if (stale.empty() || moving == 0) return;
  std::vector<std::string> names;
  for (const uint32_t tensor : tensors) names.push_back(states.tensors[tensor].now->name);
  alarms.push_back({std::string(alarm::kStaleRank), absl::StrCat("what ", RankNames(stale), stale.size() == 1 ? " wrote is" : " wrote is",
                                        " bit for bit what ", stale.size() == 1 ? "it" : "they", " wrote at ",
                                        states.Before(), ", while the other ranks' tensors changed: ", NameGroups(names))});
  for (const uint32_t tensor : tensors) told.insert(tensor);
}

// Returns the state of an optimizer whose names do not say to which weights it belongs, if all of it stands still
// while weights move.
std::vector<std::string> FrozenWithoutNames(const StatePairs& states) {
  std::vector<std::string> still;
  bool weights = false;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    weights = weights || (states.roles[i].kind == Kind::kWeight && pair.steady() && pair.changed);
    if ((states.roles[i].kind != Kind::kMoment && states.roles[i].kind != Kind::kStep) || !pair.expected()) continue;
    if (pair.changed) return {};
    still.push_back(pair.now->name);
  }
  return weights ? still : std::vector<std::string>();
}

// A weight moves and its optimizer's state does not, or the other way round.
void FindStaleTensors(const StatePairs& states, std::vector<Alarm>& alarms, const std::set<uint32_t>& told) {
  struct Kept {
    size_t moments = 0, still = 0;
  };
  absl::flat_hash_map<int32_t, Kept> kept;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorRole& role = states.roles[i];
    if (role.weight < 0 || (role.kind != Kind::kMoment && role.kind != Kind::kStep)) continue;
    if (!states.tensors[i].expected() || told.contains(static_cast<uint32_t>(i))) continue;
    Kept& of = kept[role.weight];
    ++of.moments;
    of.still += states.tensors[i].changed ? 0 : 1;
  }
  std::vector<std::string> frozen, stale;
  size_t moving = 0;
  if (kept.empty()) frozen = FrozenWithoutNames(states);
  for (const auto& [weight, of] : kept) {
    const TensorPair& pair = states.tensors[static_cast<size_t>(weight)];
    if (pair.before == nullptr) continue;
    moving += pair.changed;
    if (pair.changed && of.still == of.moments) frozen.push_back(pair.now->name);
    // With a learning rate of 0, or one that float32 rounds away, weights stand still too: then most of them do.
    if (!pair.changed && of.still == 0 && pair.expected() && !IsNarrow(pair.now->dtype) &&
        pair.before->history.movement > kMovementThatRounds && !told.contains(static_cast<uint32_t>(weight))) {
      stale.push_back(pair.now->name);
    }
  }
  std::sort(frozen.begin(), frozen.end());
  std::sort(stale.begin(), stale.end());
  if (!frozen.empty()) {
    alarms.push_back({std::string(alarm::kFrozenOptimizer), absl::StrCat("the optimizer's state is bit for bit that of ", states.Before(),
                                                " for weights that changed: ", NameGroups(frozen))});
  }
  if (!stale.empty() && moving > stale.size()) {
    alarms.push_back({std::string(alarm::kStaleTensor), absl::StrCat("weights are bit for bit those of ", states.Before(),
                                            " though the optimizer's state for them changed: ", NameGroups(stale))});
  }
}

}  // namespace

// The step is the one before it again.
void FindSameStep(const StatePairs& states, std::vector<Alarm>& alarms) {
  size_t steady = 0;
  uint32_t run = UINT32_MAX, longest = 0;
  for (const TensorPair& pair : states.tensors) {
    if (pair.before == nullptr) continue;
    if (pair.changed) return;
    if (pair.before->history.changes < 3) continue;
    ++steady;
    run = std::min(run, pair.now->history.unchanged);
    longest = std::max(longest, pair.before->history.longest_unchanged);
  }
  if (steady == 0) return;
  size_t objects = 0;
  bool counts = false;  // an object of those that always change has changed: the trainer counts on
  for (const ObjectPair& pair : states.objects) {
    if (!pair.before->history.steady()) continue;
    ++objects;
    counts = counts || pair.changed;
  }
  // Saves within one step of the optimizer are equal too, as are those around a step that was skipped.
  const bool for_long = run >= 2 && run > 2 * longest;
  const bool whole = objects > 0 && !counts;
  if (!whole && !(for_long && run == std::max(2U, 2 * longest + 1))) return;
  alarms.push_back({std::string(alarm::kSameStep), absl::StrCat("all ", steady, steady == 1 ? " tensor" : " tensors", " that used to change",
                                       whole ? " and all objects that used to" : "", " are bit for bit those of ",
                                       states.Before(), run > 1 ? absl::StrCat(", for ", run, " saves now") : "")});
}

void FindStaleState(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::set<uint32_t> told;  // tensors of stale ranks
  FindStaleRanks(states, alarms, told);
  FindStaleTensors(states, alarms, told);
}

}  // namespace cairn
