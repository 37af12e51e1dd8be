#include "coordinator/alarms/find_alarms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/name_pattern.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_roles.h"

namespace cairn {
namespace {

using Tensor = StateSummary::Tensor;
using Object = StateSummary::Object;
using Kind = TensorRole::Kind;

// A tensor that has changed so often has shown how it moves.
constexpr uint32_t kChangesToKnowMovement = 5;
// An object, such as a data loader's position, that has changed in so many saves is expected to change in each.
constexpr uint32_t kChangesToExpectOne = 5;
// A tensor that moves by this share of its norm, and by this multiple of what it has moved so far, has jumped.
constexpr double kJump = 0.5;
constexpr double kJumpFactor = 4;
// Two tensors that have nothing in common are farther apart than this share of their norm.
constexpr double kUnrelated = 1.2;
constexpr int64_t kElementsToBeUnrelated = 1024;
// An element that is so much larger than any before it is a flipped bit, or an overflow.
constexpr double kOutlier = 1000;
// A tensor that moves by less than this share of its norm stands still now and then, because updates are rounded away.
constexpr float kMovementThatRounds = 1e-5f;
constexpr float kFading = 0.9f;
// Chance alone explains much of what smaller tensors do.
constexpr int64_t kElementsToJudge = 16;
// A smaller tensor of 16-bit floats may round away each update.
constexpr int64_t kElementsThatRound = 65536;

int64_t Elements(const Tensor& tensor) { return ElementCount(tensor.shape).value_or(0); }

bool IsNarrow(DType dtype) { return BytesOf(dtype) < 4; }

double Norm(const Tensor& tensor) { return std::sqrt(tensor.summary.statistics.sum_squares); }

// Returns the variance of the finite elements.
double Variance(const Tensor& tensor) {
  const TensorStatistics& statistics = tensor.summary.statistics;
  const double count = static_cast<double>(Elements(tensor)) - static_cast<double>(statistics.non_finite);
  if (count < 1) return 0;
  const double mean = statistics.sum / count;
  return std::max(0.0, statistics.sum_squares / count - mean * mean);
}

// Returns how far apart two tensors are: an estimate, but never less than what norms and sums prove.
double Distance(const Tensor& a, const Tensor& b) {
  const double by_norms = std::abs(Norm(a) - Norm(b));
  const double by_sums = std::abs(a.summary.statistics.sum - b.summary.statistics.sum) /
                         std::sqrt(std::max(1.0, static_cast<double>(Elements(a))));
  return std::max({EstimatedDistance(a.summary.statistics, b.summary.statistics), by_norms, by_sums});
}

double LargestMagnitude(const Tensor& tensor) {
  const TensorStatistics& statistics = tensor.summary.statistics;
  return statistics.min > statistics.max ? 0 : std::max(std::abs(statistics.min), std::abs(statistics.max));
}

bool IsZero(const Tensor& tensor) {
  return Elements(tensor) > 0 && tensor.summary.statistics.zeros == static_cast<uint64_t>(Elements(tensor));
}

// Returns true for the name of an object that counts on in each save: a data loader's position, a schedule, progress.
bool CountsOn(const std::string& name) {
  for (const char* word : {"loader", "sampler", "data", "progress", "cursor", "consumed", "scheduler"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

std::string Ranks(const std::set<int32_t>& ranks) {
  std::vector<int32_t> first(ranks.begin(),
                             std::next(ranks.begin(), static_cast<int64_t>(std::min<size_t>(8, ranks.size()))));
  std::string text = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(first, ", "));
  if (ranks.size() > first.size()) absl::StrAppend(&text, " and ", ranks.size() - first.size(), " more");
  return text;
}

TensorHistory Continued(TensorHistory history, bool changed, double distance) {
  if (changed) {
    ++history.changes;
    history.longest_unchanged = std::max(history.longest_unchanged, history.unchanged);
    history.unchanged = 0;
    history.movement = std::max(static_cast<float>(distance), kFading * history.movement);
  } else {
    ++history.unchanged;
  }
  return history;
}

class Judge {
 public:
  Judge(const StateSummary& before, StateSummary& now) : before_(before), now_(now), roles_(RolesOf(now.tensors)) {
    Match();
    Compare();
  }

  std::vector<Alarm> Run() {
    SameStep();
    if (alarms_.empty()) {
      StaleRanks();
      StaleTensors();
      StoppedCounters();
    }
    ZeroMoments();
    NonFinite();
    Jumps();
    Drift();
    EqualTensors();
    EqualRandomStates();
    return std::move(alarms_);
  }

 private:
  struct Pair {
    Tensor* now = nullptr;
    const Tensor* before = nullptr;  // null: there was none of this name, dtype and shape
    bool changed = false;
    double distance = 0;  // as a share of the norm
    // It changed in each save until now.
    bool steady() const { return before != nullptr && before->history.steady(); }
    // It did so, and chance does not explain that it stands still.
    bool expected() const { return steady() && (!IsNarrow(before->dtype) || Elements(*before) >= kElementsThatRound); }
  };
  struct ObjectPair {
    Object* now = nullptr;
    const Object* before = nullptr;
    bool changed = false;
  };

  void Match() {
    pairs_.resize(now_.tensors.size());
    size_t old = 0;
    for (size_t i = 0; i < now_.tensors.size(); ++i) {
      Pair& pair = pairs_[i];
      pair.now = &now_.tensors[i];
      while (old < before_.tensors.size() && before_.tensors[old].name < pair.now->name)
        Gone(before_.tensors[old++].name);
      if (old == before_.tensors.size() || before_.tensors[old].name != pair.now->name) continue;
      const Tensor& was = before_.tensors[old++];
      if (was.SameKind(*pair.now)) {
        pair.before = &was;
      } else {
        other_kind_.push_back(pair.now->name);
      }
    }
    while (old < before_.tensors.size()) Gone(before_.tensors[old++].name);
    for (Object& object : now_.objects) {
      const auto found =
          std::lower_bound(before_.objects.begin(), before_.objects.end(), object.name,
                           [](const Object& entry, const std::string& name) { return entry.name < name; });
      if (found != before_.objects.end() && found->name == object.name) objects_.push_back({&object, &*found, false});
    }
  }

  void Gone(const std::string& name) { gone_.push_back(name); }

  // Finds what has changed and how far it has moved, and continues the histories.
  void Compare() {
    for (Pair& pair : pairs_) {
      if (pair.before == nullptr) continue;
      pair.changed = !pair.now->SameBytes(*pair.before);
      const double norm = std::max(Norm(*pair.now), Norm(*pair.before));
      if (pair.changed && norm > 0) pair.distance = Distance(*pair.before, *pair.now) / norm;
      pair.now->history = Continued(pair.before->history, pair.changed, pair.distance);
    }
    for (ObjectPair& pair : objects_) {
      // With other ranks there are other entries. Then it is no news that they differ, nor that they do not.
      pair.changed = pair.now->crc32c != pair.before->crc32c;
      pair.now->history = Continued(pair.before->history, pair.changed, 0);
    }
  }

  void Raise(std::string_view kind, std::string message) { alarms_.push_back({std::string(kind), std::move(message)}); }

  std::string Before() const { return absl::StrCat("step ", before_.step); }
  bool same_line() const { return now_.line == before_.line; }

  // The step is the one before it again.
  void SameStep() {
    size_t steady = 0;
    uint32_t run = UINT32_MAX, longest = 0;
    for (const Pair& pair : pairs_) {
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
    for (const ObjectPair& pair : objects_) {
      if (!pair.before->history.steady()) continue;
      ++objects;
      counts = counts || pair.changed;
    }
    // Saves within one step of the optimizer are equal too, as are those around a step that was skipped.
    const bool for_long = run >= 2 && run > 2 * longest;
    const bool whole = objects > 0 && !counts;
    if (!whole && !(for_long && run == std::max(2U, 2 * longest + 1))) return;
    Raise(alarm::kSameStep, absl::StrCat("all ", steady, steady == 1 ? " tensor" : " tensors", " that used to change",
                                         whole ? " and all objects that used to" : "", " are bit for bit those of ",
                                         Before(), run > 1 ? absl::StrCat(", for ", run, " saves now") : ""));
  }

  // Ranks that wrote what they wrote before, while others went on.
  void StaleRanks() {
    if (now_.plan_digest != before_.plan_digest || now_.shards.size() != before_.shards.size()) return;
    struct Count {
      size_t same = 0, changed = 0;
      std::vector<uint32_t> tensors;
    };
    std::vector<Count> ranks(now_.world_size);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (!pair.expected()) continue;
      // An expert without tokens stands still, and nothing is wrong.
      if (!pair.changed && absl::StrContains(pair.now->name, "expert")) continue;
      if (pair.now->shard_count != pair.before->shard_count) continue;  // a record that contradicts its plan
      for (uint32_t k = 0; k < pair.now->shard_count; ++k) {
        const StateSummary::Shard& shard = now_.shards[pair.now->first_shard + k];
        if (static_cast<size_t>(shard.rank) >= ranks.size()) continue;
        Count& count = ranks[static_cast<size_t>(shard.rank)];
        if (shard.crc32c != before_.shards[pair.before->first_shard + k].crc32c) {
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
    for (const uint32_t tensor : tensors) names.push_back(pairs_[tensor].now->name);
    Raise(alarm::kStaleRank, absl::StrCat("what ", Ranks(stale), stale.size() == 1 ? " wrote is" : " wrote is",
                                          " bit for bit what ", stale.size() == 1 ? "it" : "they", " wrote at ",
                                          Before(), ", while the other ranks' tensors changed: ", NameGroups(names)));
    for (const uint32_t tensor : tensors) told_.insert(tensor);
  }

  // A weight moves and its optimizer's state does not, or the other way round.
  void StaleTensors() {
    struct Kept {
      size_t moments = 0, still = 0;
    };
    absl::flat_hash_map<int32_t, Kept> kept;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const TensorRole& role = roles_[i];
      if (role.weight < 0 || (role.kind != Kind::kMoment && role.kind != Kind::kStep)) continue;
      if (!pairs_[i].expected() || told_.contains(static_cast<uint32_t>(i))) continue;
      Kept& of = kept[role.weight];
      ++of.moments;
      of.still += pairs_[i].changed ? 0 : 1;
    }
    std::vector<std::string> frozen, stale;
    size_t moving = 0;
    if (kept.empty()) frozen = FrozenWithoutNames();
    for (const auto& [weight, of] : kept) {
      const Pair& pair = pairs_[static_cast<size_t>(weight)];
      if (pair.before == nullptr) continue;
      moving += pair.changed;
      if (pair.changed && of.still == of.moments) frozen.push_back(pair.now->name);
      // With a learning rate of 0, or one that float32 rounds away, weights stand still too: then most of them do.
      if (!pair.changed && of.still == 0 && pair.expected() && !IsNarrow(pair.now->dtype) &&
          pair.before->history.movement > kMovementThatRounds && !told_.contains(static_cast<uint32_t>(weight))) {
        stale.push_back(pair.now->name);
      }
    }
    std::sort(frozen.begin(), frozen.end());
    std::sort(stale.begin(), stale.end());
    if (!frozen.empty()) {
      Raise(alarm::kFrozenOptimizer, absl::StrCat("the optimizer's state is bit for bit that of ", Before(),
                                                  " for weights that changed: ", NameGroups(frozen)));
    }
    if (!stale.empty() && moving > stale.size()) {
      Raise(alarm::kStaleTensor, absl::StrCat("weights are bit for bit those of ", Before(),
                                              " though the optimizer's state for them changed: ", NameGroups(stale)));
    }
  }

  // Returns the state of an optimizer whose names do not say to which weights it belongs, if all of it stands still
  // while weights move.
  std::vector<std::string> FrozenWithoutNames() const {
    std::vector<std::string> still;
    bool weights = false;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      weights = weights || (roles_[i].kind == Kind::kWeight && pair.steady() && pair.changed);
      if ((roles_[i].kind != Kind::kMoment && roles_[i].kind != Kind::kStep) || !pair.expected()) continue;
      if (pair.changed) return {};
      still.push_back(pair.now->name);
    }
    return weights ? still : std::vector<std::string>();
  }

  // Objects, such as the position of a data loader, that changed in each save until now.
  void StoppedCounters() {
    std::vector<std::string> stopped, back;
    bool weights = false;
    for (const Pair& pair : pairs_) weights = weights || (pair.steady() && pair.changed);
    for (const ObjectPair& pair : objects_) {
      const TensorHistory& history = pair.before->history;
      if (!weights || !CountsOn(pair.now->name) || !history.steady() || history.changes < kChangesToExpectOne) continue;
      const std::set<int32_t> ranks = Unchanged(pair);
      if (!pair.changed) {
        stopped.push_back(pair.now->name);
      } else if (!ranks.empty()) {
        stopped.push_back(absl::StrCat(pair.now->name, " of ", Ranks(ranks)));
      }
    }
    size_t steps = 0;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (roles_[i].kind != Kind::kStep || pair.before == nullptr || Elements(*pair.now) != 1) continue;
      ++steps;
      if (pair.now->summary.statistics.max < pair.before->summary.statistics.max) back.push_back(pair.now->name);
    }
    // A run of its own may begin with an optimizer of its own.
    if (!same_line() && back.size() == steps) back.clear();
    std::string text;
    if (!stopped.empty()) {
      text = absl::StrCat("the same as at ", Before(), ", and another one in each save before: ", NameGroups(stopped));
    }
    if (!back.empty()) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", "smaller than at ", Before(), ": ", NameGroups(back));
    }
    if (!text.empty()) Raise(alarm::kCounterStopped, text);
  }

  // Returns the ranks whose own object is the one before, while those of other ranks changed.
  static std::set<int32_t> Unchanged(const ObjectPair& pair) {
    std::set<int32_t> ranks;
    if (!pair.now->per_rank || pair.now->crc32c.size() != pair.before->crc32c.size()) return ranks;
    for (size_t rank = 0; rank < pair.now->crc32c.size(); ++rank) {
      if (pair.now->crc32c[rank] == pair.before->crc32c[rank]) ranks.insert(static_cast<int32_t>(rank));
    }
    return ranks;
  }

  void ZeroMoments() {
    std::vector<std::string> names;
    size_t moments = 0;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (roles_[i].kind != Kind::kMoment || pair.before == nullptr) continue;
      const TensorStatistics& was = pair.before->summary.statistics;
      if (was.zeros >= static_cast<uint64_t>(Elements(*pair.before)) / 2 + 1 || Norm(*pair.before) < 1e-18) continue;
      ++moments;
      // Within a run, the moments of one shard, or of some rows, may be reset. A new one may have an optimizer of its
      // own, whose moments are zeros where it has seen no gradient yet.
      const auto elements = static_cast<uint64_t>(Elements(*pair.now));
      const uint64_t zeros = pair.now->summary.statistics.zeros;
      const bool some = same_line() && zeros > was.zeros && zeros - was.zeros >= elements / 5 + 1;
      if (some || IsZero(*pair.now)) names.push_back(pair.now->name);
    }
    // A training that begins anew with an optimizer of its own has all of them at 0.
    if (names.empty() || (!same_line() && names.size() == moments)) return;
    Raise(alarm::kZeroMoments, absl::StrCat("zeros that were none at ", Before(), ": ", NameGroups(names)));
  }

  void NonFinite() {
    std::vector<std::string> names;
    uint64_t elements = 0;
    for (const Pair& pair : pairs_) {
      const uint64_t count = pair.now->summary.statistics.non_finite;
      if (count == 0 || pair.before == nullptr) continue;
      // What is infinite from the first save on, as a mask is, is meant.
      if (pair.before->summary.statistics.non_finite > 0 && !before_.Raised(alarm::kNonFinite)) continue;
      names.push_back(pair.now->name);
      elements += count;
    }
    if (names.empty()) return;
    Raise(alarm::kNonFinite,
          absl::StrCat(elements, elements == 1 ? " element is" : " elements are", " NaN or infinite, ",
                       before_.Raised(alarm::kNonFinite) ? "as some were at " : "and none was at ", Before(), ": ",
                       NameGroups(names)));
  }

  // Returns the numbers of the weights that are judged by how far they move. If the names say which weights an
  // optimizer trains, it is these: other tensors of the program, such as statistics and queues, may move as they like.
  std::vector<size_t> MovingWeights() const {
    std::set<size_t> trained;
    for (const TensorRole& role : roles_) {
      if (role.kind == Kind::kMoment && role.weight >= 0) trained.insert(static_cast<size_t>(role.weight));
    }
    std::vector<size_t> weights;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (roles_[i].kind != Kind::kWeight || pair.before == nullptr || !pair.changed) continue;
      if (!trained.empty() ? !trained.contains(i) : absl::StrContains(pair.now->name, "running_")) continue;
      if (Elements(*pair.now) < kElementsToJudge || pair.now->summary.statistics.non_finite > 0) continue;
      if (pair.before->history.changes >= kChangesToKnowMovement) weights.push_back(i);
    }
    return weights;
  }

