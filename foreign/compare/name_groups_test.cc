#include "foreign/compare/name_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::ElementsAre;

ComparedName Named(const std::string& name, Difference difference, std::optional<double> largest = {}) {
  ComparedName compared;
  compared.name = name;
  compared.difference = difference;
  compared.first = ComparedItem{DType::kFloat32, {4, 4}, 64, std::nullopt, ""};
  compared.second = compared.first;
  compared.differing = largest.has_value() ? 2 : 0;
  compared.largest_difference = largest;
  return compared;
}

TEST(NameGroupsTest, GroupNames_LayersOfAModel_AreOneGroup) {
  std::vector<ComparedName> names = {Named("embed", Difference::kNone),
                                     Named("layers.0.b", Difference::kValues, 1),
                                     Named("layers.0.w", Difference::kValues, 0.5),
                                     Named("layers.1.b", Difference::kNone),
                                     Named("layers.1.w", Difference::kValues, 3),
                                     Named("layers.2.w", Difference::kValues),
                                     Named("layers.3.w", Difference::kOnlyFirst)};
  names[5].nans = 7;
  const std::vector<NameGroup> groups = GroupNames(names);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].pattern, "layers.*.b");
  EXPECT_EQ(groups[1].pattern, "layers.*.w");
  EXPECT_THAT(groups[1].names, ElementsAre(2, 4, 5));
  EXPECT_EQ(groups[1].differing, 4u);
  EXPECT_EQ(groups[1].nans, 7u);
  EXPECT_EQ(groups[1].largest, 4u);
  EXPECT_THAT(groups[2].names, ElementsAre(6)) << "it differs in another way";
}

TEST(NameGroupsTest, GroupNames_OtherDtypes_AreOtherGroups) {
  std::vector<ComparedName> names = {Named("a.0", Difference::kValues, 1), Named("a.1", Difference::kValues, 1),
                                     Named("a.2", Difference::kValues, 1)};
  names[1].first->dtype = names[1].second->dtype = DType::kInt64;
  names[2].first->shape = names[2].second->shape = {16};
  EXPECT_EQ(GroupNames(names).size(), 3u);
}

}  // namespace
}  // namespace cairn
