#include "agent/execution/import_permission.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

v1::ReadPlan PlanOf(const std::vector<std::string>& paths) {
  v1::ReadPlan plan;
  for (const std::string& path : paths) plan.add_files()->set_path(path);
  return plan;
}
bool Allows(const std::vector<std::string>& roots, const std::string& path) {
  return CheckImports(PlanOf({path}), 3, true, roots).ok();
}

TEST(ImportPermissionTest, CheckImports_AgentServesItsOwnUserAlone_AllowsAll) {
  EXPECT_TRUE(CheckImports(PlanOf({"/anywhere/a", "bin"}), 3, false, {}).ok());
}

TEST(ImportPermissionTest, CheckImports_OwnCheckpoint_IsAllowed) {
  EXPECT_TRUE(Allows({}, "demo/step_1/bin.safetensors"));
}

TEST(ImportPermissionTest, CheckImports_BelowARoot_IsAllowed) {
  EXPECT_TRUE(Allows({"/models"}, "/models/a/b"));
  EXPECT_TRUE(Allows({"/models//"}, "/models/a"));
  EXPECT_TRUE(Allows({"/other", "/models"}, "/models/a"));
  EXPECT_TRUE(Allows({"/"}, "/models/a"));
}

TEST(ImportPermissionTest, CheckImports_ElsewhereOrOnlyAlike_IsRefused) {
  EXPECT_FALSE(Allows({}, "/models/a"));
  EXPECT_FALSE(Allows({"/models"}, "/models-of-others/a"));
  EXPECT_FALSE(Allows({"/models"}, "/models"));
  EXPECT_FALSE(Allows({"/models"}, "/elsewhere/models/a"));
  EXPECT_FALSE(Allows({"/models"}, "/models/../secret"));
}

TEST(ImportPermissionTest, CheckImports_InAnObjectStore_AsksForARootThere) {
  EXPECT_TRUE(Allows({"s3://models/open"}, "s3://models/open/a"));
  EXPECT_TRUE(Allows({"s3://models"}, "s3://models/a"));
  EXPECT_TRUE(Allows({"gs://models/open"}, "gs://models/open/a"));
  EXPECT_FALSE(Allows({"s3://models"}, "gs://models/a"));
  EXPECT_FALSE(Allows({}, "gs://models/a"));
  EXPECT_FALSE(Allows({}, "s3://models/a"));
  EXPECT_FALSE(Allows({"/"}, "s3://models/a"));
  EXPECT_FALSE(Allows({"s3://models/open"}, "s3://models/other/a"));
  EXPECT_FALSE(Allows({"s3://model"}, "s3://models/a"));
}

TEST(ImportPermissionTest, CheckImports_OneFileIsElsewhere_NamesRankAndFile) {
  const absl::Status refused = CheckImports(PlanOf({"/models/a", "/secret/b"}), 3, true, {"/models"});
  EXPECT_TRUE(HasReason(refused, Reason::kPeerUid));
  EXPECT_EQ(MetadataOf(refused).at("rank"), "3");
  EXPECT_EQ(MetadataOf(refused).at("file"), "/secret/b");
}

}  // namespace
}  // namespace cairn
