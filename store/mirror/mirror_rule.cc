#include "store/mirror/mirror_rule.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

bool IsDue(const MirrorStep& step, const MirrorRule& rule, bool newest) {
  switch (rule.steps) {
    case MirrorRule::Steps::kAll:
      return true;
    case MirrorRule::Steps::kNewest:
      return newest;
    case MirrorRule::Steps::kEvery:
      return step.step % rule.every == 0;
  }
  return false;
}

// Returns whether two records are of one commit. Attempts of two roots may have the same number.
bool IsSameCommit(const StoredAttempt& one, const StoredAttempt& other) {
  return one.time == other.time && one.request_id == other.request_id && one.bytes == other.bytes &&
         one.plan_digest == other.plan_digest;
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

bool WasDeletedByPerson(const StepRecord& root) {
  if (root.state() != StepRecord::State::kNothing) return false;
  const auto last = std::find_if(root.attempts.rbegin(), root.attempts.rend(),
                                 [](const StoredAttempt& attempt) { return attempt.deleted; });
  return last != root.attempts.rend() && !last->deleted_by_rules;
}

MirrorStep MirrorStepOf(const StepRecord* root, const StepRecord* mirror, bool wanted_gone) {
  MirrorStep found;
  found.step = root != nullptr ? root->step : mirror->step;
  const StoredAttempt* commit = nullptr;
  if (root != nullptr) {
    if (root->state() == StepRecord::State::kCommitted) commit = root->deciding();
    found.at_root = root->state() != StepRecord::State::kNothing;
    if (commit != nullptr) found.attempt = commit->attempt;
    found.deleted = WasDeletedByPerson(*root);
    found.kept = root->pinned || !root->tags.empty();
  }
  if (!found.at_root) found.deleted = found.deleted || wanted_gone;
  if (mirror == nullptr) return found;
  found.kept = found.kept || mirror->pinned || !mirror->tags.empty();
  if (mirror->state() == StepRecord::State::kCommitted) found.mirrored = mirror->deciding()->attempt;
  found.closed = !mirror->unlisted.ok();
  for (const StoredAttempt& attempt : mirror->attempts) {
    if (attempt.unfinished && attempt.directory) found.half.insert(attempt.attempt);
    if (commit == nullptr || attempt.attempt != commit->attempt || attempt.unfinished) continue;
    // The copy may be of the record that a repair has replaced at the root.
    const bool same = commit->repaired || IsSameCommit(*commit, attempt);
    found.closed = found.closed || !attempt.stands() || !same;
  }
  // A later attempt that another coordinator has made there would hide this one.
  if (commit != nullptr && found.mirrored > commit->attempt) found.closed = true;
  return found;
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
  bool newest = true;
  int64_t wanted = 0, there = 0;
  for (const MirrorStep* step : order) {
    if (step->deleted) continue;
    const bool due = step->attempt != 0 && !step->closed && IsDue(*step, rule, newest);
    if (step->attempt != 0) newest = false;
    const bool lacks = due && step->mirrored != step->attempt;
    if (lacks && (step->kept || !is_outdated(wanted))) work.copy.push_back(step->step);
    if (step->mirrored != 0 && !step->kept && is_outdated(there)) work.outdated.push_back(step->step);
    wanted += lacks || step->mirrored != 0 ? 1 : 0;
    there += step->mirrored != 0 ? 1 : 0;
  }
  std::reverse(work.outdated.begin(), work.outdated.end());
  for (const MirrorStep& step : steps) {
    if (step.deleted && step.mirrored != 0) work.follow.push_back(step.step);
    const bool copied = std::find(work.copy.begin(), work.copy.end(), step.step) != work.copy.end();
    const bool others = std::any_of(step.half.begin(), step.half.end(),
                                    [&](uint32_t attempt) { return !copied || attempt != step.attempt; });
    if (others) work.clean.push_back(step.step);
  }
  return work;
}

}  // namespace cairn
