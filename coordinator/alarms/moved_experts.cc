#include "coordinator/alarms/moved_experts.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "common/base/name_pattern.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

// A tensor is another one's, if the other one's was nearer by this factor. A sketch says so by chance in one of 8000
// cases; of two tensors, or of a circle of them, in none.
constexpr double kNearer = 4;
// A tensor that moves by this share of its norm may be elsewhere.
constexpr double kElsewhere = 0.3;
// A router that moves by this multiple of how it moved last has other rows. How far it has ever moved does not tell:
// experts may have changed places before.
constexpr double kFactor = 4;
// So many of one kind are compared with each other.
constexpr size_t kMostCompared = 1024;

bool MovedFar(const TensorPair& pair, double usual) {
  return pair.distance > kFactor * usual * static_cast<double>(pair.before->history.last_movement);
}

}  // namespace

std::optional<size_t> CameFrom(const StatePairs& states, size_t i, const std::vector<size_t>& alike) {
  const TensorPair& pair = states.tensors[i];
  const double moved = Distance(*pair.before, *pair.now);
  for (const size_t k : alike) {
    if (k == i || states.roles[k].key != states.roles[i].key) continue;
    const StateSummary::Tensor& other = *states.tensors[k].before;
    if (std::abs(Norm(other) - Norm(*pair.now)) * kNearer > moved) continue;
    if (Distance(other, *pair.now) * kNearer < moved) return k;
  }
  return std::nullopt;
}

std::set<size_t> MovedExperts(const StatePairs& states, const std::vector<size_t>& weights, double usual) {
  struct Module {
    std::map<std::pair<std::string, Shape>, std::vector<size_t>> experts;  // by pattern of name
    std::set<size_t> elsewhere;                                            // of the experts
    std::vector<size_t> routers;                                           // that moved far
  };
  std::map<std::string, Module> modules;  // by the part of the names before "expert"
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    // Also those that rest, for want of tokens.
    if (states.roles[i].kind != TensorRole::Kind::kWeight || states.tensors[i].before == nullptr) continue;
    const std::string& name = states.tensors[i].now->name;
    const size_t end = name.find("expert");
    if (end == std::string::npos) continue;
    Module& module = modules[name.substr(0, end)];
    std::vector<size_t>& alike = module.experts[{PatternOf(name), states.tensors[i].now->shape}];
    if (alike.size() < kMostCompared) alike.push_back(i);
    if (states.tensors[i].distance > kElsewhere) module.elsewhere.insert(i);
  }
  std::erase_if(modules, [](const auto& module) { return module.second.elsewhere.empty(); });
  if (modules.empty()) return {};
  for (const size_t i : weights) {
    const std::string& name = states.tensors[i].now->name;
    if (name.find("expert") != std::string::npos || !MovedFar(states.tensors[i], usual)) continue;
    for (auto& [prefix, module] : modules) {
      if (name.starts_with(prefix)) module.routers.push_back(i);
    }
  }
  std::set<size_t> found;
  for (const auto& [prefix, module] : modules) {
    if (module.routers.empty()) continue;
    size_t moved = 0;
    for (const auto& [pattern, alike] : module.experts) {
      for (const size_t i : alike) {
        if (!module.elsewhere.contains(i) || !CameFrom(states, i, alike).has_value()) continue;
        found.insert(i);
        ++moved;
      }
    }
    if (moved > 0) found.insert(module.routers.begin(), module.routers.end());
  }
  return found;
}

}  // namespace cairn
