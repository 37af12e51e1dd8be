#include "coordinator/alarms/alarm_policy.h"

#include <gtest/gtest.h>

#include "common/format/alarm.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using Level = AlarmPolicy::Level;

TEST(AlarmPolicyTest, OneLevelForAll) {
  EXPECT_EQ(AlarmPolicy::Parse("off")->LevelOf(alarm::kJump), Level::kOff);
  EXPECT_FALSE(AlarmPolicy::Parse("off")->wanted());
  EXPECT_EQ(AlarmPolicy::Parse("fail")->LevelOf(alarm::kJump), Level::kFail);
  EXPECT_EQ(AlarmPolicy().LevelOf("a kind of a later version"), Level::kWarn);
}

TEST(AlarmPolicyTest, LevelsOfKinds) {
  const AlarmPolicy policy = *AlarmPolicy::Parse("jump=off,non_finite=fail");
  EXPECT_EQ(policy.LevelOf(alarm::kJump), Level::kOff);
  EXPECT_EQ(policy.LevelOf(alarm::kNonFinite), Level::kFail);
  EXPECT_EQ(policy.LevelOf(alarm::kSameStep), Level::kWarn);
  EXPECT_TRUE(AlarmPolicy::Parse("off,jump=warn")->wanted());
  EXPECT_EQ(AlarmPolicy::Parse("jump=warn,off")->LevelOf(alarm::kSameStep), Level::kOff);
}

TEST(AlarmPolicyTest, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "loud", "jump", "jump=loud", "leap=off", "warn,,off", "=off"}) {
    const auto policy = AlarmPolicy::Parse(text);
    ASSERT_TRUE(HasReason(policy.status(), Reason::kBadRequest)) << text;
    EXPECT_NE(MetadataOf(policy.status())["next"].find("non_finite"), std::string::npos);
  }
}

}  // namespace
}  // namespace cairn
