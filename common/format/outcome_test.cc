#include "common/format/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <string_view>
#include <vector>

#include "cairn/v1/manifest.pb.h"
#include "common/base/crc32c.h"
#include "common/format/manifest_record.h"
#include "common/format/testing/newer_outcome.h"
#include "common/format/testing/small_manifest.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(OutcomeTest, DecodeOutcome_ManifestAndAbortRecord_ComeBack) {
  const Manifest manifest = SmallManifest();
  const auto back = DecodeOutcome(EncodeOutcome(manifest));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Manifest>(*back), manifest);
  const AbortRecord abort_record{"demo", 42, 1, "request", "RANK_LATE", "rank 3 is late", absl::FromUnixSeconds(5)};
  const auto again = DecodeOutcome(EncodeOutcome(abort_record));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(std::get<AbortRecord>(*again), abort_record);
}

TEST(OutcomeTest, DecodeOutcome_EveryFlippedBitAndEveryCut_IsRefused) {
  const std::string bytes = EncodeOutcome(SmallManifest());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string spoiled = bytes;
      spoiled[i] = static_cast<char>(spoiled[i] ^ (1 << bit));
      const auto outcome = DecodeOutcome(spoiled);
      ASSERT_FALSE(outcome.ok()) << "byte " << i;
      // A wrong version is damage too: only a record with the right checksum may be a newer one.
      EXPECT_TRUE(HasReason(outcome.status(), Reason::kManifestCorrupt)) << "byte " << i << ": " << outcome.status();
    }
    EXPECT_FALSE(DecodeOutcome(std::string_view(bytes).substr(0, i)).ok());
  }
  EXPECT_FALSE(DecodeOutcome(bytes + "x").ok());
}

TEST(OutcomeTest, DecodeOutcome_HigherVersion_IsBelievedIfTheChecksumIsRight) {
  const std::string newer = OfVersion(EncodeOutcome(SmallManifest()), 2);
  EXPECT_TRUE(HasReason(DecodeOutcome(newer).status(), Reason::kFormatTooNew));
  EXPECT_TRUE(HasReason(CheckOutcome(newer), Reason::kFormatTooNew));
  EXPECT_TRUE(CheckOutcome(EncodeOutcome(SmallManifest())).ok());
  EXPECT_TRUE(HasReason(DecodeOutcome(newer.substr(0, newer.size() - 1)).status(), Reason::kManifestCorrupt));
  EXPECT_TRUE(HasReason(DecodeOutcome(OfVersion(newer, 0)).status(), Reason::kManifestCorrupt));
}

TEST(OutcomeTest, DecodeOutcome_RecordAboveTheLimit_IsRefusedBeforeItIsUnpacked) {
  const auto outcome = DecodeOutcome(EncodeOutcome(SmallManifest()), 64);
  EXPECT_TRUE(HasReason(outcome.status(), Reason::kManifestCorrupt));
}

// Packs any record as EncodeOutcome packs an outcome, with zstd's strongest compression.
std::string Packed(const std::string& record) {
  std::string frame(ZSTD_compressBound(record.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), record.data(), record.size(), 9));
  std::string bytes = EncodeOutcome(AbortRecord{}).substr(0, 12);
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(frame.size() >> (8 * i));
  uint32_t crc = ExtendCrc32c(Crc32c(bytes.data(), bytes.size()), frame.data(), frame.size());
  for (; bytes.size() < 24; crc >>= 8) bytes += static_cast<char>(crc);
  return bytes + frame;
}

std::string Repeated(int count, std::string_view text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(OutcomeTest, DecodeOutcome_FewBytesThatStandForMuchMemory_AreRefused) {
  using namespace std::string_view_literals;
  constexpr int kMany = 1'000'000;
  std::vector<v1::OutcomeRecord> records(4);
  for (v1::OutcomeRecord& record : records) WriteManifestRecord(SmallManifest(), *record.mutable_manifest());
  std::vector<std::string> bombs;
  const std::pair<int, std::string_view> fillings[] = {{kMany, "\xa2\x01\x00"sv},       // names of tensors
                                                       {kMany, "\x52\x00"sv},           // digests of layouts
                                                       {kMany, "\xba\x3e\x00"sv},       // unknown texts
                                                       {4 * kMany, "\xb8\x3e\x01"sv}};  // unknown numbers
  for (const auto& [count, each] : fillings) {
    const std::string fields = records[0].manifest().SerializeAsString() + Repeated(count, each);
    std::string head = "\x0a";
    uint64_t size = fields.size();
    for (; size > 127; size >>= 7) head += static_cast<char>(size | 0x80);
    head += static_cast<char>(size);
    bombs.push_back(Packed(head + fields));
  }
  records[1].mutable_manifest()->mutable_rank_layouts()->Resize(12 * kMany, 0);
  records[2].mutable_manifest()->set_writer(std::string(70 << 20, 'w'));
  // Each of these entries would get a copy of the name.
  v1::ManifestRecord& objects = *records[3].mutable_manifest();
  objects.set_object_names(0, std::string(1024, 'n'));
  objects.set_object_entry_counts(0, kMany);
  for (const auto& record : {records[1], records[2], records[3]}) bombs.push_back(Packed(record.SerializeAsString()));
  for (const std::string& bomb : bombs) {
    ASSERT_LT(bomb.size(), 100u << 10);
    const auto outcome = DecodeOutcome(bomb);
    EXPECT_TRUE(HasReason(outcome.status(), Reason::kManifestCorrupt)) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()), testing::HasSubstr("in memory"));
  }
}

