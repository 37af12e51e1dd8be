#include "coordinator/alarms/still_rules.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/stale_ranks.h"
#include "coordinator/alarms/tensor_measures.h"

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

// A whole state that rests for so many saves, while the trainer counts on, may be told. A gradient scaler skips some
// steps in a row.
constexpr uint32_t kRestToTell = 3;
// An optimizer's state that has not changed since the first save is told after so many saves in which its weights did.
constexpr uint32_t kSavesToBeFrozen = 5;
// A weight that moved by this share of what it has moved before does not come to rest by itself.
constexpr float kAtOnce = 0.5f;

// Returns whether the state of an optimizer is expected to change: it always did, or it did until what was said of it
// at the step before.
bool StateIsExpected(const StatePairs& states, const TensorPair& pair) {
  if (pair.expected()) return true;
  return states.before->Raised(alarm::kFrozenOptimizer) && pair.was_steady && !pair.changed && pair.judged();
}

// Returns the state of an optimizer whose names do not say to which weights it belongs, if all of it stands still
// while all weights move. Normalizing layers and averages also move at a step that the optimizer skips.
std::vector<std::string> FrozenWithoutNames(const StatePairs& states) {
  std::vector<std::string> still;
  bool weights = false;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    const Kind kind = states.roles[i].kind;
    if (kind == Kind::kWeight && pair.expected() && FollowedBy(pair.now->name) == Follower::kNone) {
      if (!pair.changed) return {};
      weights = true;
    }
    if ((kind != Kind::kMoment && kind != Kind::kStep) || !StateIsExpected(states, pair)) continue;
    if (pair.changed) return {};
    still.push_back(pair.now->name);
  }
  return weights ? still : std::vector<std::string>();
}

// Returns the optimizer's state if none of it has ever changed, though the weights that it belongs to change in each
// save: a state dict that was made once, before the first step.
std::vector<std::string> FrozenFromTheFirst(const StatePairs& states) {
  const auto moves = [](const TensorPair& weight) {
    return weight.changed && weight.steady && weight.before->history.changes >= kSavesToBeFrozen;
  };
  std::vector<std::string> still;
  bool filled = false, all_move = true, some_move = false;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kWeight || !pair.expected() || FollowedBy(pair.now->name) != Follower::kNone) {
      continue;
    }
    all_move = all_move && pair.changed;
    some_move = some_move || moves(pair);
  }
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    const TensorRole& role = states.roles[i];
    if (pair.before == nullptr || (role.kind != Kind::kMoment && role.kind != Kind::kStep)) continue;
    const TensorHistory& history = pair.before->history;
    if (pair.changed || history.changes > 0 || history.unchanged + 1 < kSavesToBeFrozen) return {};
    const bool moved =
        role.weight < 0 ? all_move && some_move : moves(states.tensors[static_cast<size_t>(role.weight)]);
    if (!moved) continue;
    filled = filled || (role.kind == Kind::kMoment && !IsZero(*pair.now));
    still.push_back(pair.now->name);
  }
  return filled ? still : std::vector<std::string>();
}

// Returns the moments that stand still for all weights that have them, such as each "exp_avg", while these weights and
// other moments of theirs move.
std::vector<std::string> FrozenKeys(const StatePairs& states, const std::set<uint32_t>& told) {
  struct Key {
    bool still = false, moving = false;
    std::set<std::string> owners;
    std::vector<std::string> names;
  };
  std::map<std::string_view, Key> keys;
  // Those that have a moment that moves. Another optimizer, such as one of rounds, may rest.
  std::set<std::string> others;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    const TensorRole& role = states.roles[i];
    if ((role.kind != Kind::kMoment && role.kind != Kind::kStep) || role.weight < 0 ||
        told.contains(static_cast<uint32_t>(i)))
      continue;
    if (!StateIsExpected(states, pair)) continue;
    if (pair.changed) others.insert(OwnerOf(pair.now->name, role.key));
    if (!states.tensors[static_cast<size_t>(role.weight)].changed) continue;
    Key& key = keys[role.key];
    (pair.changed ? key.moving : key.still) = true;
    key.owners.insert(OwnerOf(pair.now->name, role.key));
    key.names.push_back(pair.now->name);
  }
  std::vector<std::string> frozen;
  for (const auto& [moment, key] : keys) {
    // A maximum stands still as the gradients fall, and optimizers of few bits keep the variance from some step on.
    if (!key.still || key.moving || IsSquared(moment)) continue;
    if (std::ranges::any_of(key.owners, [&](const std::string& owner) { return others.contains(owner); })) {
      frozen.insert(frozen.end(), key.names.begin(), key.names.end());
    }
  }
  return frozen;
}

