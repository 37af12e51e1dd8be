#include "coordinator/alarms/content_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/name_pattern.h"
#include "coordinator/alarms/movement_rules.h"
#include "coordinator/alarms/name_groups.h"
#include "coordinator/alarms/tensor_measures.h"
#include "coordinator/alarms/zero_shards.h"

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

// Weights that have changed so often together are tied.
constexpr uint32_t kChangesToBeTied = 8;
// The mean of many is so much nearer to one of two of them than to the other in one of ten cases, and farther from the
// nearer one in most. Squares, as shares of that of the distance of the two.
constexpr double kFromTheMiddle = 0.6;
constexpr double kNear = 0.5;
// What an alarm names of equal tensors.
constexpr size_t kMostPairs = 4;
// A tensor that has had one shape and dtype for so many saves keeps them.
constexpr uint32_t kSavesToKnowKind = 3;
// A first moment is at zero after so many steps without gradients that the squared one has fallen to this share, all of
// its elements alike but for rounding.
constexpr double kFall = 0.95;
constexpr double kRounding = 1e-4;

// Returns whether all, or most, of an optimizer's steps are smaller than they were: it began anew.
bool OptimizerBeganAnew(const StatePairs& states) {
  size_t steps = 0, back = 0;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kStep || pair.before == nullptr) continue;
    ++steps;
    back += pair.now->summary.statistics.max < pair.before->summary.statistics.max;
  }
  return back * 2 > steps;
}

// Returns whether all elements of a squared moment fell by one factor, as they do without gradients.
bool FellEvenly(const TensorPair& pair) {
  const TensorStatistics &was = pair.before->summary.statistics, &is = pair.now->summary.statistics;
  if (Elements(*pair.now) < kElementsToJudge || was.min < 0 || was.sum <= 0 || is.sum <= 0) return false;
  const double factor = is.sum / was.sum;
  return factor < kFall && std::abs(is.max / was.max - factor) < kRounding * factor;
}

// Tensors that are equal, or were.
struct Equals {
  std::vector<std::string> pairs;
  std::set<std::string> names;

  void Add(const std::string& one, const std::string& other) {
    pairs.push_back(absl::StrCat(one, " = ", other));
    names.insert({one, other});
  }
  std::string Text(const StatePairs& states) {
    std::sort(pairs.begin(), pairs.end());
    const size_t count = pairs.size();
    pairs.resize(std::min<size_t>(count, kMostPairs));
    return absl::StrCat(NamesAndRanks(*states.now, {names.begin(), names.end()}), "; ", absl::StrJoin(pairs, ", "),
                        count > pairs.size() ? absl::StrCat(" and ", count - pairs.size(), " more pairs") : "");
  }
};

// Returns whether two tensors that have become equal are what one of them was. Replicas that are trained apart and then
// averaged are in the middle between both, or beyond it, where all have gone.
bool AreOneOfThem(const TensorPair& a, const TensorPair& b) {
  const auto& was = a.before->summary.statistics.sketch;
  const auto& other = b.before->summary.statistics.sketch;
  const auto& is = a.now->summary.statistics.sketch;
  double apart = 0, from_was = 0, from_other = 0;  // squares
  for (size_t lane = 0; lane < was.size(); ++lane) {
    apart += (other[lane] - was[lane]) * (other[lane] - was[lane]);
    from_was += (is[lane] - was[lane]) * (is[lane] - was[lane]);
    from_other += (is[lane] - other[lane]) * (is[lane] - other[lane]);
  }
  return std::min(from_was, from_other) <= kNear * apart && std::abs(from_was - from_other) >= kFromTheMiddle * apart;
}

// Which end of a model a weight is at, by the name of its module.
enum class End { kNone, kEmbedding, kHead };
End EndOf(const std::string& name) {
  for (const char* word : {"lm_head", "embed_out", "output", "head", "logits"}) {
    if (absl::StrContains(name, word)) return End::kHead;
  }
  for (const char* word : {"embed", "wte", "shared"}) {
    if (absl::StrContains(name, word)) return End::kEmbedding;
  }
  return End::kNone;
}

}  // namespace