TEST(OutcomeTest, DecodeOutcome_AManyTimesEqualShard_ComesBack) {
  // zstd makes so little of these shards that a reader would refuse them, if the writer did not lengthen the frame.
  constexpr int64_t kShards = 1'300'000;
  Manifest manifest = SmallManifest();
  manifest.objects.clear();
  manifest.aliases.clear();
  manifest.files = {{"rank00000-bin00", 0, 4096, 0, 7}};
  manifest.tensors = {{"zeros", DType::kUint8, {kShards}, 0, static_cast<uint32_t>(kShards)}};
  manifest.summaries.resize(1);
  manifest.histories.resize(1);
  manifest.object_histories.clear();
  manifest.shards.clear();
  manifest.dims.clear();
  for (int64_t i = 0; i < kShards; ++i) {
    manifest.shards.push_back({0, 0, static_cast<uint32_t>(i), 5, 0, 0, static_cast<uint32_t>(2 * i), false});
    manifest.dims.push_back(i);
    manifest.dims.push_back(1);
  }
  ASSERT_TRUE(manifest.PlaceItems().ok());
  const std::string bytes = EncodeOutcome(manifest);
  EXPECT_GT(bytes.size(), 512u << 10) << "zstd alone makes less of it";
  EXPECT_LT(bytes.size(), 1u << 20);
  const auto back = DecodeOutcome(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Manifest>(*back), manifest);
  // A reader that asks for no such length takes it as well.
  std::string plain(ZSTD_getFrameContentSize(bytes.data() + 24, bytes.size() - 24), '\0');
  EXPECT_EQ(ZSTD_decompress(plain.data(), plain.size(), bytes.data() + 24, bytes.size() - 24), plain.size());
}

TEST(ShowsManifestTest, ShowsManifestOf_DamagedOutcomes_IsTrueOfManifestsOfTheAttemptAlone) {
  Manifest manifest;
  manifest.job = "demo";
  manifest.step = 12;
  manifest.attempt = 3;
  manifest.request_id = "request";
  manifest.world_size = 2;
  const std::string commit = EncodeOutcome(manifest);
  EXPECT_TRUE(ShowsManifestOf(commit, "demo", 12, 3));
  EXPECT_FALSE(ShowsManifestOf(commit, "demo", 12, 2));
  EXPECT_FALSE(ShowsManifestOf(commit, "other", 12, 3));
  const std::string abort = EncodeOutcome(
      AbortRecord{.job = "demo", .step = 12, .attempt = 3, .request_id = "request", .reason = "RANK_LATE"});
  EXPECT_FALSE(ShowsManifestOf(abort, "demo", 12, 3));
  // These numbers of the head say nothing about the record.
  for (size_t at = 8; at < 24; ++at) {
    for (const std::string* good : {&commit, &abort}) {
      std::string bad = *good;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      EXPECT_EQ(ShowsManifestOf(bad, "demo", 12, 3), good == &commit) << at;
    }
  }
  // No flipped bit makes a manifest of an abort record, and neither a flipped bit nor a cut does other harm.
  for (size_t i = 0; i < abort.size() * 8; ++i) {
    std::string bad = abort;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ 1 << i % 8);
    EXPECT_FALSE(ShowsManifestOf(bad, "demo", 12, 3)) << i;
  }
  for (size_t i = 0; i < commit.size(); ++i) EXPECT_FALSE(ShowsManifestOf(commit.substr(0, i), "demo", 12, 3)) << i;
  EXPECT_FALSE(ShowsManifestOf("", "demo", 12, 3));
}

}  // namespace
}  // namespace cairn
