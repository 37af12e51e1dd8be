#include "coordinator/job/current_plan.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class CurrentPlanTest : public PartTest {
 protected:
  // A trainer calls `prepare`.
  void Declare(int rank, const std::string& layout) { Tell(rank, layout, ++calls_[rank]); }
  // A trainer has this layout, and is not in `prepare`.
  void Save(int rank, const std::string& layout) { Tell(rank, layout, 0); }
  void Tell(int rank, const std::string& layout, uint64_t call) {
    layouts_.Add(layout, 1);
    v1::AgentState state = Trainer(50, layout);
    state.mutable_trainer()->set_prepare_calls(call);
    Report(rank, state);
    plan_.OnReport(*members_.Find(rank), layout != last_layout_[rank]);
    last_layout_[rank] = layout;
    (void)plan_.Advance(context_);
  }
  // As the planner does if the layouts fit together when their first letters are the same.
  void AnswerAll() {
    while (const auto asked = Take<PlanSave>()) {
      std::set<char> letters;
      for (const std::string& layout : asked->layout) letters.insert(layout[0]);
      if (letters.size() == 1) {
        Answer(*asked, PlannedSave{absl::StrCat("plan ", asked->layout[0].substr(0, 1)), 1});
      } else {
        Answer(*asked, MakeError(Reason::kDtypeMismatch, "w: float32, and int64"));
      }
    }
  }
  void DeclareAndAnswer(int rank, const std::string& layout) {
    Declare(rank, layout);
    AnswerAll();
  }
  void Answer(const PlanSave& asked, const absl::StatusOr<PlannedSave>& planned) {
    plans_.OnPlanned(asked.key, planned);
    plan_.OnPlanned();
    (void)plan_.Advance(context_);
  }
  v1::SynchronizeAgentResponse Orders(int rank) const {
    v1::SynchronizeAgentResponse response;
    plan_.WriteTo(*members_.Find(rank), response);
    return response;
  }
  absl::Status Error(int rank = 0) const { return StatusFromProto(Orders(rank).current_plan_error()); }

  CurrentPlan plan_;
  std::map<int, uint64_t> calls_;
  std::map<int, std::string> last_layout_;
};

TEST_F(CurrentPlanTest, Advance_AllHaveLayouts_IsAskedForAndToldToAll) {
  RegisterAll(2);
  Declare(0, "a");
  EXPECT_FALSE(Take<PlanSave>().has_value()) << "rank 1 has none";
  Declare(1, "b");
  const auto asked = Take<PlanSave>();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->layout, (std::vector<std::string>{"a", "b"}));
  plans_.OnPlanned(asked->key, PlannedSave{"plan", 1});
  plan_.OnPlanned();
  EXPECT_EQ(plan_.Advance(context_).orders, News::Orders::kUrgent);
  EXPECT_EQ(plan_.digest(), "plan");
  EXPECT_TRUE(plan_.check_replicas()) << "the first save under it compares its replicas";
  for (int i = 0; i < 10; ++i) (void)plan_.Advance(context_);
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
  Pass(absl::Seconds(19));
  (void)plan_.Advance(context_);
  EXPECT_TRUE(Error().ok());
  Pass(absl::Seconds(1));
  (void)plan_.Advance(context_);
  EXPECT_TRUE(HasReason(Error(), Reason::kRankLate)) << Error();
  EXPECT_EQ(MetadataOf(Error())["ranks"], "1");
  Pass(-absl::Seconds(1));
  (void)plan_.Advance(context_);
  EXPECT_FALSE(Error().ok()) << "what was told is not taken back by a look at the time of the last tick";
  Declare(1, "b");
  Answer(Take<PlanSave>().value_or(PlanSave()), PlannedSave{"plan", 1});
  EXPECT_TRUE(Error().ok());
}

TEST_F(CurrentPlanTest, Advance_RankThatPreparedIsGone_NobodyIsLate) {
  RegisterAll(2);
  Declare(0, "a");
  members_.Remove(0);
  plan_.InputsChanged();
  (void)plan_.Advance(context_);
  Pass(absl::Hours(1));
  (void)plan_.Advance(context_);
  EXPECT_TRUE(Error(1).ok());
}

TEST_F(CurrentPlanTest, Advance_RankSavesAndNobodyPrepares_NobodyIsLate) {
  RegisterAll(2);
  Save(0, "a");
  Pass(absl::Hours(1));
  (void)plan_.Advance(context_);
  EXPECT_TRUE(Error().ok());
  EXPECT_TRUE(plan_.Awaited(members_).empty());
}

