#include "store/mirror/mirror_rule.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/status/reason.h"

namespace cairn {
namespace {

using Steps = std::vector<int64_t>;

MirrorRule Rule(std::string_view steps, int64_t keep_last = 0) { return *ParseMirrorRule(steps, keep_last); }

// Steps at the root, of which those in `there` are at the mirror too.
std::vector<MirrorStep> At(const Steps& root, const Steps& there = {}) {
  std::vector<MirrorStep> steps;
  for (const int64_t step : root) {
    MirrorStep& one = steps.emplace_back();
    one.step = step;
    one.at_root = true;
    one.attempt = 1;
    if (std::find(there.begin(), there.end(), step) == there.end()) continue;
    one.mirrored = 1;
    one.copy = MirrorStep::Copy::kSame;
  }
  return steps;
}

TEST(MirrorRuleTest, ParseMirrorRule_EachRule_IsReadAndAllElseIsRefused) {
  EXPECT_EQ(Rule("all").steps, MirrorRule::Steps::kAll);
  EXPECT_EQ(Rule("newest", 3).keep_last, 3);
  EXPECT_EQ(Rule("every:500").every, 500);
  EXPECT_TRUE(Rule("every:500").waits_for_each());
  EXPECT_FALSE(Rule("newest").waits_for_each());
  for (const char* text : {"", "every:", "every:0", "every:-1", "every:x", "oldest", "all "}) {
    EXPECT_TRUE(HasReason(ParseMirrorRule(text, 0).status(), Reason::kBadQuantity)) << text;
  }
  EXPECT_TRUE(HasReason(ParseMirrorRule("all", -1).status(), Reason::kBadQuantity));
}

TEST(MirrorRuleTest, WorkOf_StepsThatAreNotThere_AreCopiedTheNewestFirst) {
  EXPECT_EQ(WorkOf(At({1, 2, 3, 4}, {2}), Rule("all")).copy, (Steps{4, 3, 1}));
  EXPECT_EQ(WorkOf(At({1, 2, 3, 4}, {2}), Rule("every:2")).copy, Steps{4});
  EXPECT_EQ(WorkOf(At({1, 2, 3, 4}, {2}), Rule("newest")).copy, Steps{4});
  EXPECT_TRUE(WorkOf(At({1, 2, 3, 4}, {4}), Rule("newest")).copy.empty()) << "older ones were passed over";
  EXPECT_TRUE(WorkOf({}, Rule("all")).copy.empty());
}

TEST(MirrorRuleTest, WorkOf_SupersededSteps_ComeLast) {
  auto steps = At({1, 2, 3, 4});
  steps[2].superseded = steps[3].superseded = true;
  EXPECT_EQ(WorkOf(steps, Rule("all")).copy, (Steps{2, 1, 4, 3}));
  EXPECT_EQ(WorkOf(steps, Rule("newest")).copy, Steps{2});
  EXPECT_EQ(WorkOf(steps, Rule("all", 1)).copy, Steps{2});
}

TEST(MirrorRuleTest, WorkOf_ALaterAttempt_IsCopiedAgain) {
  auto steps = At({1}, {1});
  steps[0].attempt = 2;
  steps[0].copy = MirrorStep::Copy::kReplaced;
  EXPECT_EQ(WorkOf(steps, Rule("all")).copy, Steps{1});
  steps[0].closed = true;
  EXPECT_TRUE(WorkOf(steps, Rule("all")).copy.empty()) << "the mirror has another record in its place";
}

TEST(MirrorRuleTest, WorkOf_KeepLast_OlderOnesGo) {
  EXPECT_EQ(WorkOf(At({1, 2, 3, 4}, {1, 2, 3, 4}), Rule("all", 2)).outdated, (Steps{1, 2}));
  EXPECT_TRUE(WorkOf(At({1, 2, 3, 4}, {1, 2}), Rule("all", 2)).outdated.empty()) << "newer ones are not there yet";
  EXPECT_EQ(WorkOf(At({1, 2, 3, 4}, {1, 2}), Rule("all", 2)).copy, (Steps{4, 3}));
  EXPECT_EQ(WorkOf(At({1, 2, 3, 4, 5}), Rule("all", 2)).copy, (Steps{5, 4})) << "others would go at once";
  EXPECT_TRUE(WorkOf(At({1, 2, 3}, {1, 2, 3}), Rule("all")).outdated.empty());
}

TEST(MirrorRuleTest, WorkOf_KeepLast_StepsThatTheRootPrunedCount) {
  auto steps = At({1, 2, 3}, {1, 2, 3});
  for (size_t i : {0, 1}) {
    steps[i].at_root = false;
    steps[i].attempt = 0;
    steps[i].copy = MirrorStep::Copy::kOnlyThere;
  }
  EXPECT_EQ(WorkOf(steps, Rule("all", 2)).outdated, Steps{1});
}

TEST(MirrorRuleTest, WorkOf_KeepLast_PinnedAndTaggedStepsStay) {
  auto steps = At({1, 2, 3, 4}, {2, 3, 4});
  steps[0].kept = steps[1].kept = true;
  const MirrorWork work = WorkOf(steps, Rule("all", 1));
  EXPECT_EQ(work.copy, Steps{1});
  EXPECT_EQ(work.outdated, Steps{3});
}

TEST(MirrorRuleTest, WorkOf_UnwantedCopies_GoAndAreNotCopied) {
  auto steps = At({1, 2, 3, 4}, {1, 2, 3});
  for (size_t i : {0, 1}) steps[i].at_root = false;
  for (size_t i : {0, 1}) steps[i].attempt = 0;
  steps[0].copy = MirrorStep::Copy::kDeleted;
  steps[1].copy = steps[2].copy = MirrorStep::Copy::kReplaced;
  steps[2].attempt = 2;
  const MirrorWork work = WorkOf(steps, Rule("all"));
  EXPECT_EQ(work.copy, (Steps{4, 3}));
  EXPECT_EQ(work.unwanted, Steps{1}) << "what replaces step 3 is still to come, and step 2 has nothing else";
}

TEST(MirrorRuleTest, WorkOf_AnEarlierCommitThatIsAllThatIsLeft_GoesOnlyWithOutdatedOnes) {
  auto steps = At({1, 2, 3}, {1, 2, 3});
  steps[0].at_root = false;
  steps[0].attempt = 0;
  steps[0].copy = MirrorStep::Copy::kReplaced;
  EXPECT_TRUE(WorkOf(steps, Rule("all")).outdated.empty());
  EXPECT_EQ(WorkOf(steps, Rule("all", 2)).outdated, Steps{1});
  EXPECT_TRUE(WorkOf(steps, Rule("all", 3)).outdated.empty()) << "two newer ones are there";
  steps[0].kept = true;
  EXPECT_TRUE(WorkOf(steps, Rule("all", 2)).outdated.empty());
}

TEST(MirrorRuleTest, WorkOf_HalfCopiesThatNobodyWants_AreCleaned) {
  auto steps = At({1, 2, 3}, {2});
  for (MirrorStep& step : steps) step.half = {1};
  steps[2].half = {1, 2};
  EXPECT_EQ(WorkOf(steps, Rule("all")).clean, (Steps{2, 3})) << "attempt 1 of step 1 is gone on with";
  EXPECT_EQ(WorkOf(steps, Rule("newest")).clean, (Steps{1, 2, 3}));
}

TEST(MirrorRuleTest, WorkOf_WhatCannotBeCopied_DoesNotCount) {
  auto steps = At({1, 2, 3}, {1});
  steps[2].uncopyable = true;
  EXPECT_EQ(WorkOf(steps, Rule("newest")).copy, Steps{2});
  EXPECT_EQ(WorkOf(steps, Rule("all", 1)).copy, Steps{2});
  EXPECT_TRUE(WorkOf(steps, Rule("all", 1)).outdated.empty());
  steps[1].closed = true;
  EXPECT_TRUE(WorkOf(steps, Rule("all", 1)).copy.empty());
}

TEST(MirrorRuleTest, WorkOf_ADamagedCopy_IsCopiedAgainAndDoesNotCount) {
  auto steps = At({1, 2, 3}, {1, 2, 3});
  steps[2].copy_damaged = true;
  EXPECT_EQ(WorkOf(steps, Rule("all", 1)).copy, Steps{3});
  EXPECT_EQ(WorkOf(steps, Rule("all", 1)).outdated, Steps{1}) << "step 2 is the newest whole one";
}

TEST(MirrorRuleTest, WorkOf_ALineThatSupersedes_HasACopy) {
  auto steps = At({10, 15, 16, 20, 30}, {10, 20, 30});
  for (size_t i : {1, 2}) steps[i].lineage = {.line = 7, .continues_step = 10, .sequence = 10 + i};
  EXPECT_TRUE(WorkOf(steps, Rule("every:10")).copy.empty()) << "it supersedes nothing";
  steps[3].superseded = steps[4].superseded = true;
  EXPECT_EQ(WorkOf(steps, Rule("every:10")).copy, Steps{15});
  steps[1].uncopyable = true;
  EXPECT_EQ(WorkOf(steps, Rule("every:10")).copy, Steps{16});
  steps[2].mirrored = 1;
  steps[2].copy = MirrorStep::Copy::kSame;
  EXPECT_TRUE(WorkOf(steps, Rule("every:10")).copy.empty());
}

}  // namespace
}  // namespace cairn
