#include "coordinator/decision/prune_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn {

std::vector<PruneChoice> ChoosePruned(const std::vector<PruneCandidate>& candidates, const PrunePolicy& policy,
                                      const std::function<bool(int64_t step)>& is_sound) {
  const int64_t newest = std::max<int64_t>(policy.keep_last, 1);
  int64_t sound = 0;
  std::vector<PruneChoice> choices(candidates.size());
  std::vector<size_t> order;  // the newest first
  for (const bool superseded : {false, true}) {
    for (size_t i = candidates.size(); i-- > 0;) {
      if (candidates[i].superseded == superseded) order.push_back(i);
    }
  }
  for (size_t i : order) {
    const PruneCandidate& candidate = candidates[i];
    PruneChoice& choice = choices[i];
    choice.step = candidate.step;
    const bool among_newest = sound < newest;
    if (candidate.damaged) {
      choice.why = "damaged";
    } else if (among_newest) {
      // Asked also of what stays for another reason: a pinned step with missing files must not stand for a sound one.
      const bool is = is_sound(candidate.step);
      sound += is ? 1 : 0;
      choice.why = is ? (newest == 1 ? "the newest" : absl::StrCat("one of the newest ", newest)) : "damaged";
    } else if (candidate.pinned) {
      choice.why = "pinned";
    } else if (policy.keep_every > 0 && candidate.step % policy.keep_every == 0) {
      choice.why = absl::StrCat("a multiple of ", policy.keep_every);
    } else if (candidate.in_use) {
      choice.why = "being loaded";
    } else if (!is_sound(candidate.step)) {
      choice.why = "damaged";
    } else {
      choice.prune = true;
    }
  }
  return choices;
}

}  // namespace cairn