// Returns whether these weights were at rest at once. With a learning rate that falls, or without gradients, they move
// less and less before.
bool StoppedAtOnce(const StatePairs& states, const std::vector<uint32_t>& weights) {
  const auto at_once = std::ranges::count_if(weights, [&](uint32_t weight) {
    const TensorHistory& history = states.tensors[weight].before->history;
    return history.last_movement >= kAtOnce * history.movement;
  });
  return static_cast<size_t>(at_once) * 4 >= weights.size() * 3;
}

// Returns by how much less than before the trained weights moved that do move; 1 if they moved as far. With a rate that
// is cut, the updates of some may be rounded away.
double SlowerBy(const StatePairs& states) {
  std::vector<double> ratios;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (!states.trained[i] || !pair.changed || pair.before == nullptr || pair.before->history.movement <= 0) continue;
    ratios.push_back(pair.distance / static_cast<double>(pair.before->history.movement));
  }
  return std::min(1.0, Median(std::move(ratios)).value_or(1));
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
    if (!StateIsExpected(states, states.tensors[i]) || told.contains(static_cast<uint32_t>(i))) continue;
    Kept& of = kept[role.weight];
    ++of.moments;
    of.still += states.tensors[i].changed ? 0 : 1;
  }
  std::vector<std::string> frozen;
  std::vector<uint32_t> stale;
  size_t moving = 0;
  const double slower = SlowerBy(states);
  const std::vector<std::string> frozen_state = kept.empty() ? FrozenWithoutNames(states) : std::vector<std::string>();
  for (const auto& [weight, of] : kept) {
    const TensorPair& pair = states.tensors[static_cast<size_t>(weight)];
    if (pair.before == nullptr) continue;
    moving += pair.changed;
    if (pair.changed && of.still == of.moments) frozen.push_back(pair.now->name);
    if (!pair.changed && of.still == 0 && pair.expected() && !IsNarrow(pair.now->dtype) &&
        slower * static_cast<double>(pair.before->history.movement) > kMovementThatRounds &&
        !told.contains(static_cast<uint32_t>(weight))) {
      stale.push_back(static_cast<uint32_t>(weight));
    }
  }
  std::sort(frozen.begin(), frozen.end());
  std::sort(stale.begin(), stale.end());
  if (!frozen.empty()) {
    alarms.push_back({std::string(alarm::kFrozenOptimizer),
                      absl::StrCat("the optimizer's state is bit for bit that of ", states.Before(),
                                   " for weights that changed: ", NamesAndRanks(*states.now, frozen))});
  } else if (!frozen_state.empty()) {
    alarms.push_back({std::string(alarm::kFrozenOptimizer),
                      absl::StrCat("the weights changed, and the optimizer's state is bit for bit that of ",
                                   states.Before(), ": ", NamesAndRanks(*states.now, frozen_state))});
  } else if (frozen = FrozenFromTheFirst(states); !frozen.empty()) {
    alarms.push_back({std::string(alarm::kFrozenOptimizer),
                      absl::StrCat("the weights changed in each save, and the optimizer's state in none, up to ",
                                   states.Before(), ": ", NamesAndRanks(*states.now, frozen))});
  } else if (frozen = FrozenKeys(states, told); !frozen.empty()) {
    alarms.push_back(
        {std::string(alarm::kFrozenOptimizer),
         absl::StrCat("a part of the optimizer's state is bit for bit that of ", states.Before(),
                      " for all weights, and the rest of it changed: ", NamesAndRanks(*states.now, frozen))});
  }
  if (!stale.empty() && (moving > stale.size() || stale.size() >= 2) && StoppedAtOnce(states, stale)) {
    std::vector<std::string> names;
    for (const uint32_t weight : stale) names.push_back(states.tensors[weight].now->name);
    alarms.push_back(
        {std::string(alarm::kStaleTensor),
         absl::StrCat("weights are bit for bit those of ", states.Before(),
                      " though the optimizer's state for them changed: ", NamesAndRanks(*states.now, names))});
  }
}

