#include "tests/trust/judge/state_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <sstream>
#include <string>

namespace cairn {
namespace {

std::string BytesOf(const std::array<float, 4>& values) {
  std::string bytes(sizeof values, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string HalvesOf(const std::string& shards) {
  return R"({"step": 12, "line": 3, "ranks": 2, "plan": "p", "keep": "a", "objects": [{"name": "loader", "crc32c": [7]},
             {"name": "rng", "crc32c": [8, 9]}], "tensors": [{"name": "w", "dtype": "float32", "shape": [2, 4],
             "shards": [)" +
         shards + "]}]}";
}

std::string OneLine(std::string text) {
  std::erase(text, '\n');
  return text + "\n";
}

constexpr const char* kRows =
    R"({"rank": 0, "offset": [0, 0], "shape": [1, 4]}, {"rank": 1, "offset": [1, 0], "shape": [1, 4]})";

TEST(StateReaderTest, OneOrder) {
  const std::string one = BytesOf({1, 2, 3, 4}), other = BytesOf({5, 0, -7, 8});
  std::istringstream in(OneLine(HalvesOf(kRows)) + one + other);
  const absl::StatusOr<JudgeOrder> order = ReadOrder(in);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_FALSE(order->goes_back);
  EXPECT_EQ(order->keep, "a");
  const Manifest& manifest = order->manifest;
  EXPECT_EQ(manifest.step, 12);
  EXPECT_EQ(manifest.lineage.line, 3);
  ASSERT_EQ(manifest.shards.size(), 2);
  EXPECT_EQ(manifest.files[manifest.shards[1].file].rank, 1);
  EXPECT_NE(manifest.shards[0].crc32c, manifest.shards[1].crc32c);
  ASSERT_EQ(manifest.summaries.size(), 1);
  const TensorStatistics& statistics = manifest.summaries[0].statistics;
  EXPECT_EQ(statistics.zeros, 1);
  EXPECT_EQ(statistics.min, -7);
  EXPECT_EQ(statistics.sum, 16);
  EXPECT_EQ(statistics.sum_squares, 168);
  ASSERT_EQ(manifest.objects.size(), 3);
  EXPECT_EQ(manifest.objects[0].rank, std::nullopt);
  EXPECT_EQ(manifest.objects[2].rank, 1);
  EXPECT_TRUE(absl::IsOutOfRange(ReadOrder(in).status()));

  // The same tensor, whole on one rank.
  std::istringstream whole(OneLine(HalvesOf(R"({"rank": 1, "offset": [0, 0], "shape": [2, 4]})")) + one + other);
  EXPECT_EQ(ReadOrder(whole)->manifest.summaries, manifest.summaries);
}

TEST(StateReaderTest, WhatIsNoOrder) {
  for (const std::string& text :
       {std::string("{\n"), std::string("{\"step\": 1}\n"), OneLine(HalvesOf(kRows)) + BytesOf({1, 2, 3, 4}) + "12"}) {
    std::istringstream in(text);
    EXPECT_TRUE(absl::IsInvalidArgument(ReadOrder(in).status())) << text;
  }
}

}  // namespace
}  // namespace cairn
