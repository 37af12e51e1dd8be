#include "foreign/read/deepspeed/parallel_rules.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/flat_range.h"

namespace cairn {
namespace {

ParallelRules Rules(ParallelInfo info) {
  auto rules = ParallelRules::Create(std::move(info));
  EXPECT_TRUE(rules.ok()) << rules.status();
  return *std::move(rules);
}
void ExpectRefused(const absl::Status& status, Reason reason, const std::string& text) {
  EXPECT_TRUE(HasReason(status, reason)) << status;
  EXPECT_NE(status.message().find(text), std::string::npos) << status;
}

// A tensor as nested loops see it: values by position.
struct Array {
  Shape shape;
  std::vector<int64_t> values;
};
Array Numbered(const Shape& shape) {
  Array array{shape, std::vector<int64_t>(static_cast<size_t>(*ElementCount(shape)))};
  std::iota(array.values.begin(), array.values.end(), 1000);
  return array;
}
// The part [begin, end) of one dimension, element by element.
Array Narrow(const Array& whole, size_t dimension, int64_t begin, int64_t end) {
  Array part{whole.shape, {}};
  part.shape[dimension] = end - begin;
  int64_t inner = 1;
  for (size_t i = dimension + 1; i < whole.shape.size(); ++i) inner *= whole.shape[i];
  for (size_t i = 0; i < whole.values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) / inner % whole.shape[dimension];
    if (at >= begin && at < end) part.values.push_back(whole.values[i]);
  }
  return part;
}
Array Join(const std::vector<Array>& parts, size_t dimension) {
  Array joined = parts[0];
  for (size_t n = 1; n < parts.size(); ++n) {
    const Array left = joined, &right = parts[n];
    joined.shape[dimension] += right.shape[dimension];
    joined.values.clear();
    int64_t inner = 1;
    for (size_t i = dimension + 1; i < left.shape.size(); ++i) inner *= left.shape[i];
    const int64_t a = left.shape[dimension] * inner, b = right.shape[dimension] * inner;
    for (int64_t i = 0, j = 0;
         i < static_cast<int64_t>(left.values.size()) || j < static_cast<int64_t>(right.values.size());
         i += a, j += b) {
      joined.values.insert(joined.values.end(), left.values.begin() + i, left.values.begin() + i + a);
      joined.values.insert(joined.values.end(), right.values.begin() + j, right.values.begin() + j + b);
    }
  }
  return joined;
}

// What the boxes of `slices`, cut into flat ranges at random, put where.
Array PutTogether(const MergedShape& merged, const std::vector<Array>& slices, std::mt19937& random) {
  Array result{merged.shape, std::vector<int64_t>(static_cast<size_t>(*ElementCount(merged.shape)), -1)};
  const Shape strides = RowMajorStrides(merged.shape);
  for (size_t part = 0; part < slices.size(); ++part) {
    const auto count = static_cast<int64_t>(slices[part].values.size());
    for (int64_t begin = 0; begin < count;) {
      const int64_t end = std::min(count, begin + std::uniform_int_distribution<int64_t>(1, count)(random));
      std::vector<Box> pieces;
      AppendBoxes(slices[part].shape, {begin, end}, pieces);
      int64_t first = begin;  // in the slice's own file
      for (const Box& piece : pieces) {
        std::vector<BoxAt> boxes;
        EXPECT_TRUE(AppendMerged(merged, static_cast<uint32_t>(part), {piece, first}, 1000, boxes));
        for (const BoxAt& each : boxes) {
          EXPECT_TRUE(Contains(merged.shape, each.box)) << ToString(each.box);
          for (int64_t i = 0; i < each.box.size(); ++i) {
            int64_t rest = i, at = 0;
            for (size_t axis = merged.shape.size(); axis-- > 0;) {
              at += (each.box.offset[axis] + rest % each.box.shape[axis]) * strides[axis];
              rest /= each.box.shape[axis];
            }
            int64_t& place = result.values[static_cast<size_t>(at)];
            EXPECT_EQ(place, -1) << "an element came twice";
            place = slices[part].values[static_cast<size_t>(each.offset + i)];
          }
        }
        first += piece.size();
      }
      begin = end;
    }
  }
  return result;
}

// Random shapes, dimensions, widths of sub-parameters and padding of the first dimension.
TEST(ParallelRulesTest, Merge_WhatWasCutAtRandom_IsTheParameter) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto roll = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    const auto ndim = static_cast<size_t>(roll(1, 4));
    const auto dimension = static_cast<size_t>(roll(0, static_cast<int64_t>(ndim) - 1));
    const auto parts = static_cast<size_t>(roll(1, 4)), subs = static_cast<size_t>(roll(1, 3));
    std::vector<std::vector<int64_t>> widths(subs, std::vector<int64_t>(parts));
    std::vector<int64_t> sizes(subs, 0);
    for (size_t sub = 0; sub < subs; ++sub) {
      for (size_t part = 0; part < parts; ++part) sizes[sub] += widths[sub][part] = roll(sub == 0 ? 1 : 0, 3);
    }
    Array whole{{}, {}};
    for (size_t i = 0; i < ndim; ++i) whole.shape.push_back(roll(1, 4));
    whole.shape[dimension] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    whole = Numbered(whole.shape);
    std::vector<Array> slices;
    for (size_t part = 0; part < parts; ++part) {
      std::vector<Array> shares;
      int64_t begin = 0;
      for (size_t sub = 0; sub < subs; begin += sizes[sub++]) {
        int64_t first = begin;
        for (size_t before = 0; before < part; ++before) first += widths[sub][before];
        shares.push_back(Narrow(whole, dimension, first, first + widths[sub][part]));
      }
      slices.push_back(Join(shares, dimension));
    }
    ParallelInfo info;
    info.version = 0.4;
    info.sub_parameters = {{{"w$"}, whole.shape, sizes, static_cast<int64_t>(dimension)}};
    info.widths["w$"] = widths;
    if (roll(0, 1) == 1) {
      info.vocabulary_patterns = {"w"};
      info.vocabulary = roll(1, whole.shape[0]);
      whole = Narrow(whole, 0, 0, info.vocabulary);
    }
    std::vector<Shape> shapes;
    shapes.reserve(slices.size());
    for (const Array& slice : slices) shapes.push_back(slice.shape);
    const auto merged = Rules(info).Merge("w", shapes);
    ASSERT_TRUE(merged.ok()) << merged.status() << " seed " << seed;
    ASSERT_EQ(merged->shape, whole.shape) << "seed " << seed;
    ASSERT_EQ(PutTogether(*merged, slices, random).values, whole.values) << "seed " << seed;
  }
}

