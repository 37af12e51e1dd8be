// Plans a reshard: what the sources hold is planned as a save, from which the targets load.

#include <algorithm>
#include <set>

#include "common/base/digest.h"
#include "common/status/status.h"
#include "planner/load/load_plan.h"
#include "planner/save/virtual_manifest.h"

namespace cairn {

absl::StatusOr<ReshardPlan> MakeReshardPlan(std::span<const RankInput> sources, std::span<const RankInput> targets,
                                            const LoadOptions& options, FaultList& faults) {
  SaveOptions save_options;
  save_options.bins_per_rank = 1;
  CAIRN_ASSIGN_OR_RETURN(SavePlan source, MakeSavePlan(sources, save_options, faults));
  // A rank that is only a source needs a part too: its target is an empty layout.
  const std::string empty_digest = Digest("");
  std::vector<RankInput> all(targets.begin(), targets.end());
  std::set<int> given;
  for (const RankInput& target : targets) given.insert(target.rank);
  for (const RankInput& input : sources) {
    if (!given.contains(input.rank)) all.push_back({input.rank, input.node, "", empty_digest});
  }
  LoadOptions load_options = options;
  load_options.owners_read = true;
  CAIRN_ASSIGN_OR_RETURN(LoadPlan load, MakeLoadPlan(VirtualManifest(source), all, load_options, faults));
  return ReshardPlan{std::move(source), std::move(load)};
}

absl::StatusOr<ReshardPlan> MakeReshardPlan(std::span<const RankInput> sources, std::span<const RankInput> targets,
                                            const LoadOptions& options) {
  FaultList faults;
  return MakeReshardPlan(sources, targets, options, faults);
}

}  // namespace cairn
