#include "foreign/read/dcp/per_rank_values.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr char kDigest[] = "0123456789abcdef0123456789abcdef";

const PerRankValues kValues = {2,
                               {{"loader", 0, 0, 0}, {"loader", 1, 0, 0}, {"rng", 0, 0, 0}, {"rng", 1, 0, 0}},
                               {"loader.epoch", "rng.rank0.seed", "rng.rank1.seed"}};
const std::vector<std::string> kContents = {"\x01{}", "", std::string(5000, 'x'), std::string("\x00z", 2)};

absl::StatusOr<std::optional<PerRankValues>> Parse(std::string_view file, std::string_view digest = kDigest) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return ParsePerRankValues(file.substr(8, length), file.size(), digest, "file");
}

TEST(PerRankValuesTest, Render_WhatIsParsedOfIt_IsWhereTheValuesAre) {
  const std::string file = RenderPerRankValues(kValues, kContents, kDigest);
  const auto parsed = Parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(parsed->has_value());
  EXPECT_EQ((*parsed)->world_size, 2u);
  EXPECT_EQ((*parsed)->stands_for, kValues.stands_for);
  ASSERT_EQ((*parsed)->values.size(), kContents.size());
  for (size_t i = 0; i < kContents.size(); ++i) {
    const PerRankValue& value = (*parsed)->values[i];
    EXPECT_EQ(value.name, kValues.values[i].name);
    EXPECT_EQ(value.rank, kValues.values[i].rank);
    EXPECT_EQ(file.substr(value.offset, value.bytes), kContents[i]);
  }
}

TEST(PerRankValuesTest, Parse_OfAnotherMetadata_GivesNothing) {
  const auto parsed = Parse(RenderPerRankValues(kValues, kContents, kDigest), "another");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->has_value());
}

TEST(PerRankValuesTest, Parse_DamagedFiles_AreRefused) {
  const std::string file = RenderPerRankValues(kValues, kContents, kDigest);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = file;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    return Parse(changed).status();
  };
  EXPECT_TRUE(HasReason(with(R"("values":[{)", R"("values":[7{)"), Reason::kBadForeignFile)) << "no JSON";
  EXPECT_TRUE(HasReason(with("values 1", "values 2"), Reason::kBadForeignFile));
  EXPECT_TRUE(HasReason(with(R"("world_size":2)", R"("world_size":0)"), Reason::kBadForeignFile));
  EXPECT_TRUE(HasReason(with(R"("world_size":2)", R"("world_size":1)"), Reason::kBadForeignFile));
  EXPECT_TRUE(HasReason(with(R"("world_size":2)", R"("world_size":3)"), Reason::kBadForeignFile)) << "rank 2 has none";
  EXPECT_TRUE(HasReason(with(R"("rank":0)", R"("rank":1)"), Reason::kBadForeignFile)) << "twice";
  EXPECT_TRUE(HasReason(with(R"("bytes":5000)", R"("bytes":9999)"), Reason::kBadForeignFile)) << "behind the end";
  EXPECT_TRUE(HasReason(with(R"("name":"rng")", R"("name":"\u0")"), Reason::kBadForeignFile));
  EXPECT_TRUE(HasReason(with(R"("name":"rng")", R"("name":"\n1")"), Reason::kBadName));
  for (size_t length = 8; length + 5002 < file.size(); ++length) {
    const auto parsed = ParsePerRankValues(std::string_view(file).substr(8, length - 8), file.size(), kDigest, "file");
    if (parsed.ok() && parsed->has_value()) {  // only blanks are missing
      EXPECT_EQ((*parsed)->values.size(), kContents.size());
    }
  }
}

}  // namespace
}  // namespace cairn
