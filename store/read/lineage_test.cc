#include "store/read/lineage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace cairn {
namespace {

using Steps = std::set<int64_t>;

// A job that commits one step after the other.
class LineageTest : public testing::Test {
 protected:
  JobLineage Lines() const { return JobLineage(commits_); }
  // A later commit of a step takes the place of the earlier one.
  void Commit(int64_t step, const std::optional<ResumePoint>& resumed = std::nullopt) {
    const Lineage lineage = Lines().Next(resumed);
    Remove(step);
    commits_.push_back({step, lineage});
  }
  void Remove(int64_t step) {
    std::erase_if(commits_, [&](const JobLineage::Commit& commit) { return commit.step == step; });
  }

  std::vector<JobLineage::Commit> commits_;
};

TEST_F(LineageTest, NoCommit_HasNoLatest) {
  EXPECT_EQ(Lines().latest(), std::nullopt);
  EXPECT_EQ(Lines().superseded(), Steps());
  EXPECT_EQ(Lines().sequence(), 0u);
  EXPECT_EQ(Lines().Next(std::nullopt).sequence, 1u);
}

TEST_F(LineageTest, TrainingThatNeverLoads_SupersedesNothing) {
  for (int64_t step : {40, 60, 50}) Commit(step);
  EXPECT_EQ(Lines().superseded(), Steps());
  EXPECT_EQ(Lines().latest(), 60);
}

TEST_F(LineageTest, RunsThatResumeFromTheLatest_SupersedeNothing) {
  Commit(10);
  Commit(20);
  Commit(30, ResumePoint{7, 20});
  Commit(40, ResumePoint{8, 30});
  EXPECT_EQ(Lines().superseded(), Steps());
  EXPECT_EQ(Lines().latest(), 40);
}

TEST_F(LineageTest, RollBack_SupersedesWhatFollowedTheStep) {
  for (int64_t step : {20, 40, 50, 60}) Commit(step);
  const ResumePoint resumed{7, 40};
  EXPECT_EQ(Lines().LeftBehindBy(resumed), Steps({50, 60})) << "before its first commit";
  EXPECT_EQ(Lines().superseded(), Steps());
  Commit(45, resumed);
  EXPECT_EQ(Lines().superseded(), Steps({50, 60}));
  EXPECT_EQ(Lines().latest(), 45);
  EXPECT_FALSE(Lines().LeavesBehind(resumed, 45)) << "its own";
  EXPECT_TRUE(Lines().LeavesBehind(resumed, 60));
  Commit(60, resumed);
  EXPECT_EQ(Lines().superseded(), Steps({50}));
  EXPECT_EQ(Lines().latest(), 60);
}

TEST_F(LineageTest, RollBackTwiceToTheSameStep_TheSecondRunSupersedesTheFirst) {
  for (int64_t step : {40, 60}) Commit(step);
  Commit(45, ResumePoint{7, 40});
  Commit(44, ResumePoint{8, 40});
  EXPECT_EQ(Lines().superseded(), Steps({45, 60}));
  EXPECT_EQ(Lines().latest(), 44);
}

TEST_F(LineageTest, ReturnToTheOldLine_MakesItCurrentAgain) {
  for (int64_t step : {40, 60}) Commit(step);
  Commit(45, ResumePoint{7, 40});
  Commit(70, ResumePoint{8, 60});
  EXPECT_EQ(Lines().superseded(), Steps({45}));
  EXPECT_EQ(Lines().latest(), 70);
}

TEST_F(LineageTest, RollBackWithinALine_KeepsItsOldPartAndTheLineBelow) {
  for (int64_t step : {10, 20, 30}) Commit(step);
  const ResumePoint first{7, 20};
  for (int64_t step : {25, 35, 45}) Commit(step, first);
  Commit(40, ResumePoint{8, 35});
  EXPECT_EQ(Lines().superseded(), Steps({30, 45}));
}

// The limit of a line holds for those below it too: who goes back to 15 by way of the line 7 does not build on 20.
TEST_F(LineageTest, RollBackBelowTheStartOfALine_CutsTheLineBelowToo) {
  for (int64_t step : {10, 20}) Commit(step);
  Commit(30, ResumePoint{7, 20});
  Commit(12, ResumePoint{8, 10});
  EXPECT_EQ(Lines().superseded(), Steps({20, 30}));
}

TEST_F(LineageTest, SaveWithoutALoadAfterARollBack_JoinsTheNewestLine) {
  for (int64_t step : {40, 60}) Commit(step);
  Commit(45, ResumePoint{7, 40});
  EXPECT_EQ(Lines().LeftBehindBy(std::nullopt), Steps({60}));
  Commit(46);
  EXPECT_EQ(Lines().superseded(), Steps({60}));
  EXPECT_EQ(Lines().latest(), 46);
}

TEST_F(LineageTest, StepThatWasResumedFromIsDeleted_TheLineBelowStays) {
  for (int64_t step : {20, 40, 60}) Commit(step);
  Commit(45, ResumePoint{7, 40});
  Remove(40);
  EXPECT_EQ(Lines().superseded(), Steps({60}));
  // It is gone before the first commit.
  Commit(43, ResumePoint{8, 41});
  EXPECT_EQ(Lines().superseded(), Steps({45, 60}));
  EXPECT_EQ(Lines().latest(), 43);
}

TEST_F(LineageTest, AllOfALineBetweenIsDeleted_WhatIsBelowItIsBuiltUpon) {
  for (int64_t step : {5, 10}) Commit(step);
  for (int64_t step : {15, 20}) Commit(step, ResumePoint{7, 10});
  for (int64_t step : {25, 30}) Commit(step, ResumePoint{8, 20});
  Commit(40, ResumePoint{9, 30});
  for (int64_t step : {10, 15, 20}) {
    Remove(step);
    EXPECT_EQ(Lines().superseded(), Steps({})) << "after the deletion of " << step;
  }
  EXPECT_EQ(Lines().LeftBehindBy(ResumePoint{10, 25}), Steps({30, 40}));
}

TEST_F(LineageTest, AllOfALineBetweenIsDeleted_WhatIsBeyondItStaysSuperseded) {
  for (int64_t step : {40, 60}) Commit(step);
  Commit(45, ResumePoint{7, 40});
  Commit(50, ResumePoint{8, 45});
  Remove(45);
  EXPECT_EQ(Lines().superseded(), Steps({60}));
  EXPECT_EQ(Lines().latest(), 50);
}

TEST_F(LineageTest, LineThatNamesItselfAsAncestor_EndsTheSearch) {
  commits_ = {{10, {0, std::nullopt, 0, 0}}, {20, {7, 10, 8, 1}}, {30, {8, 20, 7, 2}}};
  EXPECT_EQ(Lines().superseded(), Steps({10}));
}

TEST_F(LineageTest, OrderOfTheCommits_DoesNotMatter) {
  for (int64_t step : {20, 40, 60}) Commit(step);
  for (int64_t step : {45, 55}) Commit(step, ResumePoint{7, 40});
  const Steps expected = Lines().superseded();
  ASSERT_EQ(expected, Steps({60}));
  std::sort(commits_.begin(), commits_.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  EXPECT_EQ(Lines().superseded(), expected);
}

// Whatever step of those that the newest commit builds on loses its record, it is not superseded when it is back.
TEST_F(LineageTest, Recover_StepThatIsBuiltUpon_IsSoAgain) {
  for (int64_t step : {10, 20, 40, 50, 60}) Commit(step);
  for (int64_t step : {45, 55}) Commit(step, ResumePoint{7, 40});
  for (int64_t step : {58, 70}) Commit(step, ResumePoint{8, 55});
  const std::vector<JobLineage::Commit> whole = commits_;
  for (const int64_t lost : {10, 20, 40, 45, 55, 58}) {
    commits_ = whole;
    Remove(lost);
    const auto lineage = Lines().Recover(lost);
    ASSERT_TRUE(lineage.has_value()) << lost;
    const auto latest = Lines().latest();
    commits_.push_back({lost, *lineage});
    EXPECT_EQ(Lines().superseded(), Steps({50, 60})) << lost;
    EXPECT_EQ(Lines().latest(), latest) << lost;
  }
}

TEST_F(LineageTest, Recover_NewestStepOfTheOnlyLine_IsTheLatestAgain) {
  for (int64_t step : {10, 20}) Commit(step);
  const auto lineage = Lines().Recover(30);
  ASSERT_TRUE(lineage.has_value());
  commits_.push_back({30, *lineage});
  EXPECT_EQ(Lines().latest(), 30);
  EXPECT_EQ(Lines().superseded(), Steps());
}

TEST_F(LineageTest, Recover_StepThatMayHaveBeenLeftBehind_IsNotGuessed) {
  EXPECT_EQ(Lines().Recover(10), std::nullopt) << "nothing is committed";
  for (int64_t step : {20, 40, 60}) Commit(step);
  Commit(45, ResumePoint{7, 40});
  Remove(60);
  EXPECT_EQ(Lines().Recover(60), std::nullopt);
  EXPECT_NE(Lines().Recover(43), std::nullopt);
  Commit(47, ResumePoint{8, 45});
  Remove(45);
  EXPECT_EQ(Lines().Recover(44), std::nullopt) << "no commit of its line is left";
}

}  // namespace
}  // namespace cairn
