#include "coordinator/timeline/operation_timeline.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);

absl::Time At(int seconds) { return kBegin + absl::Seconds(seconds); }

OperationTimeline MakeSave() { return OperationTimeline(v1::Timeline::SAVE, kBegin, kBegin); }

OperationTimeline::End EndOf(size_t world_size, absl::Status error = absl::OkStatus()) {
  OperationTimeline::End end;
  end.job = "demo";
  end.step = 40;
  end.attempt = 1;
  end.world_size = world_size;
  end.error = std::move(error);
  return end;
}

// "call 0-1, wait 1-3 for 1": what a rank did, in seconds.
std::string Told(const google::protobuf::RepeatedPtrField<v1::TimelineSpan>& spans) {
  std::vector<std::string> told;
  for (const v1::TimelineSpan& span : spans) {
    told.push_back(absl::StrCat(SpanPhaseName(span.phase()), " ", absl::ToInt64Seconds(DurationOf(span.begin())), "-",
                                absl::ToInt64Seconds(DurationOf(span.end()))));
    if (span.awaited_ranks_size() > 0) absl::StrAppend(&told.back(), " for ", absl::StrJoin(span.awaited_ranks(), "+"));
  }
  return absl::StrJoin(told, ", ");
}

TEST(OperationTimelineTest, View_SaveOfTwoRanks_SaysWhoWaitedForWhom) {
  OperationTimeline save = MakeSave();
  save.Mark(0, RankMark::kCalled, At(0));
  save.Mark(1, RankMark::kCalled, At(3));
  save.Mark(OperationMark::kPlanned, At(4));
  save.Mark(OperationMark::kNumbered, At(7));
  for (int rank : {0, 1}) save.Mark(rank, RankMark::kStaging, At(5));
  save.Mark(0, RankMark::kStaged, At(6));
  save.Mark(1, RankMark::kStaged, At(8));
  save.Mark(0, RankMark::kMoving, At(7));
  save.Await(0, 1, At(7));
  save.Await(0, -1, At(8));
  save.Mark(1, RankMark::kMoving, At(8));
  save.Mark(0, RankMark::kDone, At(9));
  save.Mark(1, RankMark::kDone, At(12));
  save.Finish(EndOf(2), At(13));

  const v1::Timeline view = save.View();
  ASSERT_EQ(view.ranks_size(), 2);
  EXPECT_EQ(Told(view.ranks(0).spans()),
            "wait 0-3 for 1, plan 3-4, prepare 4-5, stage 5-6, order 6-7, write 7-8 for 1, write 8-9, wait 9-12 for 1, "
            "commit 12-13");
  EXPECT_EQ(Told(view.ranks(1).spans()), "call 0-3, plan 3-4, prepare 4-5, stage 5-8, write 8-12, commit 12-13");
  EXPECT_EQ(Told(view.spans()), "call 0-3 for 1, plan 3-4, stage 4-8 for 1, write 8-12 for 1, commit 12-13");
  EXPECT_EQ(view.job(), "demo");
  EXPECT_EQ(view.step(), 40);
  EXPECT_EQ(DurationOf(view.duration()), absl::Seconds(13));
}

TEST(OperationTimelineTest, Stretches_OneRankWasLast_SayHowFarBehindItWas) {
  OperationTimeline save = MakeSave();
  for (int rank = 0; rank < 5; ++rank) save.Mark(rank, RankMark::kCalled, At(rank == 3 ? 9 : 1));
  save.Finish(EndOf(5), At(10));
  ASSERT_FALSE(save.stretches().empty());
  EXPECT_EQ(save.stretches().front().last_ranks, std::vector<int>{3});
  EXPECT_EQ(save.stretches().front().behind, absl::Seconds(8));
}

TEST(OperationTimelineTest, View_RankNeverCalled_NamesItUntilTheAbort) {
  OperationTimeline save = MakeSave();
  save.Mark(0, RankMark::kCalled, At(0));
  save.Mark(OperationMark::kAborting, At(20));
  save.Finish(EndOf(3, MakeError(Reason::kRankLate, "late")), At(21));
  const v1::Timeline view = save.View();
  ASSERT_EQ(view.ranks_size(), 3);
  EXPECT_EQ(Told(view.ranks(0).spans()), "wait 0-20 for 1+2, abort 20-21");
  EXPECT_EQ(Told(view.ranks(2).spans()), "call 0-20, abort 20-21");
  EXPECT_EQ(Told(view.spans()), "call 0-20 for 1+2, abort 20-21");
  EXPECT_TRUE(view.has_error());
}