TEST(ParallelRulesTest, Merge_WithoutAPattern_FollowsInDimension0) {
  const auto merged = Rules({}).Merge("w", std::vector<Shape>{{3, 2}, {4, 2}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->shape, Shape({7, 2}));
}

TEST(ParallelRulesTest, Merge_Patterns_CountFromTheBeginningOfTheName) {
  ParallelInfo info;
  info.by_column = {"down", R"(.*\.\d+\.proj$)"};
  const ParallelRules rules = Rules(info);
  const auto shape = [&](const std::string& name) {
    return rules.Merge(name, std::vector<Shape>{{3, 2}, {3, 2}})->shape;
  };
  EXPECT_EQ(shape("down.weight"), Shape({3, 4}));
  EXPECT_EQ(shape("up.down"), Shape({6, 2}));
  EXPECT_EQ(shape("layers.12.proj"), Shape({3, 4}));
  EXPECT_EQ(shape("layers.12.proj2"), Shape({6, 2}));
}

TEST(ParallelRulesTest, Merge_Replicas_AreTheFirst) {
  ParallelInfo info;
  info.replicated = {"norm"};
  info.pipeline_replicated = {"tied"};
  const ParallelRules rules = Rules(info);
  const auto merged = rules.Merge("norm", std::vector<Shape>{{}, {}, {}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  std::vector<BoxAt> boxes;
  for (uint32_t part = 0; part < 3; ++part) EXPECT_TRUE(AppendMerged(*merged, part, {Box{}, 7}, 10, boxes));
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(boxes[0].offset, 7);
  ExpectRefused(rules.Merge("norm", std::vector<Shape>{{2}, {3}}).status(), Reason::kBadForeignFile, "(3,)");
  EXPECT_TRUE(rules.IsPipelineReplicated("tied.weight"));
  EXPECT_FALSE(rules.IsPipelineReplicated("norm"));
}

TEST(ParallelRulesTest, Merge_AnEqualNumberOfSubParameters_IsOfOldVersions) {
  ParallelInfo info;
  info.version = 0.2;
  info.sub_parameters = {{{"qkv"}, {3, -1}, {}, 0}};
  const auto merged = Rules(info).Merge("qkv", std::vector<Shape>{{6, 5}, {6, 5}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->shape, Shape({12, 5}));
  ASSERT_EQ(merged->strips.size(), 6u);
  EXPECT_EQ(merged->strips[1].part, 1u);
  EXPECT_EQ(merged->strips[1].target, 2);
  const auto bias = Rules(info).Merge("qkv", std::vector<Shape>{{6}, {6}});
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_EQ(bias->shape, Shape({12})) << "it keeps its own shape";
  ExpectRefused(Rules(info).Merge("qkv", std::vector<Shape>{{6, 5}, {5, 5}}).status(), Reason::kBadForeignFile,
                "no 3 equal");
  ExpectRefused(Rules(info).Merge("qkv", std::vector<Shape>{{3, 5}, {6, 5}}).status(), Reason::kUnsupported, "3 elem");
}

TEST(ParallelRulesTest, Merge_WhatNobodyCanKnow_IsRefusedByName) {
  ParallelInfo info;
  info.version = 0.4;
  info.averaged = {"mean"};
  info.unsupported = {{"odd", "its heads are interleaved"}};
  info.sub_parameters = {{{"qkv"}, {0, 5}, {8, 4}, 0}, {{"view"}, {0, 10}, {8, 4}, 0}, {{"far"}, {2, 5}, {}, 7}};
  info.widths["view"] = {{4, 4}, {2, 2}};
  info.vocabulary_patterns = {"embed"};
  const ParallelRules rules = Rules(info);
  const std::vector<Shape> slices = {{6, 5}, {6, 5}};
  ExpectRefused(rules.Merge("mean", slices).status(), Reason::kUnsupported, "average");
  ExpectRefused(rules.Merge("odd", slices).status(), Reason::kUnsupported, "interleaved");
  ExpectRefused(rules.Merge("qkv", slices).status(), Reason::kUnsupported, "how much of each");
  ExpectRefused(rules.Merge("view", slices).status(), Reason::kBadForeignFile, "does not fit");
  ExpectRefused(rules.Merge("far", slices).status(), Reason::kBadForeignFile, "does not have");
  ExpectRefused(rules.Merge("embed", slices).status(), Reason::kBadForeignFile, "vocabulary");
  ExpectRefused(rules.Merge("w", std::vector<Shape>{{6, 5}, {6, 4}}).status(), Reason::kBadForeignFile, "differ");
  ExpectRefused(rules.Merge("w", std::vector<Shape>{{}, {}}).status(), Reason::kBadForeignFile, "dimension 0");
  ExpectRefused(rules.Merge("w", std::vector<Shape>{{INT64_MAX, 0}, {1, 0}}).status(), Reason::kBadForeignFile, "");
}

TEST(ParallelRulesTest, Create_PatternsThatPythonReadsOtherwise_AreRefused) {
  for (const std::string pattern : {".{,9}norm", "x{,}", "[[:alpha:]]+", "[n[:^digit:]orm]+"}) {
    ParallelInfo info;
    info.replicated = {pattern};
    ExpectRefused(ParallelRules::Create(info).status(), Reason::kUnsupported, "Python takes");
  }
  for (const std::string pattern : {R"(x\{,9})", R"(\[[:]a)", "x{,y", "x{2,}", "[:x]"}) {
    ParallelInfo info;
    info.replicated = {pattern};
    EXPECT_TRUE(ParallelRules::Create(info).ok()) << pattern << " is the same in both";
  }
}

TEST(ParallelRulesTest, Merge_ClassesOfUnicode_AreForNamesInAsciiAlone) {
  const std::vector<Shape> slices = {{6}, {6}};
  for (const std::string text : {R"(\w+\.norm)", R"(.*\bnorm)", R"(\S+norm)", R"([\d]*norm)"}) {
    ParallelInfo info;
    info.replicated = {text};
    ExpectRefused(Rules(info).Merge("слой.norm", slices).status(), Reason::kUnsupported, "not ASCII");
    EXPECT_TRUE(Rules(info).Merge("first.norm", slices).ok()) << text;
  }
  ParallelInfo info;
  info.replicated = {R"(.*\.norm\\*w?)"};
  const auto merged = Rules(info).Merge("слой.norm", slices);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->shape, (Shape{6}));
}

TEST(ParallelRulesTest, Create_PatternsThatCannotBeMatched_AreRefused) {
  for (const char* pattern : {"(?=a)b", "(", "((a{1000}){1000}){1000}"}) {
    ParallelInfo info;
    info.replicated = {pattern};
    EXPECT_TRUE(HasReason(ParallelRules::Create(info).status(), Reason::kUnsupported)) << pattern;
  }
}

TEST(ParallelRulesTest, AppendMerged_MoreBoxesThanAllowed_SaysSo) {
  ParallelInfo info;
  info.version = 0.4;
  info.sub_parameters = {{{"w"}, {100, 0}, {2, 2}, 1}};
  info.widths["w"] = {{1, 1}, {1, 1}};
  const auto merged = Rules(info).Merge("w", std::vector<Shape>{{100, 2}, {100, 2}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  std::vector<BoxAt> boxes;
  EXPECT_TRUE(AppendMerged(*merged, 0, {WholeBox(Shape({100, 2})), 0}, 200, boxes));
  EXPECT_EQ(boxes.size(), 200u);
  EXPECT_FALSE(AppendMerged(*merged, 1, {WholeBox(Shape({100, 2})), 0}, 399, boxes));
}

}  // namespace
}  // namespace cairn