void FindZeroMoments(const StatePairs& states, std::vector<Alarm>& alarms) {
  struct Owner {
    size_t moments = 0;
    std::vector<std::string> whole, in_part;
    bool without_gradients = false;
  };
  std::map<std::string, Owner> owners;
  size_t moments = 0;
  std::optional<std::set<size_t>> experts;  // found when they are asked for
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kMoment || pair.before == nullptr) continue;
    const TensorStatistics& was = pair.before->summary.statistics;
    if (was.zeros >= static_cast<uint64_t>(Elements(*pair.before)) / 2 + 1 || Norm(*pair.before) < 1e-18) continue;
    ++moments;
    Owner& owner = owners[OwnerOf(pair.now->name, states.roles[i].key)];
    owner.without_gradients |= IsSquared(states.roles[i].key) && FellEvenly(pair);
    const auto elements = static_cast<uint64_t>(Elements(*pair.now));
    const uint64_t zeros = pair.now->summary.statistics.zeros;
    const bool zero = IsZero(*pair.now);
    // Codes of 8 bits are zeros beside one large element.
    const bool zeros_in_part =
        zeros > was.zeros && zeros - was.zeros >= elements / 5 + 1 && BytesOf(pair.now->dtype) > 1;
    if (!zero && !zeros_in_part) continue;
    // An expert that has had no tokens yet came here with its moments.
    if (const int32_t weight = states.roles[i].weight; weight >= 0) {
      if (!experts.has_value()) experts = MovedExperts(states);
      if (experts->contains(static_cast<size_t>(weight))) continue;
    }
    if (zero) {
      owner.whole.push_back(pair.now->name);
    } else {
      owner.in_part.push_back(pair.now->name);
    }
  }
  std::vector<std::string> names;
  for (auto& [name, owner] : owners) {
    // Hundreds of steps without gradients leave nothing of a first moment, where small numbers are taken for zeros.
    if (!owner.without_gradients) names.insert(names.end(), owner.whole.begin(), owner.whole.end());
    // Within a run, the moments of one shard, or of some rows, may be reset. Rows without gradients have zeros in the
    // first moment alone. A new run may have an optimizer of its own, whose moments are zeros where it has seen no
    // gradient yet.
    if (!states.same_line() || owner.in_part.size() + owner.whole.size() < 2) continue;
    names.insert(names.end(), owner.in_part.begin(), owner.in_part.end());
  }
  // A training that begins anew with an optimizer of its own has all of them at 0.
  if (!states.same_line() && (names.size() == moments || OptimizerBeganAnew(states))) return;
  std::string text;
  if (!names.empty()) {
    text = absl::StrCat("zeros that were none at ", states.Before(), ": ", NamesAndRanks(*states.now, names));
  }
  std::vector<bool> part(states.tensors.size());
  for (size_t i = 0; i < part.size(); ++i) part[i] = states.roles[i].kind == Kind::kMoment;
  if (const std::string zeros = ZeroShards(states, part); !zeros.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", zeros);
  }
  if (!text.empty()) alarms.push_back({std::string(alarm::kZeroMoments), text});
}

void FindNonFinite(const StatePairs& states, std::vector<Alarm>& alarms) {
  std::vector<std::string> names;
  uint64_t elements = 0;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    const uint64_t count = pair.now->summary.statistics.non_finite;
    if (count == 0 || pair.before == nullptr) continue;
    // A mean of no samples is NaN.
    const bool optimizer = states.roles[i].kind == Kind::kMoment || states.roles[i].kind == Kind::kStep;
    if (Elements(*pair.now) == 1 && !states.trained[i] && !optimizer) continue;
    // What is infinite from the first save on, as a mask is, is meant.
    if (pair.before->summary.statistics.non_finite > 0 && !states.before->Raised(alarm::kNonFinite)) continue;
    names.push_back(pair.now->name);
    elements += count;
  }
  if (names.empty()) return;
  alarms.push_back({std::string(alarm::kNonFinite),
                    absl::StrCat(elements, elements == 1 ? " element is" : " elements are", " NaN or infinite, ",
                                 states.before->Raised(alarm::kNonFinite) ? "as some were at " : "and none was at ",
                                 states.Before(), ": ", NamesAndRanks(*states.now, names))});
}

