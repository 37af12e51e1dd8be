#include "common/format/safetensors_header.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "common/base/crc32c.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

std::vector<StoredItem> Items() {
  return {
      {.name = "layers.0.w", .dtype = DType::kFloat32, .global_shape = {8, 4}, .box = {{4, 0}, {4, 4}}},
      {.name = "quo\"te\\d", .dtype = DType::kBfloat16, .global_shape = {3}, .box = {{0}, {3}}},
      {.name = "scalar", .dtype = DType::kInt64},
      {.name = "c", .dtype = DType::kComplex32, .global_shape = {2, 2}, .box = {{0, 0}, {2, 2}}},
      {.name = "c0", .dtype = DType::kComplex128},
      {.name = "big", .dtype = DType::kUint8, .global_shape = {3 << 20}, .box = {{0}, {(2 << 20) + 5}}},
      {.name = "m\"",
       .dtype = DType::kFloat32,
       .global_shape = {4, 4},
       .box = {{0, 0}, {4, 2}},
       .flat = FlatRange{1, 6}},
      {.name = "rng",
       .dtype = DType::kUint8,
       .global_shape = {4096},
       .box = {{0}, {4096}},
       .object = true,
       .object_rank = 12},
      {.name = "schedule", .dtype = DType::kUint8, .global_shape = {8192}, .box = {{0}, {8192}}, .object = true},
  };
}

std::vector<ItemChecksums> Checksums(const std::vector<StoredItem>& items) {
  std::vector<ItemChecksums> checksums;
  uint32_t next = 0xfedcba98;
  for (const StoredItem& item : items) {
    ItemChecksums one{.crc32c = next++};
    const uint64_t blocks = ChecksumBlockCount(item.bytes());
    for (uint64_t i = 0; i < blocks; ++i) one.blocks.push_back(blocks == 1 ? one.crc32c : next++);
    if (item.object) one.object_bytes = 77;
    checksums.push_back(one);
  }
  return checksums;
}

TEST(RenderHeaderTest, RenderHeader_AnyItems_IsWhatSafetensorsReadersExpect) {
  const auto items = Items();
  const std::string text = RenderHeader(items, Checksums(items));
  EXPECT_EQ(text.size() % kDataAlignment, 0u);
  EXPECT_EQ(*HeaderBytesFrom(text), text.size());
  const auto json = nlohmann::json::parse(text.substr(8));
  EXPECT_EQ(json.at("__metadata__").at("format"), "pt");
  for (const auto& [key, value] : json.at("__metadata__").items()) EXPECT_TRUE(value.is_string()) << key;
  const auto sharding = nlohmann::json::parse(json.at("__metadata__").at("DCP_SHARDING_INFO").get<std::string>());
  EXPECT_EQ(sharding.size(), items.size());
  EXPECT_EQ(sharding.at("layers.0.w").at("saved_offsets").dump(), "[4,0]");
  EXPECT_EQ(sharding.at("scalar").at("saved_offsets").dump(), "[]");
  EXPECT_EQ(json.at("quo\"te\\d").dump(), R"({"data_offsets":[64,70],"dtype":"BF16","shape":[3]})");
  EXPECT_EQ(json.at("c").dump(), R"({"data_offsets":[78,94],"dtype":"U8","shape":[2,8]})");
  EXPECT_EQ(json.at("m\"#flat:0,0:4,2:1-6").at("shape").dump(), "[5]");
  // There is no gap between the entries and none at the end.
  uint64_t end = 0;
  for (const StoredItem& item : items) {
    EXPECT_EQ(json.at(item.stored_name()).at("data_offsets")[0], end);
    end = json.at(item.stored_name()).at("data_offsets")[1];
  }
}

TEST(ParseHeaderTest, ParseHeader_RenderedHeader_GivesBackItsItems) {
  const auto items = Items();
  const auto checksums = Checksums(items);
  const auto header = ParseHeader(RenderHeader(items, checksums));
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->items.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const StoredItem& got = header->items[i].item;
    EXPECT_EQ(got.name, items[i].name);
    EXPECT_EQ(got.dtype, items[i].dtype) << got.name;
    EXPECT_EQ(got.global_shape, items[i].global_shape) << got.name;
    EXPECT_EQ(got.box, items[i].box) << got.name;
    EXPECT_EQ(got.flat, items[i].flat);
    EXPECT_EQ(got.object, items[i].object);
    EXPECT_EQ(got.object_rank, items[i].object_rank);
    EXPECT_EQ(header->items[i].checksums.crc32c, checksums[i].crc32c);
    EXPECT_EQ(header->items[i].checksums.blocks, checksums[i].blocks);
    EXPECT_EQ(header->items[i].checksums.object_bytes, checksums[i].object_bytes);
  }
}

