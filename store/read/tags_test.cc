#include "store/read/tags.h"

#include "common/status/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TagsTest, FindTag_OneStepHasIt_IsThatStep) {
  const auto step = FindTag("demo", "best", {{40, {"paper"}}, {60, {"best", "last"}}, {80, {}}});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(*step, 60);
}

TEST(TagsTest, FindTag_NoStepHasIt_NamesTheTagsThatThereAre) {
  const absl::Status status = FindTag("demo", "bset", {{40, {"paper"}}, {60, {"best"}}}).status();
  EXPECT_TRUE(HasReason(status, Reason::kNotCommitted)) << status;
  EXPECT_THAT(status.message(), HasSubstr("its tags are best, paper"));
  EXPECT_THAT(FindTag("demo", "best", {}).status().message(), HasSubstr("it has no tags"));
}

TEST(TagsTest, FindTag_StorageDoesNotTellTheTagsOfAStep_IsThatErrorUnlessAnotherStepHasTheTag) {
  const absl::Status failed = MakeError(Reason::kStorageError, "list 40: Input/output error");
  const std::vector<StepTags> steps = {{40, {}, failed}, {60, {"best"}, absl::OkStatus()}};
  const absl::Status unknown = FindTag("demo", "paper", steps).status();
  EXPECT_TRUE(HasReason(unknown, Reason::kStorageError)) << unknown;
  EXPECT_THAT(unknown.message(), HasSubstr("demo@paper: the tags of step 40 cannot be read"));
  EXPECT_EQ(*FindTag("demo", "best", steps), 60);
}

TEST(TagsTest, FindTag_APartOfTheName_IsNotTheTag) {
  EXPECT_TRUE(HasReason(FindTag("demo", "be", {{60, {"best"}}}).status(), Reason::kNotCommitted));
}

TEST(TagsTest, FindTag_SeveralStepsHaveIt_NamesThemAndChoosesNone) {
  const absl::Status status = FindTag("demo", "best", {{40, {"best"}}, {60, {"best"}}, {80, {"other"}}}).status();
  EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
  EXPECT_THAT(status.message(), HasSubstr("steps 40, 60"));
  EXPECT_THAT(status.message(), Not(HasSubstr("80")));
}

TEST(TagsTest, FindTag_VeryManyTags_NamesSome) {
  std::vector<StepTags> steps;
  for (int64_t i = 0; i < 100; ++i) steps.push_back({i, {"tag-" + std::to_string(i)}});
  const absl::Status status = FindTag("demo", "best", steps).status();
  EXPECT_LT(status.message().size(), 400u);
  EXPECT_THAT(status.message(), HasSubstr("..."));
}

}  // namespace
}  // namespace cairn
