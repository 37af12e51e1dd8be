// Loads and reshards, through the session that they are part of.
#include "agent/session/rank_loads.h"

#include <gtest/gtest.h>

#include <vector>

#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::Whole;

// The trainer's load has the number 1, and its plan the digest "r1".
class RankLoadsTest : public ServedSession {
 protected:
  void AddReadPlan(const RankLayout& target, uint64_t read_bytes) {
    v1::ReadPlan plan;
    plan.set_plan_digest("r1");
    plan.set_layout_digest(target.digest);
    plan.set_rank(3);
    plan.set_read_bytes(read_bytes);
    plans_["r1"] = plan.SerializeAsString();
  }
  static v1::BeginLoadRequest BeginOf(const RankLayout& target) {
    v1::BeginLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(1);
    request.mutable_layout()->set_digest(target.digest);
    return request;
  }
  static v1::EndLoadRequest End() {
    v1::EndLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(1);
    return request;
  }
  static v1::LoadOrder OrderOf(v1::Phase::Value action) {
    v1::LoadOrder order;
    order.set_number(1);
    order.set_phase(action);
    order.set_plan_digest("r1");
    return order;
  }
  // Gives the order as an answer to the session's state as it is now. Returns what a shell has to do besides.
  std::vector<Action> OrderLoad(const v1::LoadOrder& order) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    *response.add_loads() = order;
    EXPECT_TRUE(session_.OnOrders(response).ok());
    return Serve();
  }
};

TEST_F(RankLoadsTest, Load_OrderedStepByStep_GoesThroughItsPhases) {
  AddReadPlan(*layout_, 10);
  const v1::BeginLoadRequest begin = BeginOf(*layout_);
  EXPECT_TRUE(session_.Ask(begin, now_)->pending());
  v1::LoadOrder others = OrderOf(v1::Phase::FAILED);
  others.set_trainer_incarnation(12345);
  EXPECT_TRUE(OrderLoad(others).empty()) << "that is another trainer's";
  v1::LoadOrder read = OrderOf(v1::Phase::READING);
  read.set_step(4);
  auto actions = OrderLoad(read);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StartRead>(actions[0]));
  EXPECT_EQ(session_.Ask(begin, now_)->step(), 4);
  EXPECT_TRUE(session_.Ask(End(), now_)->pending());
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::READING) << "others may still need what it reads";
  session_.loads().OnProgress(1,
                              {.bytes_done = 10, .storage_bytes = 12, .io_path = v1::IO_PATH_DIRECT, .all_read = true});
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::DONE);
  v1::LoadOrder done = OrderOf(v1::Phase::DONE);
  done.set_step(4);
  actions = OrderLoad(done);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StopRead>(actions[0]));
  EXPECT_EQ(session_.Ask(End(), now_)->bytes_read(), 10u);
  EXPECT_EQ(State().loads_size(), 0);
}

TEST_F(RankLoadsTest, Load_ItsExchangeIsUndecided_ReadsOnlyWhenTheShellHasSaidWhetherThereIsRoom) {
  AddReadPlan(*layout_, 10);
  const v1::BeginLoadRequest begin = BeginOf(*layout_);
  EXPECT_TRUE(session_.Ask(begin, now_)->pending());
  v1::LoadOrder order = OrderOf(v1::Phase::READING);
  order.mutable_exchange()->set_way(v1::Exchange::UNDECIDED);
  ASSERT_EQ(OrderLoad(order).size(), 1u);
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::PLANNING) << "else the others may begin with NCCL";
  EXPECT_TRUE(OrderLoad(order).empty()) << "it has been started already";
  EXPECT_TRUE(session_.Ask(End(), now_)->pending());
  session_.loads().OnProgress(1, {.bytes_done = 10, .all_read = true});
  session_.loads().OnStarted(1, {.exchange_refusal = "no room"});
  EXPECT_EQ(State().loads(0).exchange_refusal(), "no room");
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::DONE) << "all that it waited for had come before";
  const uint64_t version = session_.version();
  session_.loads().OnStarted(1, {.exchange_refusal = "late"});
  EXPECT_EQ(session_.version(), version) << "it is known already";
}

TEST_F(RankLoadsTest, Load_ItsExchangeIsDecidedBeforeTheShellHasBegun_IsCarriedOutAllTheSame) {
  AddReadPlan(*layout_, 10);
  EXPECT_TRUE(session_.Ask(BeginOf(*layout_), now_)->pending());
  v1::LoadOrder order = OrderOf(v1::Phase::READING);
  order.mutable_exchange()->set_way(v1::Exchange::UNDECIDED);
  ASSERT_EQ(OrderLoad(order).size(), 1u);
  order.mutable_exchange()->set_way(v1::Exchange::HOST);
  order.mutable_exchange()->set_reason("the coordinator has restarted");
  const auto actions = OrderLoad(order);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::DecideExchange>(actions[0]).exchange.reason(), "the coordinator has restarted");
}

