#include "coordinator/alarms/counter_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

// An object, such as a data loader's position, that has changed in so many saves is expected to change in each.
constexpr uint32_t kChangesToExpectOne = 5;
// Among so many ranks no two checksums are equal by chance: in one of a million saves.
constexpr size_t kRanksWithoutChance = 64;

// Returns the ranks whose own object is the one before, while those of other ranks changed.
std::set<int32_t> Unchanged(const ObjectPair& pair) {
  std::set<int32_t> ranks;
  if (!pair.now->per_rank || pair.now->crc32c.size() != pair.before->crc32c.size()) return ranks;
  for (size_t rank = 0; rank < pair.now->crc32c.size(); ++rank) {
    if (pair.now->crc32c[rank] == pair.before->crc32c[rank]) ranks.insert(static_cast<int32_t>(rank));
  }
  return ranks;
}

}  // namespace

bool CountsOn(const std::string& name) {
  for (const char* word : {"loader", "sampler", "data", "progress", "cursor", "consumed", "scheduler"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

// Objects, such as the position of a data loader, that changed in each save until now.
void FindStoppedCounters(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::vector<std::string> stopped, older, back;
  bool weights = false;
  for (const TensorPair& pair : states.tensors) weights = weights || (pair.steady() && pair.changed);
  for (const ObjectPair& pair : states.objects) {
    const ObjectHistory& history = pair.before->history;
    if (!weights || !CountsOn(pair.now->name) || !history.steady() || history.changes < kChangesToExpectOne) continue;
    if (pair.returned && history.returns == 0) older.push_back(pair.now->name);
    const std::set<int32_t> ranks = Unchanged(pair);
    if (!pair.changed) {
      stopped.push_back(pair.now->name);
    } else if (!ranks.empty()) {
      stopped.push_back(absl::StrCat(pair.now->name, " of ", RankNames(ranks)));
    }
  }
  size_t steps = 0;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    const bool step = states.roles[i].kind == Kind::kStep;
    // Normalizing layers count batches in a tensor of this name.
    if (!step && !absl::EndsWith(pair.now->name, "num_batches_tracked")) continue;
    if (pair.before == nullptr || Elements(*pair.now) != 1) continue;
    ++steps;
    if (pair.now->summary.statistics.max < pair.before->summary.statistics.max) back.push_back(pair.now->name);
  }
  // A run of its own may begin with an optimizer of its own.
  if (!states.same_line() && back.size() == steps) back.clear();
  std::string text;
  if (!stopped.empty()) {
    text = absl::StrCat("the same as at ", states.Before(),
                        ", and another one in each save before: ", NameGroups(stopped));
  }
  if (!older.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "the same as some saves before ", states.Before(), ": ",
                    NameGroups(older));
  }
  if (!back.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "smaller than at ", states.Before(), ": ", NameGroups(back));
  }
  if (!text.empty()) alarms.push_back({std::string(alarm::kCounterStopped), text});
}

// Generators of random numbers that differed, and are the same now.
void FindEqualRandomStates(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::vector<std::string> names;
  std::set<int32_t> ranks;
  size_t among = 0;
  for (const ObjectPair& pair : states.objects) {
    const std::string& name = pair.now->name;
    if (!absl::StrContains(name, "rng") && !absl::StrContains(name, "random")) continue;
    const std::vector<uint32_t>&now = pair.now->crc32c, &was = pair.before->crc32c;
    if (now.size() < 2 || now.size() != was.size()) continue;
    std::map<uint32_t, std::vector<int32_t>> holders;
    for (size_t rank = 0; rank < now.size(); ++rank) holders[now[rank]].push_back(static_cast<int32_t>(rank));
    bool found = false;
    for (const auto& [crc, equal] : holders) {
      std::set<uint32_t> before;
      for (const int32_t rank : equal) before.insert(was[static_cast<size_t>(rank)]);
      // Of many checksums two are equal by chance. Ranks that share a generator, as those of one tensor-parallel group,
      // had the same one before.
      if (before.size() < 2 || (before.size() == 2 && now.size() > kRanksWithoutChance)) continue;
      found = true;
      ranks.insert(equal.begin(), equal.end());
    }
    if (found) names.push_back(name);
    among = std::max(among, now.size());
  }
  if (names.empty()) return;
  alarms.push_back({std::string(alarm::kEqualRandomStates),
                    absl::StrCat("the same on ", ranks.size() == among ? "all ranks" : RankNames(ranks),
                                 ", and another on each rank at ", states.Before(), ": ", NameGroups(names))});
}

}  // namespace cairn