  void Jumps() {
    const std::vector<size_t> weights = MovingWeights();
    // With more training between two saves, or a higher rate, all weights move farther than before.
    std::vector<double> ratios;
    for (const size_t i : weights) {
      const double movement = static_cast<double>(pairs_[i].before->history.movement);
      if (movement > 0) ratios.push_back(pairs_[i].distance / movement);
    }
    std::sort(ratios.begin(), ratios.end());
    const double usual = ratios.empty() ? 1 : std::max(1.0, ratios[(ratios.size() - 1) / 2]);
    std::vector<std::string> names;
    std::string example;
    double farthest = 0;
    for (const size_t i : weights) {
      const Pair& pair = pairs_[i];
      const double movement = static_cast<double>(pair.before->history.movement);
      const bool far = pair.distance > kJump && pair.distance > kJumpFactor * usual * movement;
      // Most weights may be wrong.
      const bool unrelated = pair.distance > kUnrelated && pair.distance > kJumpFactor * movement &&
                             Elements(*pair.now) >= kElementsToBeUnrelated;
      const double magnitude = LargestMagnitude(*pair.before);
      const bool outlier = magnitude > 0 && LargestMagnitude(*pair.now) > kOutlier * magnitude;
      if (!far && !unrelated && !outlier) continue;
      names.push_back(pair.now->name);
      if (!example.empty() && pair.distance <= farthest) continue;
      farthest = pair.distance;
      example = absl::StrCat(pair.now->name, " ", HowItMoved(pair));
    }
    if (names.empty()) return StillZero();
    Raise(alarm::kJump,
          absl::StrCat("moved farther since ", Before(), " than ever before: ", NameGroups(names), "; ", example));
  }

