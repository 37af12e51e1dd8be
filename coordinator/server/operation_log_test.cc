#include "coordinator/server/operation_log.h"

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cairn {
namespace {

std::shared_ptr<const OperationTimeline> SaveOf(const std::string& job, int64_t step, int ranks = 1) {
  const absl::Time begin = absl::UnixEpoch();
  auto save = std::make_shared<OperationTimeline>(v1::Timeline::SAVE, begin, begin);
  for (int rank = 0; rank < ranks; ++rank) save->Mark(rank, RankMark::kCalled, begin + absl::Seconds(rank));
  OperationTimeline::End end;
  end.job = job;
  end.step = step;
  end.world_size = static_cast<size_t>(ranks);
  save->Finish(std::move(end), begin + absl::Hours(1));
  return save;
}

v1::ListTimelinesRequest RequestFor(const std::string& job) {
  v1::ListTimelinesRequest request;
  request.set_job(job);
  return request;
}

TEST(OperationLogTest, List_MoreThanAHundredOfAJob_KeepsTheNewest) {
  OperationLog log;
  for (int step = 0; step < 150; ++step) log.Add(SaveOf("demo", step));
  log.Add(SaveOf("other", 7));
  const v1::ListTimelinesResponse listed = log.List(RequestFor("demo"), 0);
  ASSERT_EQ(listed.timelines_size(), 100);
  EXPECT_EQ(listed.timelines(0).step(), 149);
  EXPECT_EQ(listed.timelines(99).step(), 50);
  EXPECT_EQ(log.List(RequestFor("other"), 0).timelines_size(), 1);
  EXPECT_EQ(log.List(RequestFor("unknown"), 0).timelines_size(), 0);
}

TEST(OperationLogTest, List_ManyJobs_KeepsABoundedNumberInAll) {
  OperationLog log;
  constexpr int kJobs = static_cast<int>(OperationLog::kInAll) + 50;
  for (int job = 0; job < kJobs; ++job) log.Add(SaveOf(absl::StrCat("job", job), 1));
  int kept = 0;
  for (int job = 0; job < kJobs; ++job) kept += log.List(RequestFor(absl::StrCat("job", job)), 0).timelines_size();
  EXPECT_EQ(kept, static_cast<int>(OperationLog::kInAll));
  EXPECT_EQ(log.List(RequestFor("job0"), 0).timelines_size(), 0);
}

TEST(OperationLogTest, List_LargeWorlds_ComeInPagesThatTogetherHaveAll) {
  OperationLog log;
  for (int step = 0; step < 100; ++step) log.Add(SaveOf("demo", step, 300));
  std::set<int64_t> steps;
  uint64_t before = 0;
  int pages = 0;
  do {
    const v1::ListTimelinesResponse page = log.List(RequestFor("demo"), before);
    EXPECT_LT(page.ByteSizeLong(), size_t{2} << 20);
    for (const v1::Timeline& timeline : page.timelines()) EXPECT_TRUE(steps.insert(timeline.step()).second);
    // The last page has no token.
    if (!absl::SimpleAtoi(page.next_page_token(), &before)) before = 0;
    ++pages;
  } while (before != 0);
  EXPECT_EQ(steps.size(), 100U);
  EXPECT_GT(pages, 1);
}

TEST(OperationLogTest, List_OfAStep_HasOnlyThoseOfIt) {
  OperationLog log;
  for (int64_t step : {4, 8, 4}) log.Add(SaveOf("demo", step));
  v1::ListTimelinesRequest request = RequestFor("demo");
  request.set_step(4);
  EXPECT_EQ(log.List(request, 0).timelines_size(), 2);
}

TEST(OperationLogTest, List_OfAnId_HasOnlyThatOne) {
  OperationLog log;
  for (int64_t step : {4, 8, 12}) log.Add(SaveOf("demo", step));
  v1::ListTimelinesRequest request = RequestFor("demo");
  request.set_id(2);
  const v1::ListTimelinesResponse listed = log.List(request, 0);
  ASSERT_EQ(listed.timelines_size(), 1);
  EXPECT_EQ(listed.timelines(0).step(), 8);
  EXPECT_EQ(listed.timelines(0).id(), 2U);
}

TEST(OperationLogTest, List_Summary_LeavesTheRanksOut) {
  OperationLog log;
  log.Add(SaveOf("demo", 4, 3));
  v1::ListTimelinesRequest request = RequestFor("demo");
  request.set_summary(true);
  const v1::ListTimelinesResponse listed = log.List(request, 0);
  ASSERT_EQ(listed.timelines_size(), 1);
  EXPECT_EQ(listed.timelines(0).ranks_size(), 0);
  EXPECT_GT(listed.timelines(0).spans_size(), 0);
  EXPECT_EQ(listed.timelines(0).world_size(), 3U);
}

}  // namespace
}  // namespace cairn
