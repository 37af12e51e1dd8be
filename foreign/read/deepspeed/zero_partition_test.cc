#include "foreign/read/deepspeed/zero_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

// Returns parameters with few elements, in up to three groups.
std::vector<ZeroGroup> RandomGroups(std::mt19937_64& random) {
  std::vector<ZeroGroup> groups(1 + random() % 3);
  int number = 0;
  for (ZeroGroup& group : groups) {
    for (size_t count = 1 + random() % 4; count > 0; --count) {
      Shape shape;
      for (size_t d = random() % 3; d > 0; --d) shape.push_back(static_cast<int64_t>(random() % 6));
      group.parameters.push_back({"p" + std::to_string(number++), shape, static_cast<int64_t>(random() % 3)});
    }
  }
  return groups;
}

int64_t Elements(const Shape& shape) { return *ElementCount(shape); }

// An element that a rank holds: its parameter and its position there, or an empty name for padding.
struct Cell {
  std::string name;
  int64_t position = 0;
  bool operator==(const Cell&) const = default;
};
using Tensors = std::vector<std::vector<std::vector<Cell>>>;  // by rank and group

ZeroLengths LengthsOf(const Tensors& tensors) {
  ZeroLengths lengths;
  for (const auto& rank : tensors) {
    auto& row = lengths.emplace_back();
    for (const auto& group : rank) row.push_back(static_cast<int64_t>(group.size()));
  }
  return lengths;
}

// Every fragment must name the cells of its parameter, in their order, and all of them.
void ExpectFinds(const std::vector<ZeroGroup>& groups, const std::vector<ZeroParameter>& found,
                 const Tensors& tensors) {
  size_t number = 0;
  for (const ZeroGroup& group : groups) {
    for (const ZeroGroup::Parameter& parameter : group.parameters) {
      ASSERT_LT(number, found.size());
      const ZeroParameter& each = found[number++];
      EXPECT_EQ(each.name, parameter.name);
      EXPECT_EQ(each.shape, parameter.shape);
      int64_t next = 0;
      for (const ZeroFragment& fragment : each.fragments) {
        ASSERT_EQ(fragment.range.begin, next);
        for (int64_t i = 0; i < fragment.range.size(); ++i) {
          const auto& tensor = tensors.at(fragment.rank).at(fragment.group);
          ASSERT_EQ(tensor.at(static_cast<size_t>(fragment.begin + i)), (Cell{each.name, next + i}));
        }
        next = fragment.range.end;
      }
      EXPECT_EQ(next, Elements(each.shape));
    }
  }
  EXPECT_EQ(number, found.size());
}

TEST(ZeroPartitionTest, PartitionVectors_EverySeed_FindsEveryElementInOrder) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<ZeroGroup> groups = RandomGroups(random);
    const size_t ranks = 1 + random() % 5;
    Tensors tensors(ranks, std::vector<std::vector<Cell>>(groups.size()));
    const bool lean = random() % 2 == 0;  // DeepSpeed has left out the padding
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<Cell> vector;
      size_t meant = 0;
      for (const ZeroGroup::Parameter& parameter : groups[g].parameters) {
        for (int64_t i = 0; i < Elements(parameter.shape); ++i) vector.push_back({parameter.name, i});
        meant = vector.size();
        vector.resize(vector.size() + static_cast<size_t>(parameter.padding));
      }
      while (vector.size() % (2 * ranks) != 0) vector.emplace_back();
      const size_t part = vector.size() / ranks;
      for (size_t r = 0; r < ranks; ++r) {
        const size_t end = lean ? std::min(vector.size(), std::max(meant, r * part)) : vector.size();
        for (size_t i = r * part; i < std::min(end, (r + 1) * part); ++i) tensors[r][g].push_back(vector[i]);
      }
    }
    const auto found = PartitionVectors(groups, LengthsOf(tensors));
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectFinds(groups, *found, tensors);
  }
}

TEST(ZeroPartitionTest, PartitionParameters_EverySeed_FindsEveryElementInOrder) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<ZeroGroup> groups = RandomGroups(random);
    const size_t ranks = 1 + random() % 5;
    Tensors tensors(ranks, std::vector<std::vector<Cell>>(groups.size()));
    for (size_t r = 0; r < ranks; ++r) {
      std::vector<Cell> all;
      for (const ZeroGroup& group : groups) {
        for (const ZeroGroup::Parameter& parameter : group.parameters) {
          const int64_t elements = Elements(parameter.shape);
          const int64_t part = (elements + static_cast<int64_t>(ranks) - 1) / static_cast<int64_t>(ranks);
          for (int64_t i = 0; i < part; ++i) {
            const int64_t position = static_cast<int64_t>(r) * part + i;
            all.push_back(position < elements ? Cell{parameter.name, position} : Cell{});
          }
        }
      }
      // The tensors of a rank may be cut anywhere.
      std::mt19937_64 same(seed);
      size_t begin = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        const size_t left = all.size() - begin;
        const size_t count = g + 1 == groups.size() ? left : same() % (left + 1);
        tensors[r][g].assign(all.begin() + static_cast<int64_t>(begin),
                             all.begin() + static_cast<int64_t>(begin + count));
        begin += count;
      }
    }
    const auto found = PartitionParameters(groups, LengthsOf(tensors));
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectFinds(groups, *found, tensors);
  }
}

TEST(ZeroPartitionTest, PartitionVectors_OtherLengths_IsRefused) {
  const std::vector<ZeroGroup> groups = {{{{"w", {3, 5}, 0}}}};
  EXPECT_TRUE(PartitionVectors(groups, {{8}, {8}}).ok());
  EXPECT_TRUE(PartitionVectors(groups, {{8}, {7}}).ok()) << "without the padding";
  for (const ZeroLengths& wrong : {ZeroLengths{{8}, {6}}, ZeroLengths{{8}, {11}}, ZeroLengths{{8, 1}, {8, 1}},
                                   ZeroLengths{{}, {}}, ZeroLengths{}}) {
    EXPECT_TRUE(HasReason(PartitionVectors(groups, wrong).status(), Reason::kBadForeignFile));
  }
}

TEST(ZeroPartitionTest, PartitionParameters_OtherLengths_IsRefused) {
  const std::vector<ZeroGroup> groups = {{{{"w", {3, 5}, 0}}}};
  EXPECT_TRUE(PartitionParameters(groups, {{8}, {8}}).ok());
  for (const ZeroLengths& wrong : {ZeroLengths{{8}, {7}}, ZeroLengths{{7}, {7}}, ZeroLengths{{9}, {9}},
                                   ZeroLengths{{8, 1}, {8, 1}}, ZeroLengths{}}) {
    EXPECT_TRUE(HasReason(PartitionParameters(groups, wrong).status(), Reason::kBadForeignFile));
  }
}

TEST(ZeroPartitionTest, Partition_ShapeWithoutAnElementCount_IsRefused) {
  for (const Shape& shape : {Shape{-1}, Shape{INT64_MAX, 3}, Shape{INT64_MAX}}) {
    const std::vector<ZeroGroup> groups = {{{{"w", shape, 0}}}};
    EXPECT_TRUE(HasReason(PartitionVectors(groups, {{8}, {8}}).status(), Reason::kBadForeignFile));
    EXPECT_TRUE(HasReason(PartitionParameters(groups, {{8}, {8}}).status(), Reason::kBadForeignFile));
  }
}

}  // namespace
}  // namespace cairn
