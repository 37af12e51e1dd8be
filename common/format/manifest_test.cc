#include "common/format/manifest.h"

#include <gtest/gtest.h>

#include "common/format/testing/newer_verdict.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

Manifest Small() {
  Manifest manifest;
  manifest.job = "demo";
  manifest.step = 42;
  manifest.attempt = 2;
  manifest.request_id = "request";
  manifest.world_size = 2;
  manifest.commit_time = absl::FromUnixSeconds(1'700'000'000);
  manifest.writer = "cairn test";
  manifest.plan_digest = std::string(32, 'p');
  manifest.layout_digests = {std::string(32, 'a'), std::string(32, 'b')};
  manifest.rank_layout = {0, 1};
  manifest.nodes = {"n"};
  manifest.rank_node = {0, 0};
  manifest.tensors = {{"flat", DType::kFloat32, {2, 3}, 0, 2}, {"w", DType::kBfloat16, {4, 8}, 2, 2}};
  manifest.files = {{"rank00000-bin00", 0, 4096, 0, 7}, {"rank00001-bin00", 1, 8192, 0, 8}};
  manifest.dims = {0, 0, 2, 3, 0, 4, 0, 0, 2, 3, 4, 6, 0, 0, 2, 8, 2, 0, 2, 8};
  manifest.shards = {{0, 0, 0, 11, 0, 0, 0, true},
                     {0, 1, 1, 12, 0, 0, 6, true},
                     {1, 0, 2, 13, 0, 0, 12, false},
                     {1, 1, 0, 14, 0, 0, 16, false}};
  manifest.objects = {{"rng", 0, 0, 1, 0, 4096, 5, 21},
                      {"rng", 1, 1, 2, 0, 4096, 6, 22},
                      {"scheduler", std::nullopt, 1, 3, 0, 8192, 4097, 23}};
  manifest.aliases = {{"head", "w"}};
  EXPECT_TRUE(manifest.PlaceItems().ok());
  return manifest;
}

TEST(ManifestTest, PlaceItems_ItemsInAnyOrder_PacksByNumber) {
  const Manifest manifest = Small();
  EXPECT_EQ(manifest.shards[0].file_offset, 4096u);
  EXPECT_EQ(manifest.objects[0].file_offset, 4096u + 16);
  EXPECT_EQ(manifest.shards[2].file_offset, 4096u + 16 + 4096);
  EXPECT_EQ(manifest.files[0].data_bytes, 16u + 4096 + 32);
  EXPECT_EQ(manifest.shards[1].file_offset, 8192u + 32);
  EXPECT_EQ(manifest.path_of(manifest.files[1]), "000000000042/0002/rank00001-bin00.safetensors");
}

TEST(VerdictTest, DecodeVerdict_ManifestAndTombstone_ComeBack) {
  const Manifest manifest = Small();
  const auto back = DecodeVerdict(EncodeVerdict(manifest));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Manifest>(*back), manifest);
  const Tombstone tombstone{"demo", 42, 1, "request", "RANK_LATE", "rank 3 is late", absl::FromUnixSeconds(5)};
  const auto again = DecodeVerdict(EncodeVerdict(tombstone));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(std::get<Tombstone>(*again), tombstone);
}

TEST(VerdictTest, DecodeVerdict_EveryFlippedBitAndEveryCut_IsRefused) {
  const std::string bytes = EncodeVerdict(Small());
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
  const std::string newer = OfVersion(EncodeVerdict(Small()), 2);
  EXPECT_TRUE(HasReason(DecodeVerdict(newer).status(), Reason::kFormatTooNew));
  EXPECT_TRUE(HasReason(CheckVerdict(newer), Reason::kFormatTooNew));
  EXPECT_TRUE(CheckVerdict(EncodeVerdict(Small())).ok());
  EXPECT_TRUE(HasReason(DecodeVerdict(newer.substr(0, newer.size() - 1)).status(), Reason::kManifestCorrupt));
  EXPECT_TRUE(HasReason(DecodeVerdict(OfVersion(newer, 0)).status(), Reason::kManifestCorrupt));
}

TEST(VerdictTest, DecodeVerdict_RecordAboveTheLimit_IsRefusedBeforeItIsUnpacked) {
  const auto verdict = DecodeVerdict(EncodeVerdict(Small()), 64);
  EXPECT_TRUE(HasReason(verdict.status(), Reason::kManifestCorrupt));
}

TEST(VerdictTest, DecodeVerdict_TwoItemsAtOnePlace_AreRefused) {
  Manifest manifest = Small();
  manifest.shards[3].item = 1;
  EXPECT_TRUE(HasReason(manifest.PlaceItems(), Reason::kManifestCorrupt));
  EXPECT_TRUE(HasReason(DecodeVerdict(EncodeVerdict(manifest)).status(), Reason::kManifestCorrupt));
}

TEST(VerdictTest, DecodeVerdict_BadNamesAndPlaces_AreRefused) {
  for (const auto& spoil : std::vector<void (*)(Manifest&)>{
           [](Manifest& m) { m.files[0].name = "../../etc/passwd"; }, [](Manifest& m) { m.tensors[0].name = ""; },
           [](Manifest& m) { std::swap(m.tensors[0].name, m.tensors[1].name); }, [](Manifest& m) { m.dims[14] = 5; },
           [](Manifest& m) { m.dims[12] = -1; }, [](Manifest& m) { m.dims[5] = 7; },
           [](Manifest& m) { m.objects[0].bytes = 5000; }, [](Manifest& m) { m.shards[0].file = 9; },
           [](Manifest& m) { m.rank_layout[0] = 2; }, [](Manifest& m) { m.files[0].header_bytes = 100; },
           [](Manifest& m) { m.tensors[1].shard_count = 9; }}) {
    Manifest manifest = Small();
    spoil(manifest);
    if (manifest.tensors[1].shard_count == 9) manifest.shards.resize(11), manifest.dims.resize(64);
    const auto verdict = DecodeVerdict(EncodeVerdict(manifest));
    EXPECT_FALSE(verdict.ok());
  }
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