TEST_F(RankLoadsTest, FailedLoad_AfterTheOrder_IsStopped) {
  AddReadPlan(*layout_, 0);
  const v1::BeginLoadRequest begin = BeginOf(*layout_);
  EXPECT_TRUE(session_.Ask(begin, now_)->pending());
  OrderLoad(OrderOf(v1::Phase::READING));
  session_.loads().OnFailed(1, MakeError(Reason::kChecksumMismatch, "flipped"));
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::FAILED);
  v1::ReceiveLoadRequest receive;
  receive.set_trainer_incarnation(kTrainer);
  receive.set_number(1);
  EXPECT_TRUE(HasReason(session_.Ask(receive, now_).status(), Reason::kChecksumMismatch));
  EXPECT_EQ(OrderLoad(OrderOf(v1::Phase::ABORTING)).size(), 1u);
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::FAILED) << "its buffers are still held";
  session_.loads().OnStopped(1);
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::STOPPED);
  OrderLoad(OrderOf(v1::Phase::FAILED));
  EXPECT_EQ(State().loads_size(), 0);
  EXPECT_TRUE(HasReason(session_.Ask(begin, now_).status(), Reason::kChecksumMismatch));
}

TEST_F(RankLoadsTest, Reshard_OrderedStepByStep_LendsItsSourceAndEndsWhenAllIsTaken) {
  const RankLayoutPtr target = MakeLayout({Whole("a", DType::kFloat32, {100})}, {});
  session_.AddLayout(target);
  v1::BeginLoadRequest request = BeginOf(*target);
  request.mutable_source()->set_digest("unknown");
  EXPECT_TRUE(session_.Ask(request, now_)->need_source());
  request.mutable_source()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  ASSERT_EQ(State().loads_size(), 1);
  EXPECT_EQ(State().loads(0).source_layout_digest(), layout_->digest);
  AddReadPlan(*target, 400);
  v1::LoadOrder order = OrderOf(v1::Phase::READING);
  order.set_source_plan_digest("p1");
  auto actions = OrderLoad(order);
  ASSERT_EQ(actions.size(), 1u);
  ASSERT_NE(std::get<action::StartRead>(actions[0]).source, nullptr);
  EXPECT_TRUE(session_.Ask(request, now_)->pending()) << "no memory yet";
  v1::CommitSourceRequest commit;
  commit.set_trainer_incarnation(trainer_);
  commit.set_number(1);
  EXPECT_TRUE(HasReason(session_.Ask(commit, now_), Reason::kBadRequest));
  session_.loads().OnStarted(1, {.source = SlabDescription{77, 8192}});
  const auto begun = session_.Ask(request, now_);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->source_memory().descriptor_id(), 77u);
  EXPECT_EQ(begun->source_placements_size(), 3) << "what the plan p1 has this rank lend";
  EXPECT_FALSE(State().loads(0).source_staged());
  ASSERT_TRUE(session_.Ask(commit, now_).ok());
  ASSERT_TRUE(session_.Ask(commit, now_).ok()) << "idempotent";
  actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::LendSource>(actions[0]).number, 1u);
  EXPECT_TRUE(State().loads(0).source_staged());
  session_.loads().OnProgress(1, {0, 0, v1::IO_PATH_MEMORY, true});
  EXPECT_TRUE(session_.Ask(End(), now_)->pending());
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::DONE);
  order.set_phase(v1::Phase::DONE);
  order.set_unique_bytes(400);
  order.set_io_path(v1::IO_PATH_MEMORY);
  OrderLoad(order);
  const auto ended = session_.Ask(End(), now_);
  ASSERT_TRUE(ended.ok() && !ended->pending());
  EXPECT_EQ(ended->bytes_read(), 0u) << "nothing came from storage";
  EXPECT_EQ(ended->unique_bytes(), 400u);
  EXPECT_EQ(ended->io_path(), v1::IO_PATH_MEMORY);
}

class GivenUpLoadTest : public SessionFixture {
 protected:
  GivenUpLoadTest() : SessionFixture(testing::MakeLayout({testing::Whole("a", DType::kFloat32, {100})}, {})) {}