  // What became all zeros by a jump is wrong as long as it is so.
  void StillZero() {
    if (!before_.Raised(alarm::kJump)) return;
    std::vector<std::string> names;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (roles_[i].kind != Kind::kWeight || pair.before == nullptr || pair.before->history.changes < 3) continue;
      if (IsZero(*pair.now) && Elements(*pair.now) >= kElementsToJudge) names.push_back(pair.now->name);
    }
    if (!names.empty()) Raise(alarm::kJump, absl::StrCat("all zeros still: ", NameGroups(names)));
  }

  static std::string HowItMoved(const Pair& pair) {
    const double was = Norm(*pair.before), is = Norm(*pair.now);
    if (LargestMagnitude(*pair.now) > kOutlier * LargestMagnitude(*pair.before)) {
      return absl::StrFormat("has an element of %.3g, and had none above %.3g", LargestMagnitude(*pair.now),
                             LargestMagnitude(*pair.before));
    }
    std::string text = absl::StrFormat("moved by %.2g of its norm, and by %.2g at most before", pair.distance,
                                       pair.before->history.movement);
    if (IsZero(*pair.now)) return text + "; it is all zeros now";
    if (Variance(*pair.now) < 1e-6 * Variance(*pair.before)) return text + "; all its elements are nearly equal now";
    if (is > 2 * was || is < was / 2) return absl::StrFormat("%s; its norm was %.3g and is %.3g", text, was, is);
    return text + "; its norm is about the same, as if its elements had changed places or were another tensor's";
  }

