#include "common/format/verdict.h"

#include <gtest/gtest.h>

#include "common/format/testing/newer_verdict.h"
#include "common/format/testing/small_manifest.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(VerdictTest, DecodeVerdict_ManifestAndTombstone_ComeBack) {
  const Manifest manifest = SmallManifest();
  const auto back = DecodeVerdict(EncodeVerdict(manifest));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Manifest>(*back), manifest);
  const Tombstone tombstone{"demo", 42, 1, "request", "RANK_LATE", "rank 3 is late", absl::FromUnixSeconds(5)};
  const auto again = DecodeVerdict(EncodeVerdict(tombstone));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(std::get<Tombstone>(*again), tombstone);
}

TEST(VerdictTest, DecodeVerdict_EveryFlippedBitAndEveryCut_IsRefused) {
  const std::string bytes = EncodeVerdict(SmallManifest());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string spoiled = bytes;
      spoiled[i] = static_cast<char>(spoiled[i] ^ (1 << bit));
      const auto verdict = DecodeVerdict(spoiled);
      ASSERT_FALSE(verdict.ok()) << "byte " << i;
      // A wrong version is damage too: only a record with the right checksum may be a newer one.
      EXPECT_TRUE(HasReason(verdict.status(), Reason::kManifestCorrupt)) << "byte " << i << ": " << verdict.status();
    }
    EXPECT_FALSE(DecodeVerdict(std::string_view(bytes).substr(0, i)).ok());
  }
  EXPECT_FALSE(DecodeVerdict(bytes + "x").ok());
}

TEST(VerdictTest, DecodeVerdict_HigherVersion_IsBelievedIfTheChecksumIsRight) {
  const std::string newer = OfVersion(EncodeVerdict(SmallManifest()), 2);
  EXPECT_TRUE(HasReason(DecodeVerdict(newer).status(), Reason::kFormatTooNew));
  EXPECT_TRUE(HasReason(CheckVerdict(newer), Reason::kFormatTooNew));
  EXPECT_TRUE(CheckVerdict(EncodeVerdict(SmallManifest())).ok());
  EXPECT_TRUE(HasReason(DecodeVerdict(newer.substr(0, newer.size() - 1)).status(), Reason::kManifestCorrupt));
  EXPECT_TRUE(HasReason(DecodeVerdict(OfVersion(newer, 0)).status(), Reason::kManifestCorrupt));
}

TEST(VerdictTest, DecodeVerdict_RecordAboveTheLimit_IsRefusedBeforeItIsUnpacked) {
  const auto verdict = DecodeVerdict(EncodeVerdict(SmallManifest()), 64);
  EXPECT_TRUE(HasReason(verdict.status(), Reason::kManifestCorrupt));
}

TEST(ShowsManifestTest, ShowsManifestOf_DamagedVerdicts_IsTrueOfManifestsOfTheAttemptAlone) {
  Manifest manifest;
  manifest.job = "demo";
  manifest.step = 12;
  manifest.attempt = 3;
  manifest.request_id = "request";
  manifest.world_size = 2;
  const std::string commit = EncodeVerdict(manifest);
  EXPECT_TRUE(ShowsManifestOf(commit, "demo", 12, 3));
  EXPECT_FALSE(ShowsManifestOf(commit, "demo", 12, 2));
  EXPECT_FALSE(ShowsManifestOf(commit, "other", 12, 3));
  const std::string abort =
      EncodeVerdict(Tombstone{.job = "demo", .step = 12, .attempt = 3, .request_id = "request", .reason = "RANK_LATE"});
  EXPECT_FALSE(ShowsManifestOf(abort, "demo", 12, 3));
  // These numbers of the head say nothing about the record.
  for (size_t at = 8; at < 24; ++at) {
    for (const std::string* good : {&commit, &abort}) {
      std::string bad = *good;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      EXPECT_EQ(ShowsManifestOf(bad, "demo", 12, 3), good == &commit) << at;
    }
  }
  // No flipped bit makes a manifest of a tombstone, and neither a flipped bit nor a cut does other harm.
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
