// What a trainer is told when its agent restarted, or has no word with its coordinator.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::Whole;

// A session that has just begun, and a trainer that has been there for longer.
class SessionAwayTest : public SessionFixture {
 protected:
  SessionAwayTest() : SessionFixture(MakeLayout({Whole("a", DType::kFloat32, {100})}, {})) {}

  std::vector<v1::SaveState> Saves() {
    const v1::AgentState state = State();
    return {state.saves().begin(), state.saves().end()};
  }
  absl::StatusOr<v1::WaitSaveResponse> Wait(int64_t step, uint32_t attempt, uint64_t trainer = kTrainer) {
    v1::WaitSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.set_save(12345);  // of the agent before
    request.set_attempt(attempt);
    return session_.WaitSave(request);
  }
  absl::StatusOr<v1::BeginSaveResponse> Begin(int64_t step, int timeout = 60) {
    return BeginSave(kTrainer, step, timeout);
  }
  void Order(const std::vector<v1::SaveOrder>& orders = {}) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    response.set_revision(++revision_);
    for (const v1::SaveOrder& order : orders) *response.add_saves() = order;
    ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  }
  static v1::SaveOrder Answer(const v1::SaveState& asked, v1::SaveOrder::Action action) {
    v1::SaveOrder order;
    order.set_step(asked.step());
    order.set_attempt(asked.attempt());
    order.set_call(asked.call());
    order.set_action(action);
    return order;
  }
  void Fail(Reason reason) { session_.OnLinkFailed(MakeError(reason, "the link's words"), now_); }

  uint64_t revision_ = 0;
};

TEST_F(SessionAwayTest, UnknownSave_IsAskedForAndItsVerdictTold) {
  EXPECT_TRUE(HasReason(Wait(7, 0).status(), Reason::kNotCommitted)) << "nobody can say which attempt it was";
  const uint64_t version = session_.version();
  const auto pending = Wait(7, 2);
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_TRUE(pending->pending());
  EXPECT_EQ(pending->attempt(), 2u);
  EXPECT_GT(session_.version(), version) << "the coordinator is asked at once";
  ASSERT_EQ(State().saves_size(), 1);
  const v1::SaveState asked = State().saves(0);
  EXPECT_EQ(asked.phase(), v1::SaveState::ASKED);
  EXPECT_EQ(asked.attempt(), 2u);
  EXPECT_TRUE(Wait(7, 2)->pending());
  EXPECT_EQ(State().saves_size(), 1) << "asked once";

  v1::SaveOrder wait = Answer(asked, v1::SaveOrder::WAIT);
  *wait.mutable_stalled() = StatusToProto(MakeError(Reason::kStorageStalled, "storage hangs"));
  Order({wait});
  EXPECT_TRUE(HasReason(StatusFromProto(Wait(7, 2)->stalled()), Reason::kStorageStalled));
  v1::SaveOrder other = Answer(asked, v1::SaveOrder::ABORTED);
  other.set_attempt(1);
  Order({other});
  EXPECT_TRUE(Wait(7, 2)->pending()) << "of another attempt";
  v1::SaveOrder aborted = Answer(asked, v1::SaveOrder::ABORTED);
  *aborted.mutable_error() = StatusToProto(MakeError(Reason::kRankLost, "rank 3 was lost", {{"ranks", "3"}}));
  Order({aborted});
  EXPECT_EQ(State().saves_size(), 0) << "it need not be asked any more";
  const auto told = Wait(7, 2);
  ASSERT_TRUE(told.ok() && told->has_checkpoint());
  EXPECT_EQ(told->checkpoint().state(), v1::Checkpoint::ABORTED);
  EXPECT_EQ(told->checkpoint().attempt(), 2u);
  const absl::Status error = StatusFromProto(told->checkpoint().error());
  EXPECT_TRUE(HasReason(error, Reason::kRankLost));
  EXPECT_EQ(MetadataOf(error)["ranks"], "3");
}

TEST_F(SessionAwayTest, AskedSave_IsNoneOfTheTrainersSavesOfThatStep) {
  EXPECT_TRUE(Wait(7, 1)->pending());
  EXPECT_TRUE(Begin(7)->pending());
  v1::SaveState begun, asked;
  for (const v1::SaveState& save : Saves()) (save.phase() == v1::SaveState::ASKED ? asked : begun) = save;
  EXPECT_EQ(begun.phase(), v1::SaveState::BEGUN);
  ASSERT_NE(begun.call(), asked.call());
  Order({Answer(asked, v1::SaveOrder::COMMITTED), Answer(begun, v1::SaveOrder::WAIT)});
  EXPECT_EQ(Wait(7, 1)->checkpoint().state(), v1::Checkpoint::COMMITTED);
  EXPECT_TRUE(Begin(7)->pending()) << "this one has no verdict";
  EXPECT_FALSE(session_.HoldsStagedSaves());
}

