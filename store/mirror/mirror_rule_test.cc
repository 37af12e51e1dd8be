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
    if (std::find(there.begin(), there.end(), step) != there.end()) one.mirrored = 1;
  }
  return steps;
}

StoredAttempt Committed(uint32_t attempt, const std::string& request = "r") {
  StoredAttempt made = {.step = 7, .attempt = attempt, .committed = true, .directory = true};
  made.request_id = request;
  return made;
}
StoredAttempt Deleted(uint32_t attempt, bool by_rules) {
  StoredAttempt made = Committed(attempt);
  made.deleted = true;
  made.deleted_by_rules = by_rules;
  return made;
}
StepRecord Step(std::vector<StoredAttempt> attempts) {
  StepRecord record;
  record.step = 7;
  record.attempts = std::move(attempts);
  return record;
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

TEST(MirrorRuleTest, WorkOf_APersonDeletedIt_GoesAndIsNotCopied) {
  auto steps = At({1, 2}, {1});
  for (MirrorStep& step : steps) {
    step.deleted = true;
    step.attempt = 0;
  }
  const MirrorWork work = WorkOf(steps, Rule("all"));
  EXPECT_TRUE(work.copy.empty());
  EXPECT_EQ(work.follow, Steps{1});
}

TEST(MirrorRuleTest, WorkOf_HalfCopiesThatNobodyWants_AreCleaned) {
  auto steps = At({1, 2, 3}, {2});
  for (MirrorStep& step : steps) step.half = {1};
  steps[2].half = {1, 2};
  EXPECT_EQ(WorkOf(steps, Rule("all")).clean, (Steps{2, 3})) << "attempt 1 of step 1 is gone on with";
  EXPECT_EQ(WorkOf(steps, Rule("newest")).clean, (Steps{1, 2, 3}));
}

TEST(MirrorStepTest, WasDeletedByPerson_RulesDeletedIt_IsNot) {
  EXPECT_TRUE(WasDeletedByPerson(Step({Deleted(1, false)})));
  EXPECT_FALSE(WasDeletedByPerson(Step({Deleted(1, true)})));
  EXPECT_FALSE(WasDeletedByPerson(Step({Deleted(1, false), Deleted(2, true)}))) << "it was saved anew";
  EXPECT_TRUE(WasDeletedByPerson(Step({Deleted(1, true), Deleted(2, false)})));
  EXPECT_FALSE(WasDeletedByPerson(Step({Deleted(1, false), Committed(2)})));
  EXPECT_FALSE(WasDeletedByPerson(Step({})));
}

TEST(MirrorStepTest, MirrorStepOf_BothSides_ArePutTogether) {
  const StepRecord root = Step({Committed(1), Committed(2)});
  MirrorStep step = MirrorStepOf(&root, nullptr, false);
  EXPECT_EQ(step.attempt, 2u);
  EXPECT_EQ(step.mirrored, 0u);
  StepRecord mirror = Step({Committed(1), {.step = 7, .attempt = 2, .unfinished = true, .directory = true}});
  step = MirrorStepOf(&root, &mirror, false);
  EXPECT_EQ(step.mirrored, 1u);
  EXPECT_EQ(step.half, std::set<uint32_t>{2});
  EXPECT_FALSE(step.closed);
  mirror = Step({Committed(2)});
  EXPECT_TRUE(MirrorStepOf(&root, &mirror, false).is_mirrored());
  step = MirrorStepOf(nullptr, &mirror, true);
  EXPECT_TRUE(step.deleted);
  EXPECT_FALSE(step.at_root);
}

TEST(MirrorStepTest, MirrorStepOf_AnotherRecordInThePlace_ClosesTheStep) {
  const StepRecord root = Step({Committed(1)});
  for (const StoredAttempt& other :
       {Committed(1, "another"), Deleted(1, true), StoredAttempt{.step = 7, .attempt = 1}, Committed(2)}) {
    const StepRecord mirror = Step({other});
    EXPECT_TRUE(MirrorStepOf(&root, &mirror, false).closed) << other.attempt;
  }
}

}  // namespace
}  // namespace cairn