// Shapes and dtypes, within one run. A save that lacks names is refused, unless its caller says that they are meant to
// go.
void FindDrift(const StatePairs& states, std::vector<Alarm>& alarms) {
  if (!states.same_line()) return;
  std::vector<std::string> names;
  for (const auto& [i, was] : states.other_kinds) {
    const StateSummary::Tensor& is = *states.tensors[i].now;
    const bool trained = states.trained[i] || states.roles[i].kind == Kind::kMoment;
    // A frozen matrix keeps its shape too. Observers and caches have another one now and then.
    const bool frozen = was->history.changes == 0 && was->shape.size() > 1;
    // What has had one shape for some saves keeps it. Losses so far and tokens that are left over have any length.
    const bool known = was->history.changes + was->history.unchanged >= kSavesToKnowKind;
    const bool other_dtype = is.dtype != was->dtype;
    if (trained ? known || other_dtype : known && (frozen || other_dtype)) names.push_back(is.name);
  }
  if (names.empty()) return;
  alarms.push_back({std::string(alarm::kStateDrift), absl::StrCat("another shape or dtype than at ", states.Before(),
                                                                  ": ", NamesAndRanks(*states.now, names))});
}

// Experts, layers or stages that have become equal.
void FindEqualTensors(const StatePairs& states, std::vector<Alarm>& alarms) {
  struct Class {
    std::vector<size_t> tensors;
  };
  absl::flat_hash_map<uint64_t, Class> classes;
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorStatistics& statistics = states.tensors[i].now->summary.statistics;
    // Whole numbers are equal by chance.
    if (!IsFloat(states.tensors[i].now->dtype) || statistics.min >= statistics.max) continue;
    if (states.tensors[i].before == nullptr || Elements(*states.tensors[i].now) < kElementsToJudge) continue;
    classes[states.tensors[i].now->summary.fingerprint_parts].tensors.push_back(i);
  }
  Equals found;
  size_t averaged = 0;  // of those
  for (const auto& entry : classes) {
    const std::vector<size_t>& equal = entry.second.tensors;
    const StateSummary::Tensor& first = *states.tensors[equal[0]].now;
    for (size_t k = 1; k < equal.size(); ++k) {
      const TensorPair& other = states.tensors[equal[k]];
      if (!other.now->SameBytes(first)) continue;
      const bool were = other.before->SameBytes(*states.tensors[equal[0]].before);
      if (were && !states.before->Raised(alarm::kEqualTensors)) continue;
      if (PatternOf(other.now->name) != PatternOf(first.name)) continue;
      found.Add(first.name, other.now->name);
      if (!were && !AreOneOfThem(states.tensors[equal[0]], other)) ++averaged;
    }
  }
  if (2 * averaged >= found.pairs.size()) return;
  alarms.push_back(
      {std::string(alarm::kEqualTensors), absl::StrCat("bit for bit equal, and different ",
                                                       states.before->Raised(alarm::kEqualTensors) ? "before " : "at ",
                                                       states.Before(), ": ", found.Text(states))});
}

void FindUntied(const StatePairs& states, std::vector<Alarm>& alarms) {
  if (!states.same_line()) return;  // another run may train them apart
  // Both belong to one model: copies of weights, such as the best ones or a teacher's, may follow them for long.
  std::map<std::pair<uint64_t, std::string>, std::vector<size_t>> classes;  // by what they were, and the model
  for (size_t i = 0; i < states.tensors.size(); ++i) {
    const TensorPair& pair = states.tensors[i];
    if (states.roles[i].kind != Kind::kWeight || pair.before == nullptr) continue;
    if (EndOf(pair.now->name) == End::kNone || FollowedBy(pair.now->name) != Follower::kNone) continue;
    const TensorStatistics& statistics = pair.before->summary.statistics;
    if (Elements(*pair.now) < kElementsToJudge || statistics.min >= statistics.max) continue;
    if (pair.before->history.changes < kChangesToBeTied) continue;
    classes[{pair.before->summary.fingerprint_parts, pair.now->name.substr(0, pair.now->name.find('.'))}].push_back(i);
  }
  Equals found;
  for (const auto& entry : classes) {
    for (const size_t i : entry.second) {
      const TensorPair& one = states.tensors[i];
      if (EndOf(one.now->name) != End::kEmbedding) continue;
      for (const size_t k : entry.second) {
        const TensorPair& other = states.tensors[k];
        // Those that were tied have the same history.
        if (EndOf(other.now->name) != End::kHead || other.before->history != one.before->history) continue;
        if (other.now->SameBytes(*one.now) || !other.before->SameBytes(*one.before)) continue;
        found.Add(one.now->name, other.now->name);
      }
    }
  }
  if (found.pairs.empty()) return;
  alarms.push_back({std::string(alarm::kUntied),
                    absl::StrCat("different, and bit for bit equal in each save before: ", found.Text(states))});
}

}  // namespace cairn
