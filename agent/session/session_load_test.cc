// Loads that a trainer gives up.
#include <gtest/gtest.h>

#include <string>

#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

class SessionLoadTest : public SessionFixture {
 protected:
  SessionLoadTest() : SessionFixture(testing::MakeLayout({testing::Whole("a", DType::kFloat32, {100})}, {})) {}

  absl::StatusOr<v1::BeginLoadResponse> Begin(uint64_t number) {
    v1::BeginLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(number);
    request.mutable_layout()->set_digest(layout_->digest);
    return session_.BeginLoad(request);
  }
  absl::StatusOr<v1::EndLoadResponse> GiveUp(uint64_t number) {
    v1::EndLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(number);
    *request.mutable_error() = StatusToProto(MakeError(Reason::kTimedOut, "no plan within 1 s"));
    return session_.EndLoad(request);
  }
  void Order(uint64_t number, v1::LoadOrder::Action action, const absl::Status& error = absl::OkStatus()) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::LoadOrder& order = *response.add_loads();
    order.set_number(number);
    order.set_trainer_incarnation(kTrainer);
    order.set_action(action);
    if (!error.ok()) *order.mutable_error() = StatusToProto(error);
    EXPECT_TRUE(session_.OnOrders(response, absl::UnixEpoch()).ok());
  }
};

TEST_F(SessionLoadTest, GivenUpBeforeItsPlan_IsToldToTheCoordinator_WhoseWordTheTrainerGets) {
  EXPECT_TRUE(Begin(1)->pending());
  const uint64_t version = session_.version();
  EXPECT_TRUE(GiveUp(1)->pending());
  EXPECT_NE(session_.version(), version) << "the coordinator hears of it at once";
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(State().loads(0).error()), Reason::kTimedOut));
  EXPECT_TRUE(HasReason(Begin(1).status(), Reason::kTimedOut));
  const uint64_t told = session_.version();
  EXPECT_TRUE(GiveUp(1)->pending());
  EXPECT_EQ(session_.version(), told) << "asked again, nothing is new";
  Order(1, v1::LoadOrder::FAILED, MakeError(Reason::kRankLate, "rank 1 held up the others", {{"ranks", "1"}}));
  EXPECT_TRUE(HasReason(GiveUp(1).status(), Reason::kRankLate));
  EXPECT_EQ(State().loads_size(), 0);
}

TEST_F(SessionLoadTest, NextCall_EndsOneThatWasGivenUpWithoutAWord_AndOlderOnesCannotComeAfterIt) {
  EXPECT_TRUE(Begin(1)->pending());
  EXPECT_TRUE(Begin(3)->pending());
  const v1::AgentState state = State();
  ASSERT_EQ(state.loads_size(), 2);
  EXPECT_EQ(state.loads(0).phase(), v1::LoadState::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(state.loads(0).error()), Reason::kInterrupted));
  EXPECT_EQ(state.loads(1).phase(), v1::LoadState::BEGUN);
  const absl::Status late = Begin(2).status();
  EXPECT_TRUE(HasReason(late, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(late)["job"], "demo");
  EXPECT_EQ(MetadataOf(late)["rank"], "3");
}

TEST_F(SessionLoadTest, CallsGivenUpWhileTheCoordinatorIsAway_AreBounded) {
  for (uint64_t number = 1; number <= 1000; ++number) {
    EXPECT_TRUE(Begin(number)->pending());
    EXPECT_TRUE(GiveUp(number)->pending());
    ASSERT_LE(State().loads_size(), 16);
  }
  EXPECT_TRUE(Begin(1001)->pending());
  const v1::AgentState state = State();
  EXPECT_EQ(state.loads(state.loads_size() - 1).number(), 1001u);
}

}  // namespace
}  // namespace cairn
