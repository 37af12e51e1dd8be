#include "cli/views/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/time_proto.h"

namespace cairn::cli {
namespace {

void AddSpan(v1::TimelineSpan& span, v1::TimelineSpan::Phase phase, int begin, int end) {
  span.set_phase(phase);
  SetDuration(absl::Milliseconds(begin), *span.mutable_begin());
  SetDuration(absl::Milliseconds(end), *span.mutable_end());
}

// Rank 0 waits until rank 1 calls.
v1::Timeline SaveAt(absl::Time begin) {
  v1::Timeline save;
  save.set_kind(v1::Timeline::SAVE);
  save.set_job("demo");
  save.set_step(40);
  save.set_attempt(1);
  SetTimestamp(begin, *save.mutable_begin_time());
  AddSpan(*save.add_spans(), v1::TimelineSpan::CALL, 0, 30);
  AddSpan(*save.add_spans(), v1::TimelineSpan::PLAN, 30, 35);
  for (uint32_t rank : {0U, 1U}) {
    v1::RankTimeline& of_rank = *save.add_ranks();
    of_rank.set_rank(rank);
    AddSpan(*of_rank.add_spans(), rank == 0 ? v1::TimelineSpan::WAIT : v1::TimelineSpan::CALL, 0, 30);
    AddSpan(*of_rank.add_spans(), v1::TimelineSpan::PLAN, 30, 35);
  }
  save.mutable_ranks(0)->mutable_spans(0)->add_awaited_ranks(1);
  return save;
}

TEST(ChromeTraceTest, Trace_OfASave_HasATrackForEachRankAndAnArrow) {
  const auto trace = ChromeTrace({SaveAt(absl::FromUnixSeconds(1000))});
  std::map<std::pair<std::string, int>, int> slices;  // by name and track: microseconds
  std::map<int, std::string> tracks;
  std::string process;
  int arrows = 0;
  for (const auto& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    if (kind == "X") slices[{event["name"], event["tid"]}] += event["dur"].get<int>();
    if (kind == "M" && event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
    if (kind == "M" && event["name"] == "process_name") process = event["args"]["name"];
    if (kind == "s") {
      EXPECT_EQ(event["tid"], 2) << "from rank 1";
      EXPECT_EQ(event["ts"], 29999);
      ++arrows;
    }
    if (kind == "f") {
      EXPECT_EQ(event["tid"], 1) << "to rank 0";
    }
  }
  EXPECT_EQ(process, "save of demo@40, attempt 1");
  EXPECT_EQ(tracks, (std::map<int, std::string>{{0, "all ranks"}, {1, "rank 0"}, {2, "rank 1"}}));
  EXPECT_EQ((slices[{"wait", 1}]), 30000);
  EXPECT_EQ((slices[{"call", 2}]), 30000);
  EXPECT_EQ((slices[{"plan", 0}]), 5000);
  EXPECT_EQ(arrows, 1);
}

TEST(ChromeTraceTest, Trace_OfTwoOperations_StandsOnOneAxis) {
  const absl::Time begin = absl::FromUnixSeconds(1000);
  const auto trace = ChromeTrace({SaveAt(begin + absl::Seconds(2)), SaveAt(begin)});
  std::set<std::pair<int, int64_t>> begins;  // of the first slices, with their process
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == "call") begins.emplace(event["pid"], event["ts"].get<int64_t>());
  }
  EXPECT_EQ(begins, (std::set<std::pair<int, int64_t>>{{1, 2000000}, {2, 0}}));
  EXPECT_EQ(trace["otherData"]["begin_time"], "1970-01-01T00:16:40.000000Z");
}

TEST(ChromeTraceTest, Trace_AwaitedRankIsLeftOut_DrawsNoArrow) {
  v1::Timeline save = SaveAt(absl::FromUnixSeconds(1000));
  save.mutable_ranks()->RemoveLast();
  const auto trace = ChromeTrace({save});
  for (const auto& event : trace["traceEvents"]) EXPECT_NE(event["ph"], "s");
}

}  // namespace
}  // namespace cairn::cli
