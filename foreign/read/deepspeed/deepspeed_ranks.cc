#include "foreign/read/deepspeed/deepspeed_ranks.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using Optimizer = DeepSpeedRead<DeepSpeedOptimizer>;
using States = std::map<std::string, StridedTensor>;

absl::Status Differ(const std::string& path, const std::string& problem) {
  return MakeError(
      Reason::kBadForeignFile, absl::StrCat(path, ": ", problem),
      {{"file", path}, {"next", "Bring all files of one save together: these are of several saves or runs."}});
}

// Checks that the optimizers are of one step and of one stage.
absl::Status CheckProgress(const Optimizer& first, const Optimizer& each) {
  if (each.content.stage != first.content.stage || each.content.by_parameter != first.content.by_parameter) {
    return Differ(each.path, absl::StrCat("is of another stage of ZeRO than ", first.path));
  }
  for (size_t group = 0; group < std::min(each.content.steps.size(), first.content.steps.size()); ++group) {
    const auto ours = each.content.steps[group], others = first.content.steps[group];
    if (!ours || !others || *ours == *others) continue;
    return Differ(each.path,
                  absl::StrCat("has made ", *ours, " steps with group ", group, ", and ", first.path, " ", *others));
  }
  return absl::OkStatus();
}

// Checks that optimizer `lacks` has every state key of optimizer `has`, in each group that both have.
absl::Status CheckKeys(const Optimizer& has, const Optimizer& lacks) {
  for (size_t group = 0; group < std::min(has.content.states.size(), lacks.content.states.size()); ++group) {
    const States &kept = has.content.states[group], &found = lacks.content.states[group];
    const auto missing =
        std::find_if(kept.begin(), kept.end(), [&](const auto& state) { return !found.contains(state.first); });
    if (missing == kept.end()) continue;
    return Differ(lacks.path,
                  absl::StrCat("lacks '", missing->first, "' of group ", group, ", which ", has.path, " has"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRanks(const std::vector<DeepSpeedPart>& parts, size_t slices) {
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const DeepSpeedRead<DeepSpeedModel>& model : parts[i].models) {
      const DeepSpeedRead<DeepSpeedModel>& first = parts[0].models[0];
      if (!model.content.steps || !first.content.steps || *model.content.steps == *first.content.steps) continue;
      return Differ(model.path, absl::StrCat("is of step ", *model.content.steps, ", and ", first.path, " of step ",
                                             *first.content.steps));
    }
    for (const Optimizer& optimizer : parts[i].optimizers) {
      CAIRN_RETURN_IF_ERROR(CheckProgress(parts[0].optimizers[0], optimizer));
      const Optimizer& first = parts[i - i % slices].optimizers[0];
      CAIRN_RETURN_IF_ERROR(CheckKeys(first, optimizer));
      CAIRN_RETURN_IF_ERROR(CheckKeys(optimizer, first));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