TEST(OperationTimelineTest, View_Load_HasNoStaging) {
  OperationTimeline load(v1::Timeline::LOAD, kBegin, kBegin);
  for (int rank : {0, 1}) load.Mark(rank, RankMark::kCalled, At(0));
  load.Mark(OperationMark::kPlanned, At(1));
  for (int rank : {0, 1}) load.Mark(rank, RankMark::kMoving, At(2));
  load.Mark(1, RankMark::kDone, At(3));
  load.Mark(0, RankMark::kDone, At(5));
  load.Finish(EndOf(2), At(5));
  const v1::Timeline view = load.View();
  EXPECT_EQ(Told(view.ranks(1).spans()), "plan 0-1, prepare 1-2, read 2-3, wait 3-5 for 0");
  EXPECT_EQ(Told(view.spans()), "plan 0-1, read 1-5 for 0");
}

TEST(OperationTimelineTest, View_CallWasForgotten_BeginsAnew) {
  OperationTimeline save = MakeSave();
  save.Mark(0, RankMark::kCalled, At(0));
  save.Mark(1, RankMark::kCalled, At(1));
  save.Forget(1);
  save.Mark(1, RankMark::kCalled, At(4));
  save.Finish(EndOf(2), At(5));
  EXPECT_EQ(Told(save.View().ranks(1).spans()), "call 0-4, plan 4-5");
}

TEST(OperationTimelineTest, Finish_ManyRanks_KeepsTheLatestInEachPhase) {
  constexpr int kRanks = 5000;
  OperationTimeline save = MakeSave();
  for (int rank = 0; rank < kRanks; ++rank) {
    save.Mark(rank, RankMark::kCalled, At(rank == 4711 ? 60 : rank == 17 ? 0 : 1));
    save.Mark(rank, RankMark::kDone, At(rank == 333 ? 90 : 70));
  }
  save.Finish(EndOf(kRanks), At(91));
  const v1::Timeline view = save.View();
  EXPECT_LE(view.ranks_size(), static_cast<int>(OperationTimeline::kRanksKept));
  EXPECT_GE(view.ranks_size(), 200);
  EXPECT_EQ(view.ranks_left_out(), kRanks - static_cast<uint32_t>(view.ranks_size()));
  std::set<uint32_t> kept;
  for (const v1::RankTimeline& rank : view.ranks()) kept.insert(rank.rank());
  for (uint32_t rank : {4711U, 333U, 17U}) EXPECT_TRUE(kept.contains(rank)) << rank;
  EXPECT_EQ(save.stretches().front().last_ranks, std::vector<int>{4711});
}

TEST(OperationTimelineTest, View_AnyMarks_AccountForAllTime) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto kind = static_cast<v1::Timeline::Kind>(1 + random() % 3);
    OperationTimeline timeline(kind, kBegin, kBegin);
    const int ranks = 1 + static_cast<int>(random() % 6);
    const int marks = static_cast<int>(random() % 40);
    int second = 0;
    bool begun = false;  // by a rank
    for (int i = 0; i < marks; ++i) {
      second += static_cast<int>(random() % 3);
      const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      switch (random() % 8) {
        case 0:
          timeline.Mark(static_cast<OperationMark>(random() % 3), At(second));
          break;
        case 1:
          timeline.Await(rank, static_cast<int>(random() % 4) - 1, At(second));
          begun = true;
          break;
        default:
          timeline.Mark(rank, static_cast<RankMark>(random() % 5), At(second));
          begun = true;
      }
    }
    timeline.Finish(EndOf(static_cast<size_t>(ranks)), At(second + 1));
    const v1::Timeline view = timeline.View();
    ASSERT_EQ(view.ranks_size(), begun ? ranks : 0);
    const auto check = [&](const google::protobuf::RepeatedPtrField<v1::TimelineSpan>& spans) {
      absl::Duration at;
      for (const v1::TimelineSpan& span : spans) {
        EXPECT_EQ(DurationOf(span.begin()), at);
        at = DurationOf(span.end());
        EXPECT_LT(DurationOf(span.begin()), at);
        EXPECT_NE(span.phase(), v1::TimelineSpan::PHASE_UNSPECIFIED);
      }
      EXPECT_EQ(at, DurationOf(view.duration()));
    };
    for (const v1::RankTimeline& rank : view.ranks()) check(rank.spans());
    check(view.spans());
  }
}

}  // namespace
}  // namespace cairn
