#include "coordinator/server/coordinator_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);

// Rank 1 called two seconds after rank 0; it ended after five.
OperationTimeline SaveOf(const std::string& job, absl::Status error = absl::OkStatus()) {
  OperationTimeline save(v1::Timeline::SAVE, kBegin, kBegin);
  save.Mark(0, RankMark::kCalled, kBegin);
  save.Mark(1, RankMark::kCalled, kBegin + absl::Seconds(2));
  OperationTimeline::End end;
  end.job = job;
  end.step = 40;
  end.bytes = 1000;
  end.world_size = 2;
  end.error = std::move(error);
  save.Finish(std::move(end), kBegin + absl::Seconds(5));
  return save;
}

class CoordinatorMetricsTest : public testing::Test {
 protected:
  std::string Text() const {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, metrics_.Collect());
    return text.str();
  }
  bool Has(const std::string& line) const { return absl::StrCat("\n", Text()).find("\n" + line) != std::string::npos; }

  CoordinatorMetrics::Now now_;
  CoordinatorMetrics metrics_{[this] { return now_; }};
};

TEST_F(CoordinatorMetricsTest, Observe_CommittedSave_CountsItAndWhereItsTimeWent) {
  metrics_.Observe(SaveOf("demo"));
  EXPECT_TRUE(Has("cairn_operations_total{job_name=\"demo\",operation=\"save\",result=\"ok\"} 1")) << Text();
  EXPECT_TRUE(Has("cairn_operation_bytes_total{job_name=\"demo\",operation=\"save\"} 1000"));
  EXPECT_TRUE(Has("cairn_operation_duration_seconds_sum{job_name=\"demo\",operation=\"save\"} 5"));
  EXPECT_TRUE(Has("cairn_operation_phase_seconds_total{job_name=\"demo\",operation=\"save\",phase=\"call\"} 2"));
  EXPECT_TRUE(Has("cairn_slowest_rank{job_name=\"demo\",operation=\"save\",phase=\"call\"} 1"));
  EXPECT_TRUE(Has("cairn_last_commit_timestamp_seconds{job_name=\"demo\"} 1005"));
  EXPECT_TRUE(Has("cairn_last_commit_step{job_name=\"demo\"} 40"));
  EXPECT_FALSE(Has("cairn_operation_failures_total{"));
}

TEST_F(CoordinatorMetricsTest, Observe_FirstStartOfAJob_IsNoFailure) {
  const auto load = [&](std::optional<int64_t> step) {
    OperationTimeline made(v1::Timeline::LOAD, kBegin, kBegin);
    made.Mark(0, RankMark::kCalled, kBegin);
    OperationTimeline::End end;
    end.job = "demo";
    end.step = step;
    end.world_size = 1;
    end.error = MakeError(Reason::kNotCommitted, "demo has no committed checkpoint");
    made.Finish(std::move(end), kBegin + absl::Seconds(1));
    metrics_.Observe(made);
  };
  load(std::nullopt);
  EXPECT_TRUE(Has("cairn_operations_total{job_name=\"demo\",operation=\"load\",result=\"nothing\"} 1")) << Text();
  EXPECT_FALSE(Has("cairn_operation_failures_total{"));
  load(7);
  EXPECT_TRUE(Has("cairn_operations_total{job_name=\"demo\",operation=\"load\",result=\"failed\"} 1"))
      << "whoever names a step expects it: " << Text();
}

TEST_F(CoordinatorMetricsTest, Collect_ACoordinatorUnderStrain_SaysHowMuch) {
  now_.stopped = absl::Seconds(90);
  now_.deaf = absl::Milliseconds(1500);
  now_.refusals = {{"transfer", 7}, {"wait", 0}};
  metrics_.LeasesEnded("demo", 3);
  EXPECT_TRUE(Has("cairn_coordinator_stopped_seconds_total 90")) << Text();
  EXPECT_TRUE(Has("cairn_coordinator_deaf_seconds_total 1.5"));
  EXPECT_TRUE(Has("cairn_coordinator_refusals_total{kind=\"transfer\"} 7"));
  EXPECT_TRUE(Has("cairn_coordinator_refusals_total{kind=\"wait\"} 0")) << "an increase from nothing shows no alert";
  EXPECT_TRUE(Has("cairn_leases_ended_total{job_name=\"demo\"} 3"));
}

