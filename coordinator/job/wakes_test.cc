// Counts the agents' calls at which the coordinator looks again while a job saves.
#include <gtest/gtest.h>

#include <string>

#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

constexpr int kRanks = 16;  // as many layouts that nobody holds yet are kept

// The agents of all ranks always have a call that waits, and know the plan of their layouts.
class WakesTest : public JobFixture {
 protected:
  WakesTest() {
    StartJob(Options(), kRanks);
    for (int rank = 0; rank < kRanks; ++rank) Register(rank);
    Recover();
    for (int rank = 0; rank < kRanks; ++rank) Say(rank, {});
    const auto plan = Take<PlanSave>();
    EXPECT_TRUE(plan.has_value());
    if (!plan.has_value()) return;
    job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
    AskAll();
  }

  // The rank reports, and its call is asked.
  void Say(int rank, const std::vector<v1::SaveState>& saves) {
    v1::AgentState state = StateWith(Trainer(rank));
    state.mutable_trainer()->set_layout_digest(Layout(rank));
    for (const v1::SaveState& save : saves) {
      v1::SaveState& added = *state.add_saves() = save;
      added.set_trainer_incarnation(Trainer(rank));
    }
    Synchronize(rank, state);
    job().OrdersFor(rank, At());
    AskWoken();
  }
  void AskAll() {
    AskWoken();
    for (int rank = 0; rank < kRanks; ++rank) job().OrdersFor(rank, At());
    asked_ = 0;
  }
  // As the dispatcher does after every event.
  void AskWoken() {
    const Job::Woken woken = core_->TakeWoken();
    asked_ += woken.all ? kRanks : static_cast<int>(woken.ranks.size());
    if (woken.all) {
      for (int rank = 0; rank < kRanks; ++rank) job().OrdersFor(rank, At());
    } else {
      for (const int rank : woken.ranks) job().OrdersFor(rank, At());
    }
    EXPECT_EQ(core_->Missed(), "");
  }
  static v1::SaveState Staging(int rank) {
    v1::SaveState save = Begun(rank, 100);
    save.set_phase(v1::Phase::STAGING);
    save.set_plan_digest("plan");
    return save;
  }
  int asked_ = 0;  // calls, of agents that had said nothing new themselves
};

TEST_F(WakesTest, UnchangedSave_EachAgentIsAskedTwice) {
  for (int rank = 0; rank < kRanks; ++rank) Say(rank, {Staging(rank)});
  EXPECT_EQ(asked_, 0) << "they stage by the plan that they know";
  Answer<ReserveAttempt>([](Job& job, const ReserveAttempt& what, const Moment& at) {
    job.OnReserved(what.step, what.ticket, Reserved{1, kNonce}, at);
  });
  AskWoken();
  EXPECT_EQ(asked_, kRanks) << "to write";
  for (int rank = 0; rank < kRanks; ++rank) Say(rank, {InAttempt(rank, 100, v1::Phase::STAGED)});
  for (int rank = 0; rank < kRanks; ++rank) Say(rank, {Written(rank, 100)});
  EXPECT_EQ(asked_, kRanks) << "nothing new for anybody while all stage, write and have written";
  Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& at) {
    job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
  });
  AskWoken();
  Answer<PutOutcome>([](Job& job, const PutOutcome& what, const Moment& at) {
    job.OnOutcome(what.step, what.ticket, PutAnswer{Standing(what, true)}, at);
  });
  AskWoken();
  EXPECT_EQ(asked_, 2 * kRanks) << "the outcome";
  EXPECT_EQ(OrderOf(0, 100).phase(), v1::Phase::COMMITTED);
}

TEST_F(WakesTest, Planned_OnlyThoseThatDoNotFollowThePlan_AreAsked) {
  for (int rank = 0; rank < kRanks; ++rank) Say(rank, {rank % 8 == 0 ? Begun(rank, 100) : Staging(rank)});
  EXPECT_EQ(asked_, kRanks / 8);
  EXPECT_EQ(OrderOf(1, 100).phase(), v1::Phase::STAGING) << "the others are told when they ask";
}

}  // namespace
}  // namespace cairn