TEST_F(SessionAwayTest, AskedSaves_EndWithTheirTrainerAndAreBounded) {
  for (uint32_t attempt = 1; attempt <= 1000; ++attempt) EXPECT_TRUE(Wait(7, attempt)->pending());
  EXPECT_LE(State().saves_size(), 64);
  std::vector<v1::SaveOrder> answers;
  for (const v1::SaveState& asked : Saves()) answers.push_back(Answer(asked, v1::SaveOrder::COMMITTED));
  Order(answers);
  // Verdicts that nobody fetches make room for others.
  EXPECT_TRUE(Wait(7, 1000)->pending());
  ASSERT_EQ(State().saves_size(), 1);
  EXPECT_EQ(State().saves(0).attempt(), 1000u);
  session_.OnTrainerGone(kTrainer, TrainerEnd::kEnded);
  EXPECT_EQ(State().saves_size(), 0);
}

TEST_F(SessionAwayTest, LinkTrouble_IsToldInEveryPendingAnswer) {
  EXPECT_FALSE(Begin(1)->has_stalled());
  Fail(Reason::kCoordinatorUnreachable);
  EXPECT_FALSE(Begin(1)->has_stalled()) << "it may have been a moment";
  now_ += absl::Seconds(12);
  Fail(Reason::kCoordinatorUnreachable);
  v1::PrepareRequest prepare;
  prepare.set_trainer_incarnation(kTrainer);
  prepare.mutable_layout()->set_digest(layout_->digest);
  v1::BeginLoadRequest load;
  load.set_trainer_incarnation(kTrainer);
  load.set_number(1);
  load.mutable_layout()->set_digest(layout_->digest);
  const auto all = [&] {
    return std::vector<google::rpc::Status>{Begin(1)->stalled(), session_.Prepare(prepare, now_)->stalled(),
                                            session_.BeginLoad(load)->stalled(), Wait(7, 1)->stalled()};
  };
  for (const auto& stalled : all()) {
    const absl::Status status = StatusFromProto(stalled);
    EXPECT_TRUE(HasReason(status, Reason::kCoordinatorUnreachable)) << status;
    EXPECT_NE(status.message().find("for 12s"), std::string::npos) << status;
    EXPECT_NE(status.message().find("the link's words"), std::string::npos) << status;
    EXPECT_EQ(MetadataOf(status)["rank"], "3");
  }
  Order();
  for (const auto& stalled : all()) EXPECT_EQ(stalled.code(), 0) << "orders have come";
}

TEST_F(SessionAwayTest, Refusal_IsToldAtOnceAndIsTheErrorOfASaveThatTimesOut) {
  EXPECT_TRUE(Begin(1, 2)->pending());
  Fail(Reason::kRootMismatch);
  EXPECT_TRUE(HasReason(StatusFromProto(Begin(1, 2)->stalled()), Reason::kRootMismatch));
  now_ += absl::Seconds(2);
  session_.OnTick(now_);
  const absl::Status error = Begin(1).status();
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  EXPECT_EQ(MetadataOf(error)["step"], "1");
}

TEST_F(SessionAwayTest, FailedSavesThatNobodyHearsOf_AreBounded) {
  Fail(Reason::kCoordinatorUnreachable);
  Fail(Reason::kCoordinatorUnreachable);
  absl::Status last;
  for (int64_t step = 1; step <= 200; ++step) {
    last = Begin(step, 1).status();
    now_ += absl::Seconds(1);
    session_.OnTick(now_);
    if (last.ok()) last = Begin(step, 1).status();
    ASSERT_TRUE(HasReason(last, Reason::kCoordinatorUnreachable)) << last;
  }
  EXPECT_LE(State().saves_size(), 16);
  // It comes back, and gives them their verdicts.
  std::vector<v1::SaveOrder> orders;
  for (const v1::SaveState& save : Saves()) orders.push_back(Answer(save, v1::SaveOrder::ABORTED));
  Order(orders);
  EXPECT_EQ(State().saves_size(), 0);
  EXPECT_TRUE(Begin(300)->pending());
}

}  // namespace
}  // namespace cairn