// All averages of weights, or all statistics of normalizing layers, stand still while weights move.
void FindStaleFollowers(const StatePairs& states, std::vector<Alarm>& alarms, const std::set<uint32_t>& told) {
  // Another run may keep them as they are, and averages may be made once an epoch.
  if (!states.same_line() || !states.trained_as_much()) return;
  std::map<Follower, std::vector<std::string>> still;
  std::set<Follower> moving;
  bool weights = false;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kWeight || !pair.expected()) continue;
    const Follower follower = FollowedBy(pair.now->name);
    if (follower == Follower::kNone) {
      weights = weights || pair.changed;
    } else if (pair.changed) {
      moving.insert(follower);
    } else if (pair.before->history.changes >= states.changes_to_expect() && !told.contains(static_cast<uint32_t>(i)) &&
               pair.before->history.movement > kMovementThatRounds) {
      still[follower].push_back(pair.now->name);
    }
  }
  for (const auto& [follower, names] : still) {
    if (!weights || moving.contains(follower)) continue;
    alarms.push_back({std::string(alarm::kStaleTensor),
                      absl::StrCat(follower == Follower::kAverage ? "averages of weights" : "running statistics",
                                   " are bit for bit those of ", states.Before(),
                                   " though the weights changed: ", NamesAndRanks(*states.now, names))});
  }
}

// Bytes of two saves before are there again, of what an optimizer trains or keeps. Rates, masks and other tensors may
// take the same values by turns.
void FindReturned(const StatePairs& states, std::vector<Alarm>& alarms) {
  bool moments = false;
  std::set<uint64_t> trained;  // what they were at the step before, under all names of a tied one
  for (size_t i = 0; i < states.roles.size(); ++i) {
    moments = moments || states.roles[i].kind == Kind::kMoment;
    if (states.trained[i] && states.tensors[i].before != nullptr) {
      trained.insert(states.tensors[i].before->summary.fingerprint_parts);
    }
  }
  if (!moments) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (!pair.returned || !pair.expected() || pair.before->history.returns > 0) continue;
    const Kind kind = states.roles[i].kind;
    // If names do not say to which weights the moments belong, it may be any.
    const bool judged =
        kind == Kind::kWeight && (trained.empty() || trained.contains(pair.before->summary.fingerprint_parts));
    if (kind != Kind::kMoment && !judged) continue;
    const TensorStatistics& statistics = pair.now->summary.statistics;
    // Few numbers, and whole ones, are the same again by chance.
    if (!IsFloat(pair.now->dtype) || Elements(*pair.now) < kElementsToJudge || statistics.min >= statistics.max)
      continue;
    if (pair.before->history.last_movement <= kMovementThatRounds) continue;
    names.push_back(pair.now->name);
  }
  if (names.empty()) return;
  alarms.push_back(
      {std::string(alarm::kReturned), absl::StrCat("bit for bit what they were at the save before ", states.Before(),
                                                   ": ", NamesAndRanks(*states.now, names))});
}

}  // namespace

// The step is the one before it again.
void FindSameStep(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::vector<std::string> names;  // of those that used to change
  bool moments = false;            // are among them
  uint32_t run = UINT32_MAX, longest = 0;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (pair.before == nullptr) continue;
    if (pair.changed) return;
    if (pair.before->history.changes < 3) continue;
    names.push_back(pair.now->name);
    moments = moments || states.roles[i].kind == Kind::kMoment;
    run = std::min(run, pair.now->history.unchanged);
    longest = std::max(longest, pair.before->history.longest_unchanged);
  }
  if (names.empty()) return;
  size_t objects = 0;
  bool counts = false;  // an object of those that always change has changed: the trainer counts on
  for (const ObjectPair& pair : states.objects) {
    if (!pair.before->history.steady()) continue;
    ++objects;
    counts = counts || pair.changed;
  }
  // Saves within one step of the optimizer are equal too, as are those around steps that were skipped. Weights alone
  // rest when the rate is 0.
  const bool now_long = moments && run == std::max(kRestToTell, 2 * longest + 1);
  const bool whole = objects > 0 && !counts;
  if (!whole && !now_long) return;
  alarms.push_back(
      {std::string(alarm::kSameStep),
       absl::StrCat("all ", names.size(), names.size() == 1 ? " tensor" : " tensors", " that used to change",
                    whole ? " and all objects that used to" : "", " are bit for bit those of ", states.Before(),
                    run > 1 ? absl::StrCat(", for ", run, " saves now") : "", ": ",
                    NamesAndRanks(*states.now, names))});
}

void FindStaleState(const StatePairs& states, std::vector<Alarm>& alarms) {
  const std::set<uint32_t> told = FindStaleRanks(states, alarms);
  FindStaleTensors(states, alarms, told);
  // Each kind of alarm is raised once.
  const bool stale = std::ranges::any_of(alarms, [](const Alarm& each) { return each.kind == alarm::kStaleTensor; });
  if (!stale) FindStaleFollowers(states, alarms, told);
  FindReturned(states, alarms);
}

}  // namespace cairn
