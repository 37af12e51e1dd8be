// Files that earlier versions wrote must be read for ever, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/time/time.h"
#include "common/format/manifest.h"
#include "common/format/outcome.h"
#include "common/format/safetensors_header.h"

namespace cairn {
namespace {

// Returns the file's bytes; if CAIRN_WRITE_GOLDEN is set, it writes the file first.
std::string Golden(const std::string& name, const std::string& bytes) {
  if (const char* directory = std::getenv("CAIRN_WRITE_GOLDEN")) {
    std::ofstream(std::string(directory) + "/" + name, std::ios::binary) << bytes;
    return bytes;
  }
  std::ifstream file("tests/golden/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<StoredItem> Items() {
  return {
      {.name = "layers.0.w", .dtype = DType::kFloat32, .global_shape = {8, 4}, .box = {{4, 0}, {4, 4}}},
      {.name = "b\"\\é", .dtype = DType::kBfloat16, .global_shape = {3}, .box = {{0}, {3}}},
      {.name = "scale", .dtype = DType::kFloat8E8m0fnu, .global_shape = {2}, .box = {{0}, {2}}},
      {.name = "big", .dtype = DType::kUint8, .global_shape = {3 << 20}, .box = {{0}, {(2 << 20) + 5}}},
      {.name = "m", .dtype = DType::kFloat32, .global_shape = {4, 4}, .box = {{0, 0}, {4, 2}}, .flat = FlatRange{1, 6}},
      {.name = "rng",
       .dtype = DType::kUint8,
       .global_shape = {4096},
       .box = {{0}, {4096}},
       .object = true,
       .object_rank = 12},
  };
}

std::vector<ItemChecksums> Checksums(const std::vector<StoredItem>& items) {
  std::vector<ItemChecksums> checksums(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    checksums[i].crc32c = static_cast<uint32_t>(0x01020304 * (i + 1));
    const uint64_t blocks = ChecksumBlockCount(items[i].bytes());
    for (uint64_t b = 0; b < blocks; ++b) {
      checksums[i].blocks.push_back(blocks == 1 ? checksums[i].crc32c : static_cast<uint32_t>(0xa0b0c0d0 + b));
    }
  }
  checksums.back().object_bytes = 321;
  return checksums;
}

void ExpectItems(const absl::StatusOr<ParsedHeader>& parsed) {
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto items = Items();
  const auto checksums = Checksums(items);
  ASSERT_EQ(parsed->items.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(parsed->items[i].item.stored_name(), items[i].stored_name());
    EXPECT_EQ(parsed->items[i].item.box, items[i].box);
    EXPECT_EQ(parsed->items[i].checksums.blocks, checksums[i].blocks);
  }
  EXPECT_EQ(parsed->items.back().checksums.object_bytes, 321u);
}

// The file was written before bins said whose they are.
TEST(BinHeaderGoldenTest, ParseHeader_Version1WithoutIdentity_IsRead) {
  std::ifstream file("tests/golden/bin_header_v1", std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto parsed = ParseHeader(golden);
  ExpectItems(parsed);
  EXPECT_FALSE(parsed->identity.has_value());
  EXPECT_TRUE(parsed->aliases.empty());
}

TEST(BinHeaderGoldenTest, RenderHeader_Version1_EqualsTheKeptFile) {
  const BinIdentity identity = {"team/demo", 1200, 2, 12, 16, 31};
  const AliasList aliases = {{"head \"x\"", "layers.0.w"}, {"tied", "head \"x\""}};
  const auto items = Items();
  const std::string rendered = RenderHeader(items, Checksums(items), identity, aliases);
  const std::string golden = Golden("bin_header_v1_identity", rendered);
  EXPECT_TRUE(rendered == golden)
      << "the bytes differ from byte "
      << std::mismatch(rendered.begin(), rendered.end(), golden.begin(), golden.end()).first - rendered.begin()
      << " on, and tests/golden/bin_header_v1_identity stays: a new form is a new version";
  const auto parsed = ParseHeader(golden);
  ExpectItems(parsed);
  EXPECT_EQ(parsed->identity, identity);
  EXPECT_EQ(parsed->aliases, aliases);
}

TEST(ManifestGoldenTest, DecodeOutcome_ManifestOfVersion1_IsRead) {
  Manifest manifest;
  manifest.job = "team/demo";
  manifest.step = 1200;
  manifest.attempt = 2;
  manifest.request_id = "0123456789abcdef";
  manifest.world_size = 2;
  manifest.commit_time = absl::FromUnixSeconds(1'770'000'000);
  manifest.writer = "cairn 0.1.0";
  manifest.plan_digest = std::string(32, 'p');
  manifest.layout_digests = {std::string(32, 'a'), std::string(32, 'b')};
  manifest.rank_layout = {0, 1};
  manifest.nodes = {"node-a"};
  manifest.rank_node = {0, 0};
  manifest.tensors = {{"bias", DType::kBfloat16, {6}, 0, 2}, {"weight", DType::kFloat32, {8, 4}, 2, 2}};
  manifest.dims = {0, 6, 0, 3, 0, 6, 3, 6, 0, 0, 4, 4, 4, 0, 4, 4};
  for (uint32_t i = 0; i < 4; ++i) {
    ManifestShard shard;
    shard.tensor = i / 2;
    shard.file = i % 2;
    shard.item = i / 2;
    shard.crc32c = 0x11111111 * (i + 1);
    shard.flat = i < 2;
    shard.dims = i * 4;
    manifest.shards.push_back(shard);
  }
  manifest.files = {{"rank00000-bin00", 0, 4096, 0, 0xdeadbeef}, {"rank00001-bin00", 1, 4096, 0, 0xfeedface}};
  manifest.objects = {{.name = "rng", .rank = 1, .file = 1, .item = 2, .slot_bytes = 4096, .bytes = 99, .crc32c = 7}};
  manifest.aliases = {{"head", "weight"}};
  ASSERT_TRUE(manifest.PlaceItems().ok());
  const auto outcome = DecodeOutcome(Golden("manifest_v1.verdict", EncodeOutcome(manifest)));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(std::get<Manifest>(*outcome), manifest);
}

TEST(ManifestGoldenTest, DecodeOutcome_ManifestWithALineageOfVersion1_IsRead) {
  Manifest manifest;
  manifest.job = "team/demo";
  manifest.step = 45;
  manifest.attempt = 1;
  manifest.world_size = 1;
  manifest.commit_time = absl::FromUnixSeconds(1'770'000'000);
  manifest.lineage = {0x0123456789abcdef, 40, 0xfedcba9876543210, 7};
  const auto outcome = DecodeOutcome(Golden("manifest_v1_lineage.verdict", EncodeOutcome(manifest)));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(std::get<Manifest>(*outcome), manifest);
}

TEST(DeletionGoldenTest, DecodeDeletion_DeletionOfVersion1_IsRead) {
  const Deletion deletion = {.job = "team/demo",
                             .step = 1200,
                             .attempt = 1,
                             .cause = "diverged",
                             .time = absl::FromUnixSeconds(1'770'000'100),
                             .remaining_step = 1100,
                             .request_id = "fedcba9876543210",
                             .bytes = 8192,
                             .world_size = 2,
                             .commit_time = absl::FromUnixSeconds(1'770'000'000)};
  const auto read = DecodeDeletion(Golden("deletion_v1.deleted", EncodeDeletion(deletion)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, deletion);
}

TEST(AbortRecordGoldenTest, DecodeOutcome_AbortRecordOfVersion1_IsRead) {
  const AbortRecord abort_record = {.job = "team/demo",
                                    .step = 1200,
                                    .attempt = 1,
                                    .request_id = "fedcba9876543210",
                                    .reason = "RANK_LATE",
                                    .message = "rank 3 is late in staging",
                                    .time = absl::FromUnixSeconds(1'770'000'000)};
  const auto outcome = DecodeOutcome(Golden("tombstone_v1.verdict", EncodeOutcome(abort_record)));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(std::get<AbortRecord>(*outcome), abort_record);
}

}  // namespace
}  // namespace cairn