  // Names, shapes and dtypes, within one run.
  void Drift() {
    if (!same_line()) return;
    std::string text;
    for (const Object& object : before_.objects) {
      if (CountsOn(object.name) && !std::ranges::binary_search(now_.objects, object.name, {}, &Object::name)) {
        gone_.push_back(object.name);
      }
    }
    if (!other_kind_.empty())
      text = absl::StrCat("another shape or dtype than at ", Before(), ": ", NameGroups(other_kind_));
    if (!gone_.empty()) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", "not there any more since ", Before(), ": ", NameGroups(gone_));
    }
    if (!text.empty()) Raise(alarm::kStateDrift, text);
  }

  // Experts, layers or stages that have become equal.
  void EqualTensors() {
    struct Class {
      std::vector<size_t> tensors;
    };
    absl::flat_hash_map<uint64_t, Class> classes;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const TensorStatistics& statistics = pairs_[i].now->summary.statistics;
      // Whole numbers are equal by chance.
      if (!IsFloat(pairs_[i].now->dtype) || statistics.min >= statistics.max) continue;
      if (pairs_[i].before == nullptr || Elements(*pairs_[i].now) < kElementsToJudge) continue;
      classes[pairs_[i].now->summary.fingerprint_parts].tensors.push_back(i);
    }
    std::vector<std::string> pairs;
    for (const auto& entry : classes) {
      const std::vector<size_t>& equal = entry.second.tensors;
      const Tensor& first = *pairs_[equal[0]].now;
      for (size_t k = 1; k < equal.size(); ++k) {
        const Pair& other = pairs_[equal[k]];
        if (!other.now->SameBytes(first)) continue;
        const bool were = other.before->SameBytes(*pairs_[equal[0]].before);
        if (were && !before_.Raised(alarm::kEqualTensors)) continue;
        if (PatternOf(other.now->name) != PatternOf(first.name)) continue;
        pairs.push_back(absl::StrCat(first.name, " = ", other.now->name));
      }
    }
    if (pairs.empty()) return;
    std::sort(pairs.begin(), pairs.end());
    const size_t count = pairs.size();
    pairs.resize(std::min<size_t>(count, 4));
    Raise(alarm::kEqualTensors,
          absl::StrCat("bit for bit equal, and different ", before_.Raised(alarm::kEqualTensors) ? "before " : "at ",
                       Before(), ": ", absl::StrJoin(pairs, ", "),
                       count > pairs.size() ? absl::StrCat(" and ", count - pairs.size(), " more pairs") : ""));
  }

  // Generators of random numbers of which each rank had its own.
  void EqualRandomStates() {
    std::vector<std::string> names;
    for (const ObjectPair& pair : objects_) {
      const std::string& name = pair.now->name;
      if (!absl::StrContains(name, "rng") && !absl::StrContains(name, "random")) continue;
      const std::vector<uint32_t>&now = pair.now->crc32c, &was = pair.before->crc32c;
      if (now.size() < 2 || now.size() != was.size()) continue;
      if (std::set(was.begin(), was.end()).size() == was.size() && std::set(now.begin(), now.end()).size() == 1) {
        names.push_back(name);
      }
    }
    if (names.empty()) return;
    Raise(alarm::kEqualRandomStates,
          absl::StrCat("the same on all ranks, and another on each rank at ", Before(), ": ", NameGroups(names)));
  }

  const StateSummary& before_;
  StateSummary& now_;
  const std::vector<TensorRole> roles_;
  std::vector<Pair> pairs_;  // by tensor of now_
  std::vector<ObjectPair> objects_;
  std::vector<std::string> gone_, other_kind_;
  std::set<uint32_t> told_;  // tensors of stale ranks
  std::vector<Alarm> alarms_;
};

}  // namespace

std::vector<Alarm> FindAlarms(const StateSummary* before, StateSummary& now) {
  if (before == nullptr) return {};
  std::vector<Alarm> alarms = Judge(*before, now).Run();
  for (const Alarm& alarm : alarms) now.alarms.push_back(alarm.kind);
  return alarms;
}

}  // namespace cairn
