#include "store/mirror/mirror_rule.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// Returns the step that begins the line of the newest commit, if the mirror has none of that line and has a step that
// this line supersedes.
const MirrorStep* FirstOfLine(const std::vector<MirrorStep>& steps) {
  const MirrorStep* newest = nullptr;
  bool supersedes = false;
  for (const MirrorStep& step : steps) {
    supersedes = supersedes || (step.superseded && step.loadable());
    if (!step.copyable()) continue;
    if (newest == nullptr || newest->lineage.sequence < step.lineage.sequence) newest = &step;
  }
  if (newest == nullptr || !supersedes || !newest->lineage.continues_step.has_value()) return nullptr;
  const MirrorStep* first = newest;
  for (const MirrorStep& step : steps) {
    if (step.lineage.line != newest->lineage.line) continue;
    if (step.loadable() && !step.copy_damaged) return nullptr;
    if (step.copyable() && step.lineage.sequence < first->lineage.sequence) first = &step;
  }
  return first;
}

}  // namespace

absl::StatusOr<MirrorRule> ParseMirrorRule(std::string_view steps, int64_t keep_last) {
  constexpr std::string_view kEvery = "every:";
  MirrorRule rule;
  rule.keep_last = keep_last;
  if (keep_last < 0) {
    return MakeError(Reason::kBadQuantity, absl::StrCat("--mirror-keep-last ", keep_last, " is below 0"),
                     {{"next", "Give the number of steps that the mirror keeps; 0 keeps all."}});
  }
  if (steps == "all") return rule;
  if (steps == "newest") {
    rule.steps = MirrorRule::Steps::kNewest;
    return rule;
  }
  if (steps.starts_with(kEvery) && absl::SimpleAtoi(std::string(steps.substr(kEvery.size())), &rule.every) &&
      rule.every > 0) {
    rule.steps = MirrorRule::Steps::kEvery;
    return rule;
  }
  return MakeError(Reason::kBadQuantity, absl::StrCat("--mirror-steps '", std::string(steps), "' is no rule"),
                   {{"next", "Give all, newest or every:N, for example --mirror-steps every:1000."}});
}

MirrorWork WorkOf(const std::vector<MirrorStep>& steps, const MirrorRule& rule) {
  MirrorWork work;
  std::vector<const MirrorStep*> order;  // the newest first
  for (const bool superseded : {false, true}) {
    for (size_t i = steps.size(); i-- > 0;) {
      if (steps[i].superseded == superseded) order.push_back(&steps[i]);
    }
  }
  const auto is_outdated = [&](int64_t newer) { return rule.keep_last > 0 && newer >= rule.keep_last; };
  const MirrorStep* const first = FirstOfLine(steps);
  bool newest = true;
  int64_t wanted = 0, there = 0;
  for (const MirrorStep* step : order) {
    const bool wants = rule.Wants(step->step) || (newest && !rule.waits_for_each()) || step == first;
    const bool due = step->copyable() && wants;
    if (step->copyable()) newest = false;
    const bool lacks = due && !step->has_copy();
    const bool room = step->kept || !is_outdated(wanted);
    if (step->attempt != 0 && wants && !step->has_copy() && room) work.lacking.push_back(step->step);
    const bool stands = step->loadable() && !step->copy_damaged;
    if (lacks && room) work.copy.push_back(step->step);
    const bool at_mirror = step->loadable() || step->left_behind();
    if (at_mirror && !step->kept && !lacks && is_outdated(there)) work.outdated.push_back(step->step);
    wanted += lacks || stands ? 1 : 0;
    there += stands ? 1 : 0;
  }
  std::reverse(work.outdated.begin(), work.outdated.end());
  for (const MirrorStep& step : steps) {
    if (step.unwanted()) work.unwanted.push_back(step.step);
    if (step.half.empty()) continue;
    const bool copied = std::find(work.copy.begin(), work.copy.end(), step.step) != work.copy.end();
    const bool others = !step.unread && std::any_of(step.half.begin(), step.half.end(), [&](uint32_t attempt) {
      return !copied || attempt != step.attempt;
    });
    if (others) work.clean.push_back(step.step);
  }
  return work;
}

}  // namespace cairn
