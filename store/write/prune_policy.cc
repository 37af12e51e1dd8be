#include "store/write/prune_policy.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Returns the value of the rule's metric, so that lower is better; nothing if the candidate has none.
std::optional<double> ScoreOf(const PruneCandidate& candidate, const BestRule& rule) {
  for (const Metric& metric : candidate.metrics) {
    if (metric.name == rule.metric && std::isfinite(metric.value)) return rule.highest ? -metric.value : metric.value;
  }
  return std::nullopt;
}

// Returns the index of the best candidate that is valid. `order` has the indices, the newest first.
std::optional<size_t> BestOf(const std::vector<PruneCandidate>& candidates, const std::vector<size_t>& order,
                             const BestRule& rule, const std::function<bool(int64_t step)>& is_valid) {
  std::vector<std::pair<double, size_t>> scored;
  for (size_t i : order) {
    const std::optional<double> score = ScoreOf(candidates[i], rule);
    if (score.has_value() && !candidates[i].damaged) scored.emplace_back(*score, i);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto best = std::find_if(scored.begin(), scored.end(),
                                 [&](const auto& each) { return is_valid(candidates[each.second].step); });
  return best == scored.end() ? std::nullopt : std::optional(best->second);
}

}  // namespace

std::vector<PruneChoice> ChoosePruned(const std::vector<PruneCandidate>& candidates, const PrunePolicy& policy,
                                      const std::function<bool(int64_t step)>& is_valid) {
  const int64_t newest = std::max<int64_t>(policy.keep_last, 1);
  int64_t valid = 0;
  int64_t for_mirror = 0;
  bool has_right = false;
  std::vector<PruneChoice> choices(candidates.size());
  std::vector<size_t> order;  // the newest first
  for (const bool superseded : {false, true}) {
    for (size_t i = candidates.size(); i-- > 0;) {
      if (candidates[i].superseded == superseded) order.push_back(i);
    }
  }
  std::optional<size_t> best;
  if (policy.keep_best.has_value()) best = BestOf(candidates, order, *policy.keep_best, is_valid);
  const bool no_best = policy.keep_best.has_value() && !best.has_value();
  for (size_t i : order) {
    const PruneCandidate& candidate = candidates[i];
    PruneChoice& choice = choices[i];
    choice.step = candidate.step;
    const bool among_newest = valid < newest;
    // The newest step that looks right stays, whatever comes after it.
    const auto newest_right = [&] { return !has_right && !candidate.alarmed && is_valid(candidate.step); };
    if (candidate.damaged) {
      choice.why = "damaged";
    } else if (among_newest) {
      // Also called for a step that is kept for another reason: a pinned step with missing files must not count as
      // valid.
      const bool is = is_valid(candidate.step);
      valid += is ? 1 : 0;
      has_right = has_right || (is && !candidate.alarmed);
      choice.why = is ? (newest == 1 ? "the newest" : absl::StrCat("one of the newest ", newest)) : "damaged";
    } else if (candidate.pinned) {
      choice.why = "pinned";
    } else if (candidate.tagged) {
      choice.why = "tagged";
    } else if (newest_right()) {
      has_right = true;
      choice.why = "the newest without alarms";
    } else if (no_best) {
      choice.why = absl::StrCat("no checkpoint has the metric ", policy.keep_best->metric);
    } else if (best == i) {
      choice.why = absl::StrCat("the ", policy.keep_best->highest ? "highest " : "lowest ", policy.keep_best->metric);
    } else if (policy.keep_every > 0 && candidate.step % policy.keep_every == 0) {
      choice.why = absl::StrCat("a multiple of ", policy.keep_every);
    } else if (candidate.in_use) {
      choice.why = "being loaded";
    } else if (candidate.awaits_mirror && for_mirror < kMostKeptForMirror) {
      ++for_mirror;
      choice.why = absl::StrCat("not copied to the mirror yet (at most ", kMostKeptForMirror, " wait for that)");
    } else {
      choice.prune = true;
    }
  }
  return choices;
}

}  // namespace cairn
