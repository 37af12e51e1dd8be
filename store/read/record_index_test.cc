#include "store/read/record_index.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr char kJob[] = "team/run";

RecordIndex Some() {
  StoredAttempt committed = {.step = 7, .attempt = 2, .committed = true};
  committed.request_id = "r";
  committed.time = absl::FromUnixNanos(1234567890123456789);
  committed.bytes = uint64_t{1} << 60;
  committed.world_size = 8192;
  committed.plan_digest = std::string(32, '\xff');
  committed.lineage = {.line = ~uint64_t{0}, .continues_step = 5, .parent_line = 3, .sequence = 9};
  committed.metrics = {{"loss", 0.25}, {"val/accuracy", -1e300}};
  committed.alarms = {{"jump", "w has moved"}};
  committed.identity = "\"etag\"";
  StoredAttempt aborted = {.step = 7, .attempt = 1};
  aborted.error = MakeError(Reason::kRankLost, "rank 3 is gone", {{"rank", "3"}});
  aborted.identity = "2";
  StoredAttempt deleted = {.step = 0, .attempt = 1, .committed = true, .deleted = true, .deleted_by_rules = true};
  deleted.identity = "3";
  return {
      {OutcomePath(kJob, 7, 2), committed}, {OutcomePath(kJob, 7, 1), aborted}, {DeletionPath(kJob, 0, 1), deleted}};
}

bool IsRefused(std::string_view bytes) {
  return HasReason(DecodeRecordIndex(kJob, bytes).status(), Reason::kManifestCorrupt);
}

TEST(RecordIndexTest, DecodeRecordIndex_WhatWasEncoded_IsTheSame) {
  const RecordIndex before = Some();
  const auto after = DecodeRecordIndex(kJob, EncodeRecordIndex(before));
  ASSERT_TRUE(after.ok()) << after.status();
  ASSERT_EQ(after->size(), before.size());
  for (const auto& [path, one] : before) {
    const StoredAttempt& other = after->at(path);
    EXPECT_EQ(other.step, one.step);
    EXPECT_EQ(other.attempt, one.attempt);
    EXPECT_EQ(other.committed, one.committed);
    EXPECT_EQ(other.deleted, one.deleted);
    EXPECT_EQ(other.deleted_by_rules, one.deleted_by_rules);
    EXPECT_FALSE(other.damaged || other.unfinished || other.repaired);
    EXPECT_EQ(other.request_id, one.request_id);
    EXPECT_EQ(other.error, one.error);
    EXPECT_EQ(other.time, one.time);
    EXPECT_EQ(other.bytes, one.bytes);
    EXPECT_EQ(other.world_size, one.world_size);
    EXPECT_EQ(other.plan_digest, one.plan_digest);
    EXPECT_EQ(other.lineage.line, one.lineage.line);
    EXPECT_EQ(other.lineage.continues_step, one.lineage.continues_step);
    EXPECT_EQ(other.lineage.parent_line, one.lineage.parent_line);
    EXPECT_EQ(other.lineage.sequence, one.lineage.sequence);
    EXPECT_EQ(other.metrics, one.metrics);
    EXPECT_EQ(other.alarms, one.alarms);
    EXPECT_EQ(other.identity, one.identity);
  }
  EXPECT_TRUE(DecodeRecordIndex(kJob, EncodeRecordIndex({}))->empty());
}

TEST(RecordIndexTest, DecodeRecordIndex_DamagedBytes_AreRefused) {
  const std::string whole = EncodeRecordIndex(Some());
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_TRUE(IsRefused(whole.substr(0, length))) << length;
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    EXPECT_TRUE(IsRefused(damaged));
  }
}

TEST(RecordIndexTest, DecodeRecordIndex_RecordsOfOtherPlaces_AreRefused) {
  const StoredAttempt one = Some().begin()->second;
  for (const std::string& path :
       {OutcomePath("team", 7, 2), OutcomePath(kJob, 8, 2), std::string("../x"), PinPath(kJob, 7)}) {
    EXPECT_TRUE(IsRefused(EncodeRecordIndex({{path, one}}))) << path;
  }
  StoredAttempt unnamed = one;
  unnamed.identity = "";
  EXPECT_TRUE(IsRefused(EncodeRecordIndex({{OutcomePath(kJob, one.step, one.attempt), unnamed}})));
}

}  // namespace
}  // namespace cairn