  absl::StatusOr<v1::BeginLoadResponse> Begin(uint64_t number) {
    v1::BeginLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(number);
    request.mutable_layout()->set_digest(layout_->digest);
    return session_.Ask(request, now_);
  }
  absl::StatusOr<v1::EndLoadResponse> GiveUp(uint64_t number) {
    v1::EndLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(number);
    *request.mutable_error() = StatusToProto(MakeError(Reason::kTimedOut, "no plan within 1 s"));
    return session_.Ask(request, now_);
  }
  void Order(uint64_t number, v1::Phase::Value action, const absl::Status& error = absl::OkStatus()) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::LoadOrder& order = *response.add_loads();
    order.set_number(number);
    order.set_trainer_incarnation(kTrainer);
    order.set_phase(action);
    if (!error.ok()) *order.mutable_error() = StatusToProto(error);
    EXPECT_TRUE(session_.OnOrders(response).ok());
  }
};

TEST_F(GivenUpLoadTest, Load_GivenUpBeforeItsPlan_IsToldToTheCoordinatorWhoseWordTheTrainerGets) {
  EXPECT_TRUE(Begin(1)->pending());
  const uint64_t version = session_.version();
  EXPECT_TRUE(GiveUp(1)->pending());
  EXPECT_NE(session_.version(), version) << "the coordinator hears of it at once";
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(State().loads(0).error()), Reason::kTimedOut));
  EXPECT_TRUE(HasReason(Begin(1).status(), Reason::kTimedOut));
  const uint64_t told = session_.version();
  EXPECT_TRUE(GiveUp(1)->pending());
  EXPECT_EQ(session_.version(), told) << "asked again, nothing is new";
  Order(1, v1::Phase::FAILED, MakeError(Reason::kRankLate, "rank 1 held up the others", {{"ranks", "1"}}));
  EXPECT_TRUE(HasReason(GiveUp(1).status(), Reason::kRankLate));
  EXPECT_EQ(State().loads_size(), 0);
}

TEST_F(GivenUpLoadTest, NextCall_AfterOneGivenUpWithoutAWord_EndsItAndOlderOnesCannotCome) {
  EXPECT_TRUE(Begin(1)->pending());
  EXPECT_TRUE(Begin(3)->pending());
  const v1::AgentState state = State();
  ASSERT_EQ(state.loads_size(), 2);
  EXPECT_EQ(state.loads(0).phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(state.loads(0).error()), Reason::kInterrupted));
  EXPECT_EQ(state.loads(1).phase(), v1::Phase::PLANNING);
  const absl::Status late = Begin(2).status();
  EXPECT_TRUE(HasReason(late, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(late)["job"], "demo");
  EXPECT_EQ(MetadataOf(late)["rank"], "3");
}

TEST_F(GivenUpLoadTest, Loads_GivenUpWhileTheCoordinatorIsAway_AreBounded) {
  for (uint64_t number = 1; number <= 1000; ++number) {
    EXPECT_TRUE(Begin(number)->pending());
    EXPECT_TRUE(GiveUp(number)->pending());
    ASSERT_LE(State().loads_size(), 16);
  }
  EXPECT_TRUE(Begin(1001)->pending());
  const v1::AgentState state = State();
  EXPECT_EQ(state.loads(state.loads_size() - 1).number(), 1001u);
}

TEST_F(RankLoadsTest, Load_ToBeVerified_TellsWhatItHoldsUntilItEnds) {
  AddReadPlan(*layout_, 10);
  v1::BeginLoadRequest begin = BeginOf(*layout_);
  begin.set_verify_fingerprints(true);
  EXPECT_TRUE(session_.Ask(begin, now_)->pending());
  EXPECT_TRUE(State().loads(0).verify_fingerprints());
  v1::LoadOrder read = OrderOf(v1::Phase::READING);
  read.set_mirror("s3://copies/demo");
  OrderLoad(read);
  EXPECT_EQ(session_.Ask(begin, now_)->mirror(), "s3://copies/demo");
  v1::EndLoadRequest end = End();
  end.add_fingerprint_parts(11);
  end.add_fingerprint_parts(12);
  EXPECT_TRUE(session_.Ask(end, now_)->pending());
  EXPECT_EQ(State().loads(0).fingerprint_parts_size(), 0) << "it is not done before all is read";
  session_.loads().OnProgress(1, {.bytes_done = 10, .all_read = true});
  end.clear_fingerprint_parts();  // it asks again
  EXPECT_TRUE(session_.Ask(end, now_)->pending());
  const v1::LoadState done = State().loads(0);
  EXPECT_EQ(done.phase(), v1::Phase::DONE);
  EXPECT_EQ(std::vector<uint64_t>(done.fingerprint_parts().begin(), done.fingerprint_parts().end()),
            (std::vector<uint64_t>{11, 12}));
  v1::LoadOrder over = OrderOf(v1::Phase::DONE);
  over.set_verified_tensors(3);
  OrderLoad(over);
  EXPECT_EQ(session_.Ask(end, now_)->verified_tensors(), 3);
}

}  // namespace
}  // namespace cairn
