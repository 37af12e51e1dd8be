// Tests what a job tells of the time of its saves and loads.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

class TimelineTest : public TwoRankFixture {
 protected:
  // The one operation that has ended since the last call.
  v1::Timeline Ended() {
    const auto timelines = core_->TakeTimelines();
    EXPECT_EQ(timelines.size(), 1U);
    return timelines.empty() ? v1::Timeline() : timelines.front()->View();
  }
  // Returns the parts with their seconds, as in "call 2" or "write 3 for 1".
  static std::vector<std::string> Told(const google::protobuf::RepeatedPtrField<v1::TimelineSpan>& spans) {
    std::vector<std::string> told;
    for (const v1::TimelineSpan& span : spans) {
      const int64_t seconds = absl::ToInt64Seconds(DurationOf(span.end()) - DurationOf(span.begin()));
      told.push_back(absl::StrCat(SpanPhaseName(span.phase()), " ", seconds));
      for (uint32_t rank : span.awaited_ranks()) absl::StrAppend(&told.back(), " for ", rank);
    }
    return told;
  }
  void ReportAs(int rank, v1::Phase::Value phase) { Report(rank, Trainer(rank), {InAttempt(rank, 1, phase)}); }
};

TEST_F(TimelineTest, Request_EndsBeforeARankHasBegun_IsToldWithItsReason) {
  v1::CreateCheckpointRequest request;
  request.set_job(kJob);
  request.set_request_id("asked");
  ASSERT_TRUE(job().Create(request, /*patient=*/true, At())->ok());
  Pass(absl::Seconds(3));
  job().Cancel({std::nullopt, "asked"}, At());
  const v1::Timeline timeline = Ended();
  EXPECT_EQ(timeline.kind(), v1::Timeline::SAVE);
  EXPECT_FALSE(timeline.has_step());
  EXPECT_EQ(timeline.attempt(), 0U);
  EXPECT_EQ(timeline.world_size(), 2U);
  EXPECT_TRUE(HasReason(StatusFromProto(timeline.error()), Reason::kSaveCancelled));
  EXPECT_EQ(Told(timeline.spans()), std::vector<std::string>{"call 3"}) << "no rank is to blame for it";
  EXPECT_EQ(timeline.ranks_size(), 0);
}

TEST_F(TimelineTest, Save_Committed_SaysWhoWaitedForWhom) {
  Report(0, Trainer(0), {Begun(0, 1)});
  Pass(absl::Seconds(2));
  Report(1, Trainer(1), {Begun(1, 1)});
  const auto plan = Take<PlanSave>();
  ASSERT_TRUE(plan.has_value());
  Pass(absl::Seconds(1));
  job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
  Answer<ReserveAttempt>([](Job& job, const ReserveAttempt& what, const Moment& at) {
    job.OnReserved(what.step, what.ticket, Reserved{1, kNonce}, at);
  });
  for (int rank : {0, 1}) ReportAs(rank, v1::Phase::STAGING);
  Pass(absl::Seconds(1));
  ReportAs(1, v1::Phase::STAGED);
  ReportAs(1, v1::Phase::WRITING);
  Pass(absl::Seconds(3));
  ReportAs(0, v1::Phase::STAGED);
  ReportAs(0, v1::Phase::WRITING);
  Pass(absl::Seconds(2));
  ReportAs(0, v1::Phase::WRITTEN);
  Pass(absl::Seconds(4));
  ReportAs(1, v1::Phase::WRITTEN);
  Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& at) {
    job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
  });
  const PutOutcome put = *Take<PutOutcome>();
  Pass(absl::Seconds(1));
  EXPECT_TRUE(core_->TakeTimelines().empty()) << "it has not ended";
  job().OnOutcome(1, put.ticket, PutAnswer{Standing(put, true)}, At());

  const v1::Timeline save = Ended();
  EXPECT_EQ(save.kind(), v1::Timeline::SAVE);
  EXPECT_EQ(save.step(), 1);
  EXPECT_EQ(save.attempt(), 1U);
  EXPECT_FALSE(save.has_error());
  EXPECT_EQ(DurationOf(save.duration()), absl::Seconds(14));
  EXPECT_EQ(Told(save.spans()),
            (std::vector<std::string>{"call 2 for 1", "plan 1", "stage 4 for 0", "write 6 for 1", "commit 1"}));
  ASSERT_EQ(save.ranks_size(), 2);
  EXPECT_EQ(Told(save.ranks(0).spans()),
            (std::vector<std::string>{"wait 2 for 1", "plan 1", "stage 4", "write 2", "wait 4 for 1", "commit 1"}));
  EXPECT_EQ(Told(save.ranks(1).spans()),
            (std::vector<std::string>{"call 2", "plan 1", "stage 1", "write 9", "commit 1"}));
}

TEST_F(TimelineTest, Save_RankNeverCalls_IsNamedUntilTheAbort) {
  Report(0, Trainer(0), {Begun(0, 1)});
  Pass(absl::Seconds(21));
  const v1::Timeline save = Ended();
  EXPECT_EQ(ReasonOf(StatusFromProto(save.error())), Reason::kRankLate);
  EXPECT_EQ(Told(save.spans()), (std::vector<std::string>{"call 20 for 1"}));
}

TEST_F(TimelineTest, Load_Done_HasItsStepAndItsParts) {
  const auto load = [&](int rank, v1::Phase::Value phase) {
    v1::AgentState state = StateWith(Trainer(rank));
    v1::LoadState& call = *state.add_loads();
    call.set_number(1);
    call.set_trainer_incarnation(Trainer(rank));
    call.set_layout_digest(Layout(rank));
    call.set_phase(phase);
    Synchronize(rank, state);
  };
  for (int rank : {0, 1}) load(rank, v1::Phase::PLANNING);
  Pass(absl::Seconds(1));
  Answer<PlanLoad>([](Job& job, const PlanLoad& what, const Moment& at) {
    PlannedLoad planned;
    planned.step = 8;
    planned.world_size = 2;
    planned.plan_digest = "plan";
    planned.total_bytes_read = 77;
    job.OnLoadPlanned(what.number, what.ticket, planned, at);
  });
  for (int rank : {0, 1}) load(rank, v1::Phase::READING);
  Pass(absl::Seconds(3));
  for (int rank : {0, 1}) load(rank, v1::Phase::DONE);
  const v1::Timeline done = Ended();
  EXPECT_EQ(done.kind(), v1::Timeline::LOAD);
  EXPECT_EQ(done.step(), 8);
  EXPECT_EQ(done.bytes(), 77U);
  ASSERT_EQ(done.ranks_size(), 2);
  EXPECT_EQ(Told(done.ranks(0).spans()), (std::vector<std::string>{"plan 1", "read 3"}));
}

TEST_F(TimelineTest, Summary_SaveUnderWay_CountsItAndItsAge) {
  Report(0, Trainer(0), {Begun(0, 1)});
  Report(1, 0);
  Pass(absl::Seconds(3));
  const v1::JobSummary summary = job().Summary(At());
  EXPECT_EQ(summary.job(), kJob);
  EXPECT_EQ(summary.agents(), 2U);
  EXPECT_EQ(summary.trainers(), 1U);
  EXPECT_EQ(summary.saves_running(), 1U);
  EXPECT_EQ(DurationOf(summary.oldest_running()), absl::Seconds(3));
}

}  // namespace
}  // namespace cairn
