#include "coordinator/alarms/counter_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

// A count that goes on by so many times as much as it did before, and as the others do, is another number.
constexpr double kFarAhead = 1000;

// Returns true for the name of an object that counts on in each save: a data loader's position, a schedule, progress.
bool CountsOn(const std::string& name) {
  for (const char* word : {"loader", "sampler", "progress", "cursor", "consumed", "scheduler"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return name == "data" || absl::StartsWith(name, "data.") || absl::EndsWith(name, ".data");
}

// Returns true for the name of the trainer's own count of steps. Models and optimizers have others, which may rest, and
// a count of epochs rests within one.
bool CountsSteps(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string top = dot == std::string::npos ? "" : name.substr(0, dot);
  if (!top.empty() && top != "trainer" && top != "train_state" && top != "state") return false;
  const std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  for (const char* word : {"step", "steps", "global_step", "iteration", "iterations", "trainer"}) {
    if (last == word) return true;
  }
  return false;
}

// Returns the names of the weights that an optimizer has moments for, without their last part: of their modules.
std::set<std::string> TrainedModules(const StatePairs& states) {
  std::set<std::string> modules;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const std::string& name = states.tensors[i].now->name;
    if (states.trained[i] && name.rfind('.') != std::string::npos) modules.insert(name.substr(0, name.rfind('.')));
  }
  return modules;
}

// Returns whether the step is one in which the weights that are trained, or their moments, have moved. Normalizing
// layers, averages and counters of batches go on also while the optimizer rests.
bool OptimizerMoves(const StatePairs& states) {
  const bool names_tell = std::ranges::find(states.trained, true) != states.trained.end();
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (!pair.steady || !pair.changed) continue;
    if (states.roles[i].kind == Kind::kMoment) return true;
    if (states.roles[i].kind != Kind::kWeight) continue;
    if (names_tell ? states.trained[i] : FollowedBy(pair.now->name) == Follower::kNone) return true;
  }
  return false;
}

}  // namespace

// Objects, such as the position of a data loader, that changed in each save until now.
void FindStoppedCounters(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::vector<std::string> stopped, returned, back, ahead;
  // Another run may read its data in other units.
  const bool judged = states.same_line() && OptimizerMoves(states) && states.trained_as_much();
  for (const ObjectPair& pair : states.objects) {
    const ObjectHistory& history = pair.before->history;
    const bool steps = CountsSteps(pair.now->name);
    if (!judged || !pair.steady || history.changes < states.changes_to_expect()) continue;
    // A schedule may come to rest, and what had the same value before may have it twice.
    if (absl::StrContains(pair.now->name, "scheduler") || history.returns > 0) continue;
    if (!pair.changed && (steps || CountsOn(pair.now->name))) stopped.push_back(pair.now->name);
    if (pair.returned && steps) returned.push_back(pair.now->name);
  }
  const std::set<std::string> modules = TrainedModules(states);
  size_t steps = 0, steps_back = 0;  // of the optimizer
  std::vector<double> growths;
  std::vector<std::pair<double, std::string>> grown;  // far, with the names
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (pair.before == nullptr || Elements(*pair.now) != 1) continue;
    const std::string& name = pair.now->name;
    const bool step = states.roles[i].kind == Kind::kStep;
    const double was = pair.before->summary.statistics.max, is = pair.now->summary.statistics.max;
    if (judged && states.roles[i].kind != Kind::kMoment && CountsSteps(name)) {
      // One of another name may count from the beginning of an epoch.
      if (is < was && absl::EndsWith(name, "global_step")) back.push_back(name);
      const bool known = pair.expected() && pair.before->history.changes >= states.changes_to_expect();
      if (known && !pair.changed) stopped.push_back(name);
      continue;
    }
    // Normalizing layers count batches in a tensor of this name. Those of averages are counted anew.
    const bool batches = CountsBatches(name) && modules.contains(name.substr(0, name.rfind('.')));
    if (!step && !batches) continue;
    // A count that belongs to no weight may begin again now and then.
    if (step && states.roles[i].weight < 0 && !modules.empty()) continue;
    const bool smaller = is < was;
    if (smaller) back.push_back(name);
    growths.push_back(is - was);
    const double usual = static_cast<double>(pair.before->history.last_movement) * was;
    if (usual > 0 && is - was > kFarAhead * usual) grown.emplace_back(is - was, name);
    if (step) {
      ++steps;
      steps_back += smaller;
    }
  }
  const double of_most = Median(std::move(growths)).value_or(0);
  for (auto& [growth, name] : grown) {
    if (growth > kFarAhead * of_most) ahead.push_back(std::move(name));
  }
  // A run of its own may begin with an optimizer of its own.
  if (!states.same_line() && steps_back == steps) {
    std::erase_if(back, [](const std::string& name) { return !CountsBatches(name); });
  }
  std::string text;
  if (!stopped.empty()) {
    text = absl::StrCat("the same as at ", states.Before(),
                        ", and another one in each save before: ", NameGroups(stopped));
  }
  if (!back.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "smaller than at ", states.Before(), ": ",
                    NamesAndRanks(*states.now, back));
  }
  if (!returned.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "what they were at an earlier save: ", NameGroups(returned));
  }
  if (!ahead.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "far ahead of the others since ", states.Before(), ": ",
                    NamesAndRanks(*states.now, ahead));
  }
  if (!text.empty()) alarms.push_back({std::string(alarm::kCounterStopped), text});
}

}  // namespace cairn