TEST(HeaderSizerTest, HeaderSizer_RandomItemsInAnyOrder_GivesTheLengthOfTheText) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<StoredItem> items;
    const int count = static_cast<int>(random() % 40);
    for (int i = 0; i < count; ++i) {
      StoredItem item{.name = "t" + std::string(random() % 50, 'x') + std::to_string(i), .dtype = DType::kFloat32};
      for (uint32_t d = random() % 4; d > 0; --d) {
        item.global_shape.push_back(random() % 2000);
        item.box.offset.push_back(0);
        item.box.shape.push_back(item.global_shape.back());
      }
      items.push_back(item);
    }
    HeaderSizer forward, backward;
    for (const auto& item : items) forward.Add(item);
    for (auto it = items.rbegin(); it != items.rend(); ++it) backward.Add(*it);
    const std::string text = RenderHeader(items, Checksums(items));
    EXPECT_EQ(text.size(), forward.PaddedBytes());
    EXPECT_EQ(text.size(), backward.PaddedBytes());
    EXPECT_TRUE(ParseHeader(text).ok()) << ParseHeader(text).status();
  }
}

TEST(ParseHeaderTest, ParseHeader_DamagedHeaders_AreRefusedOrHarmless) {
  const auto items = Items();
  const std::string good = RenderHeader(items, Checksums(items));
  for (size_t size : {size_t{0}, size_t{7}, size_t{8}, good.size() / 2, good.size() - 1}) {
    EXPECT_FALSE(ParseHeader(std::string_view(good).substr(0, size)).ok());
  }
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] = static_cast<char>(random());
    const auto header = ParseHeader(bad);
    if (!header.ok()) {
      const auto reason = ReasonOf(header.status());
      EXPECT_TRUE(reason == Reason::kBadSafetensors || reason == Reason::kFormatTooNew) << header.status();
      continue;
    }
    uint64_t end = 0;
    for (const ParsedItem& item : header->items) {
      EXPECT_EQ(item.begin, end);
      EXPECT_EQ(item.end - item.begin, item.item.bytes());
      EXPECT_EQ(item.checksums.blocks.size(), ChecksumBlockCount(item.item.bytes()));
      end = item.end;
    }
  }
}

TEST(HeaderBytesFromTest, HeaderBytesFrom_HugeLength_IsRefused) {
  EXPECT_FALSE(HeaderBytesFrom(std::string(8, '\xff')).ok());
  EXPECT_FALSE(HeaderBytesFrom(std::string("\x01\0\0\0\0\0\0\0", 8)).ok());
}

const StoredItem kOne = {.name = "w", .dtype = DType::kFloat32, .global_shape = {4, 4}, .box = {{0, 0}, {4, 4}}};

TEST(BinIdentityTest, RenderHeader_AnyIdentity_TakesTheSameRoom) {
  const std::vector<StoredItem> items = {kOne};
  const BinIdentity largest = {std::string(200, 'j'), 999'999'999'999, UINT32_MAX, INT32_MAX, UINT32_MAX, UINT32_MAX};
  const AliasList aliases = {{"a", "w"}, {"b \\ \"", "a"}};
  for (const AliasList& each : {AliasList(), aliases}) {
    HeaderSizer sizer;
    for (const auto& item : items) sizer.Add(item);
    for (const auto& [name, target] : each) sizer.AddAlias(name, target);
    for (const BinIdentity& identity : {BinIdentity{"j", 0, 1, 0, 1, 1}, largest}) {
      const std::string text = RenderHeader(items, Checksums(items), identity, each);
      EXPECT_EQ(text.size(), sizer.PaddedBytes());
      const auto parsed = ParseHeader(text);
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(parsed->identity, identity);
      EXPECT_EQ(parsed->aliases, each);
    }
  }
}

TEST(BinIdentityTest, HeaderSizer_Aliases_AreMeasured) {
  std::vector<StoredItem> items = {kOne};
  AliasList aliases;
  for (int i = 0; i < 300; ++i) {
    aliases.emplace_back(std::string(static_cast<size_t>(i), '"') + "name", "w");
    HeaderSizer sizer;
    for (const auto& item : items) sizer.Add(item);
    for (const auto& [name, target] : aliases) sizer.AddAlias(name, target);
    const std::string text = RenderHeader(items, Checksums(items), {"j", 1, 1, 0, 1, 1}, aliases);
    ASSERT_EQ(text.size(), sizer.PaddedBytes()) << i;
    ASSERT_TRUE(ParseHeader(text).ok()) << i;
  }
}

TEST(BinIdentityTest, ParseHeader_NamesLikeTheIdentity_AreNotTakenForIt) {
  for (const std::string name :
       {R"("header_crc32c":")", R"(\"header_crc32c\":\")", R"(}","format":"pt"})", R"("saved")"}) {
    StoredItem item = kOne;
    item.name = name;
    const std::vector<StoredItem> items = {item};
    const BinIdentity identity = {"demo", 12, 1, 3, 8, 16};
    const AliasList aliases = {{name + "2", name}};
    const auto parsed = ParseHeader(RenderHeader(items, Checksums(items), identity, aliases));
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.status();
    EXPECT_EQ(parsed->identity, identity);
    EXPECT_EQ(parsed->aliases, aliases);
    EXPECT_EQ(parsed->items[0].item.name, name);
  }
}

TEST(BinIdentityTest, ParseHeader_EveryFlippedBit_IsFound) {
  const std::vector<StoredItem> items = {kOne};
  const std::string good = RenderHeader(items, Checksums(items), {"demo", 12, 1, 3, 8, 16}, {{"a", "w"}});
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << bit);
      EXPECT_FALSE(ParseHeader(bad).ok()) << "byte " << i << " bit " << bit;
    }
  }
}

}  // namespace
}  // namespace cairn
