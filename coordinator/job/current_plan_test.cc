#include "coordinator/job/current_plan.h"

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class CurrentPlanTest : public PartTest {
 protected:
  void Declare(int rank, const std::string& layout) {
    layouts_.Add(layout, 1);
    Report(rank, Trainer(50, layout));
    plan_.InputsChanged();
    plan_.Advance(context_);
  }
  void Answer(const PlanSave& asked, const absl::StatusOr<PlannedSave>& planned) {
    plans_.OnPlanned(asked.key, planned);
    plan_.OnPlanned();
    plan_.Advance(context_);
  }
  absl::Status Error() const {
    v1::SynchronizeAgentResponse response;
    plan_.WriteTo(response);
    return StatusFromProto(response.current_plan_error());
  }

  CurrentPlan plan_;
};

TEST_F(CurrentPlanTest, Advance_AllHaveLayouts_IsAskedForAndToldToAll) {
  RegisterAll(2);
  Declare(0, "a");
  EXPECT_FALSE(Take<PlanSave>().has_value()) << "rank 1 has none";
  Declare(1, "b");
  const auto asked = Take<PlanSave>();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->layout, (std::vector<std::string>{"a", "b"}));
  context_.orders_changed = false;
  Answer(*asked, PlannedSave{"plan", 1});
  EXPECT_EQ(plan_.digest(), "plan");
  EXPECT_TRUE(plan_.check_replicas()) << "the first save under it compares its replicas";
  EXPECT_TRUE(context_.orders_changed);
  EXPECT_FALSE(plan_.restless(members_));
  for (int i = 0; i < 10; ++i) plan_.Advance(context_);
  EXPECT_EQ(plans_.keys_made(), 2u) << "when it was asked for, and when it had come";
}

TEST_F(CurrentPlanTest, Advance_LayoutsChangeWhileOneIsUnderWay_AsksForTheLastSetOnly) {
  RegisterAll(1);
  Declare(0, "a");
  const auto first = Take<PlanSave>();
  ASSERT_TRUE(first.has_value());
  for (const char* layout : {"b", "c", "d"}) Declare(0, layout);
  EXPECT_FALSE(Take<PlanSave>().has_value());
  Answer(*first, PlannedSave{"plan a", 1});
  const auto last = Take<PlanSave>();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->layout, std::vector<std::string>{"d"});
  EXPECT_EQ(plan_.digest(), "") << "the plan of another set is nobody's";
}

TEST_F(CurrentPlanTest, Advance_RankDeclaresNoLayout_IsNamedAfterThePhaseTimeout) {
  RegisterAll(2);
  Declare(0, "a");
  EXPECT_TRUE(plan_.restless(members_));
  Pass(absl::Seconds(19));
  plan_.Advance(context_);
  EXPECT_TRUE(Error().ok());
  Pass(absl::Seconds(1));
  plan_.Advance(context_);
  EXPECT_TRUE(HasReason(Error(), Reason::kRankLate)) << Error();
  EXPECT_EQ(MetadataOf(Error())["ranks"], "1");
  Pass(-absl::Seconds(1));
  plan_.Advance(context_);
  EXPECT_FALSE(Error().ok()) << "what was told is not taken back by a look at the time of the last tick";
  Declare(1, "b");
  EXPECT_TRUE(Error().ok());
}

TEST_F(CurrentPlanTest, Advance_PlanFails_TellsWhy) {
  RegisterAll(1);
  Declare(0, "a");
  Answer(Take<PlanSave>().value_or(PlanSave()), MakeError(Reason::kBadRequest, "gaps"));
  EXPECT_TRUE(HasReason(Error(), Reason::kBadRequest)) << Error();
  EXPECT_EQ(plan_.digest(), "");
}

}  // namespace
}  // namespace cairn