TEST_F(CoordinatorMetricsTest, Observe_AbortedSave_CountsItsReasonAndCommitsNothing) {
  metrics_.Observe(SaveOf("demo", MakeError(Reason::kNoSpace, "the disk is full")));
  EXPECT_TRUE(Has("cairn_operation_failures_total{job_name=\"demo\",operation=\"save\",reason=\"NO_SPACE\"} 1"))
      << Text();
  EXPECT_TRUE(Has("cairn_operations_total{job_name=\"demo\",operation=\"save\",result=\"failed\"} 1"));
  EXPECT_FALSE(Has("cairn_last_commit_step{"));
  EXPECT_FALSE(Has("cairn_operation_bytes_total{"));
}

TEST_F(CoordinatorMetricsTest, Collect_JobsOfNow_AreGauges) {
  v1::JobSummary& job = now_.jobs.emplace_back();
  job.set_job("demo");
  job.set_world_size(4);
  job.set_agents(3);
  job.set_saves_running(1);
  job.mutable_oldest_running()->set_seconds(7);
  now_.stalled_storage_calls = 2;
  EXPECT_TRUE(Has("cairn_job_world_size{job_name=\"demo\"} 4")) << Text();
  EXPECT_TRUE(Has("cairn_job_agents{job_name=\"demo\"} 3"));
  EXPECT_TRUE(Has("cairn_operations_running{job_name=\"demo\",operation=\"save\"} 1"));
  EXPECT_TRUE(Has("cairn_oldest_operation_seconds{job_name=\"demo\"} 7"));
  EXPECT_TRUE(Has("cairn_stalled_storage_calls 2"));
  EXPECT_TRUE(Has("cairn_operations_total{job_name=\"demo\",operation=\"save\",result=\"failed\"} 0"))
      << "so that the first failure is an increase";
}

TEST_F(CoordinatorMetricsTest, Collect_AMirror_HasItsOwnSeries) {
  EXPECT_FALSE(Has("cairn_mirror_"));
  now_.mirror =
      MirrorCounts{.steps_copied = 3, .bytes_copied = 1000, .failures = 2, .steps_waiting = 5, .reachable = true};
  EXPECT_TRUE(Has("cairn_mirror_reachable 1")) << Text();
  EXPECT_TRUE(Has("cairn_mirror_waiting_steps 5"));
  EXPECT_TRUE(Has("cairn_mirror_steps_total 3"));
  EXPECT_TRUE(Has("cairn_mirror_bytes_total 1000"));
  EXPECT_TRUE(Has("cairn_mirror_failures_total 2"));
}

TEST_F(CoordinatorMetricsTest, Collect_ManyJobs_HasABoundedNumberOfSeries) {
  const auto series = [&] {
    size_t count = 0;
    for (const prometheus::MetricFamily& family : metrics_.Collect()) count += family.metric.size();
    return count;
  };
  for (size_t i = 0; i < CoordinatorMetrics::kJobs + 1; ++i) metrics_.Observe(SaveOf(absl::StrCat("job", i)));
  const size_t before = series();
  for (int i = 0; i < 500; ++i) {
    metrics_.Observe(SaveOf(absl::StrCat("later", i)));
    v1::JobSummary& job = now_.jobs.emplace_back();
    job.set_job(absl::StrCat("later", i));
  }
  EXPECT_LE(series(), before + 11) << "the gauges and counters of one more job at most";
  EXPECT_TRUE(Has("cairn_operations_total{job_name=\"(other)\",operation=\"save\",result=\"ok\"} 501")) << Text();
}

}  // namespace
}  // namespace cairn
