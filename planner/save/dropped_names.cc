#include "planner/save/dropped_names.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "planner/layout/name_parts.h"
#include "planner/layout/rank_keys.h"

namespace cairn {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The parts of the name of an optimizer state: "optimizer.state.", "layer.weight", "exp_avg".
struct OptimizerName {
  std::string_view optimizer;
  std::string_view parameter;
  std::string_view kept;
};

std::optional<OptimizerName> ParseOptimizerName(std::string_view name) {
  constexpr std::string_view kState = "state.";
  const size_t dot = name.rfind('.');
  for (size_t at = name.find(kState); at != std::string_view::npos; at = name.find(kState, at + 1)) {
    const size_t begin = at + kState.size();
    if ((at == 0 || name[at - 1] == '.') && dot >= begin && dot != std::string_view::npos) {
      return OptimizerName{name.substr(0, begin), name.substr(begin, dot - begin), name.substr(dot + 1)};
    }
  }
  return std::nullopt;
}

bool IsNumber(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit); }

// The optimizers whose parameters have names (and not numbers) in a save.
class NamedOptimizers {
 public:
  explicit NamedOptimizers(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto parsed = ParseOptimizerName(name);
      if (parsed && !IsNumber(parsed->parameter)) kept_.emplace(parsed->optimizer, parsed->kept);
    }
  }

  // Returns whether `name` is a state of such an optimizer with a number in the place of the parameter's name.
  bool HasNumber(std::string_view name) const {
    const auto parsed = ParseOptimizerName(name);
    return parsed && IsNumber(parsed->parameter) && kept_.contains({parsed->optimizer, parsed->kept});
  }

 private:
  std::set<std::pair<std::string_view, std::string_view>> kept_;
};

// Returns whether Cairn's own client has added this object, for a manager's optimizers or for
// torch.distributed.checkpoint. It may be missing in the next save if the program calls another function of the client.
bool IsOfTheClient(std::string_view name) { return name == "cairn.dcp" || name.starts_with("cairn.description."); }

}  // namespace

std::vector<std::string> DroppedNames(const Manifest& before, const SavePlan& plan) {
  const std::vector<std::string> now = plan.names(), now_objects = plan.object_names();
  const std::vector<std::string_view> names(now.begin(), now.end()), objects(now_objects.begin(), now_objects.end());
  const NamedOptimizers optimizers(now);
  const auto kept = [&](const std::string& name) {
    return std::binary_search(names.begin(), names.end(), name) || optimizers.HasNumber(name);
  };
  std::set<std::string> dropped;
  for (const ManifestTensor& tensor : before.tensors) {
    if (!kept(tensor.name)) dropped.insert(tensor.name);
  }
  for (const auto& [alias, target] : before.aliases) {
    if (!kept(alias)) dropped.insert(alias);
  }
  const int world_size = plan.ranks().empty() ? 0 : plan.ranks().back() + 1;
  for (const ManifestObject& object : before.objects) {
    if (kept(object.name) || IsOfTheClient(object.name) || object.rank.value_or(0) >= world_size) continue;
    if (IsPartOfAny(objects, object.name) || HasPartsOf(names, object.name)) continue;
    if (IsOfAnotherRank(objects, object.name)) continue;
    dropped.insert(object.name);
  }
  return {dropped.begin(), dropped.end()};
}

}  // namespace cairn