// A job of three ranks has saved, and changes its layout.
class ChangedLayoutTest : public CurrentPlanTest {
 protected:
  ChangedLayoutTest() {
    RegisterAll(3);
    for (int rank = 0; rank < 3; ++rank) DeclareAndAnswer(rank, "a");
    EXPECT_EQ(Orders(0).current_plan_digest(), "plan a");
  }
};

TEST_F(ChangedLayoutTest, Prepare_RanksCallItOneAfterTheOther_IsNoErrorBetween) {
  for (int rank = 0; rank < 2; ++rank) {
    DeclareAndAnswer(rank, "b");
    for (int each = 0; each < 3; ++each) {
      EXPECT_TRUE(Error(each).ok()) << each << ": " << Error(each);
      EXPECT_EQ(Orders(each).current_plan_digest(), each <= rank ? "" : "plan a")
          << "a rank that has not called again may not have heard of its plan yet";
    }
  }
  EXPECT_EQ(plan_.Awaited(members_), std::vector<int>{2});
  DeclareAndAnswer(2, "b");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Orders(rank).current_plan_digest(), "plan b");
  EXPECT_TRUE(plan_.Awaited(members_).empty());
}

TEST_F(ChangedLayoutTest, Prepare_AllHaveCalledItAndContradict_IsAnErrorForAll) {
  DeclareAndAnswer(0, "b");
  DeclareAndAnswer(1, "b");
  DeclareAndAnswer(2, "a");  // its part may well be the same
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(HasReason(Error(rank), Reason::kDtypeMismatch)) << Error(rank);

  // One rank has heard it and tries again, before the others have heard it.
  DeclareAndAnswer(0, "b");
  EXPECT_TRUE(Error(0).ok()) << "this call waits for the others: " << Error(0);
  for (int rank = 1; rank < 3; ++rank) EXPECT_TRUE(HasReason(Error(rank), Reason::kDtypeMismatch)) << Error(rank);
  DeclareAndAnswer(1, "b");
  DeclareAndAnswer(2, "b");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Orders(rank).current_plan_digest(), "plan b");
}

TEST_F(ChangedLayoutTest, Prepare_RankDoesNotCallIt_IsNamedWithTheContradictionAfterThePhaseTimeout) {
  DeclareAndAnswer(0, "b");
  DeclareAndAnswer(2, "b");
  Pass(absl::Seconds(19));
  Save(1, "a");
  AnswerAll();
  EXPECT_TRUE(Error().ok()) << Error();
  Pass(absl::Seconds(20));
  (void)plan_.Advance(context_);
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(HasReason(Error(rank), Reason::kRankLate)) << Error(rank);
    EXPECT_EQ(MetadataOf(Error(rank))["ranks"], "1");
    EXPECT_NE(Error(rank).message().find("DTYPE_MISMATCH"), absl::string_view::npos) << Error(rank);
  }
  // The ranks come together after all.
  DeclareAndAnswer(0, "b");
  EXPECT_EQ(Orders(0).current_plan_digest(), "");
  DeclareAndAnswer(1, "b");
  DeclareAndAnswer(2, "b");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Orders(rank).current_plan_digest(), "plan b");
}

// Rank 0 prepares the same layout once more, which is answered at once, and then another one. The others are still to
// prepare the same layout.
TEST_F(ChangedLayoutTest, Prepare_RankIsARoundAhead_OthersGetTheirPlanAndFollow) {
  DeclareAndAnswer(0, "a");
  EXPECT_EQ(Orders(0).current_plan_digest(), "plan a");
  DeclareAndAnswer(0, "b");
  for (const int rank : {1, 2}) {
    DeclareAndAnswer(rank, "a");
    EXPECT_EQ(Orders(rank).current_plan_digest(), "plan a") << "else it waited for rank 0, and rank 0 for it";
    EXPECT_TRUE(Error(rank).ok()) << Error(rank);
  }
  EXPECT_TRUE(Error(0).ok()) << Error(0);
  EXPECT_EQ(plan_.Awaited(members_), (std::vector<int>{1, 2}));
  DeclareAndAnswer(1, "b");
  DeclareAndAnswer(2, "b");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Orders(rank).current_plan_digest(), "plan b");
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
