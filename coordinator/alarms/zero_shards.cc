#include "coordinator/alarms/zero_shards.h"

#include <cstddef>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {

std::string ZeroShards(const StatePairs& states, const std::vector<bool>& part) {
  const StateSummary &before = *states.before, &now = *states.now;
  if (now.plan_digest != before.plan_digest || now.shards.size() != before.shards.size()) return "";
  struct Written {
    std::vector<size_t> zeros;  // tensors
    bool others = false;        // that are not zeros, or were before
  };
  std::vector<Written> ranks(now.world_size);
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    // What one rank has whole is judged by its norm.
    if (!part[i] || pair.before == nullptr || pair.now->shard_count < 2) continue;
    if (pair.now->shard_count != pair.before->shard_count) continue;  // a record that contradicts its plan
    if (Elements(*pair.now) / pair.now->shard_count < kElementsToJudge) continue;
    for (uint32_t k = 0; k < pair.now->shard_count; ++k) {
      const StateSummary::Shard& shard = now.shards[pair.now->first_shard + k];
      if (static_cast<size_t>(shard.rank) >= ranks.size()) continue;
      Written& written = ranks[static_cast<size_t>(shard.rank)];
      if (shard.zeros && !before.shards[pair.before->first_shard + k].zeros) {
        written.zeros.push_back(i);
      } else {
        written.others = true;
      }
    }
  }
  std::set<int32_t> found;
  std::set<std::string> names;
  bool some_are_right = false;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    some_are_right = some_are_right || ranks[rank].others;
    if (ranks[rank].others || ranks[rank].zeros.size() < 2) continue;
    found.insert(static_cast<int32_t>(rank));
    for (const size_t i : ranks[rank].zeros) names.insert(states.tensors[i].now->name);
  }
  if (found.empty() || !some_are_right) return "";
  return absl::StrCat("all that ", RankNames(found), " wrote of these is zeros, and none was at ", states.Before(),
                      ": ", NameGroups({names.begin(), names.end()}));
}

}  // namespace cairn
