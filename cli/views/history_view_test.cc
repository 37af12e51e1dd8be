#include "cli/views/history_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

v1::Timeline SaveOf(int64_t step) {
  v1::Timeline timeline;
  timeline.set_kind(v1::Timeline::SAVE);
  timeline.set_step(step);
  timeline.set_attempt(1);
  timeline.set_bytes(6000);
  timeline.set_world_size(4);
  SetDuration(absl::Seconds(3), *timeline.mutable_duration());
  SetTimestamp(absl::FromUnixSeconds(1'700'000'000), *timeline.mutable_begin_time());
  return timeline;
}

void AddSpan(v1::Timeline& timeline, v1::TimelineSpan::Phase phase, double begin, double end,
             std::optional<uint32_t> rank) {
  v1::TimelineSpan& span = *timeline.add_spans();
  span.set_phase(phase);
  SetDuration(absl::Seconds(begin), *span.mutable_begin());
  SetDuration(absl::Seconds(end), *span.mutable_end());
  if (rank.has_value()) span.add_awaited_ranks(*rank);
}

TEST(HistoryViewTest, EntryOf_ASaveThatEnded_TellsItsRateAndWhoEndedTheLongestPart) {
  v1::Timeline timeline = SaveOf(40);
  AddSpan(timeline, v1::TimelineSpan::STAGE, 0, 0.5, 1);
  AddSpan(timeline, v1::TimelineSpan::WRITE, 0.5, 1.5, 3);
  // No rank ends the coordinator's own phase.
  AddSpan(timeline, v1::TimelineSpan::COMMIT, 1.5, 3, std::nullopt);
  const auto json = EntryToJson(EntryOf(timeline));
  EXPECT_EQ(json["kind"], "save");
  EXPECT_EQ(json["step"], 40);
  EXPECT_EQ(json["result"], "done");
  EXPECT_EQ(json["duration"], 3.0);
  EXPECT_EQ(json["throughput"], 2000.0);
  EXPECT_EQ(json["slowest_rank"], 3);
  EXPECT_EQ(json["slowest_phase"], "write");
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20Z");
}

TEST(HistoryViewTest, EntryOf_AnOperationThatWasGivenUp_HasTheReasonAndNoRate) {
  v1::Timeline timeline = SaveOf(40);
  *timeline.mutable_error() = StatusToProto(MakeError(Reason::kRankLost, "rank 2 is lost"));
  const auto json = EntryToJson(EntryOf(timeline));
  EXPECT_EQ(json["result"], "RANK_LOST");
  EXPECT_EQ(json["message"], "rank 2 is lost");
  EXPECT_TRUE(json["throughput"].is_null());
  EXPECT_TRUE(json["slowest_rank"].is_null());
}

TEST(HistoryViewTest, EntryOf_AFirstStart_FoundNothingAndSaysWhy) {
  v1::Timeline timeline;
  timeline.set_kind(v1::Timeline::LOAD);
  *timeline.mutable_error() = StatusToProto(MakeError(Reason::kNotCommitted, "demo has no committed checkpoint"));
  const auto json = EntryToJson(EntryOf(timeline));
  EXPECT_EQ(json["result"], "nothing");
  EXPECT_EQ(json["message"], "the job had no checkpoint yet");
}

TEST(HistoryViewTest, EntryOf_AReshard_HasNoStep) {
  v1::Timeline timeline = SaveOf(0);
  timeline.set_kind(v1::Timeline::RESHARD);
  timeline.clear_step();
  const auto json = EntryToJson(EntryOf(timeline));
  EXPECT_EQ(json["kind"], "reshard");
  EXPECT_TRUE(json["step"].is_null());
}

StepRecord StepWith(int64_t step, StoredAttempts attempts) {
  StepRecord record;
  record.step = step;
  record.attempts = std::move(attempts);
  return record;
}

StoredAttempt At(int64_t seconds, StoredAttempt attempt, absl::Status error = {}) {
  attempt.time = absl::FromUnixSeconds(seconds);
  attempt.error = std::move(error);
  return attempt;
}

TEST(HistoryViewTest, EntriesOf_WhatStorageKnows_StandsInTheOrderOfItsTime) {
  const auto entries = EntriesOf(
      {StepWith(40, {At(100, {.attempt = 1}, MakeError(Reason::kRankLost, "rank 2 is lost")),
                     At(500, {.attempt = 2, .committed = true})}),
       StepWith(60, {At(300, {.attempt = 1, .deleted = true}, MakeError(Reason::kNotCommitted, "was deleted"))}),
       StepWith(80, {At(0, {.attempt = 1, .unfinished = true})})});
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].result, "RANK_LOST");
  EXPECT_EQ(entries[0].step, 40);
  EXPECT_EQ(entries[1].result, "deleted");
  EXPECT_EQ(entries[1].step, 60);
  EXPECT_EQ(entries[2].result, "done");
  EXPECT_EQ(entries[2].attempt, 2u);
  EXPECT_TRUE(EntryToJson(entries[2])["duration"].is_null());
}

TEST(HistoryViewTest, HistoryTable_AnEntry_SaysWhoWasSlowest) {
  v1::Timeline timeline = SaveOf(40);
  AddSpan(timeline, v1::TimelineSpan::WRITE, 0, 3, 7);
  const std::string text = HistoryTable({EntryOf(timeline)}).ToString();
  EXPECT_THAT(text, HasSubstr("rank 7 (write)"));
  EXPECT_THAT(text, HasSubstr("2023-11-14T22:13:20Z"));
}

}  // namespace
}  // namespace cairn::cli
