#include "foreign/write/megatron/megatron_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using Kind = ObjectValue::Kind;

ObjectValue TextOf(const std::string& text) {
  ObjectValue value;
  value.kind = Kind::kText;
  value.text = text;
  return value;
}

ExportedValue ValueOf(const std::string& name, ObjectValue value) { return {name, {TextOf(name)}, std::move(value)}; }

ObjectValue DictOf(std::vector<ObjectValue> items) {
  ObjectValue value;
  value.kind = Kind::kDict;
  value.items = std::move(items);
  return value;
}

TEST(MegatronPlanTest, IsShardedObjectName_Names_NeedAnIndexAndASize) {
  for (const char* name : {"decoder._extra_state/shard_0_1", "rng_state/shard_0.1_2.4", "a/b/shard_10_20"}) {
    EXPECT_TRUE(IsShardedObjectName(name)) << name;
  }
  for (const char* name :
       {"iteration", "a/shard_1", "a/shard_", "/shard_0_1", "a/shard_x_1", "a/shard_1_", "a/shard_0_1_2"}) {
    EXPECT_FALSE(IsShardedObjectName(name)) << name;
  }
}

TEST(MegatronPlanTest, MakeMegatronExportPlan_CommonValues_LeaveOutWhatIsOpaque) {
  ObjectValue opaque;
  opaque.kind = Kind::kOpaque;
  opaque.text = "argparse.Namespace";
  const auto plan =
      MakeMegatronExportPlan(Manifest(), {},
                             {ValueOf("common.pt", DictOf({TextOf("args"), opaque, TextOf("iteration"), TextOf("7")})),
                              ValueOf("a/shard_0_1", TextOf("x")), ValueOf("step", TextOf("8"))});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->left_out, ElementsAre("args (argparse.Namespace)"));
  EXPECT_EQ(plan->dcp.values, 1u);
  ASSERT_EQ(plan->dcp.beside.size(), 2u);
  EXPECT_EQ(plan->dcp.beside[0].first, "common.pt");
  EXPECT_EQ(plan->dcp.beside[1].first, "metadata.json");
}

TEST(MegatronPlanTest, MakeMegatronExportPlan_ValueAndEntryOfOneName_IsRefused) {
  const auto plan = MakeMegatronExportPlan(
      Manifest(), {},
      {ValueOf("common.pt", DictOf({TextOf("iteration"), TextOf("7")})), ValueOf("iteration", TextOf("8"))});
  EXPECT_TRUE(HasReason(plan.status(), Reason::kNameCollision));
}

TEST(MegatronPlanTest, MakeMegatronExportPlan_OpaqueShardedObject_IsRefused) {
  ObjectValue opaque;
  opaque.kind = Kind::kOpaque;
  EXPECT_TRUE(HasReason(MakeMegatronExportPlan(Manifest(), {}, {ValueOf("a/shard_0_1", opaque)}).status(),
                        Reason::kUnsupported));
}

}  // namespace
}  // namespace cairn
