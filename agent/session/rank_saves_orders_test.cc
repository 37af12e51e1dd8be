// Tests what the coordinator orders of the saves, and what it is told of them.
#include <gtest/gtest.h>

#include "agent/session/rank_saves.h"
#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeMovingPlan;
using testing::Whole;

using RankSavesOrdersTest = ServedSession;

TEST_F(RankSavesOrdersTest, MovedShards_InASave_AreStagedAndLentAndWhoIsWaitedForIsTold) {
  // Rank 4 writes c for this rank (3), which writes m for rank 5.
  const testing::MovedInShard in = {5, 2, Whole("m", DType::kFloat32, {50})};
  plans_["p1"] = MakeMovingPlan(*layout_, 3, {{0, 1, 4}, {3}}, "p1", {in}, {{2, 4}}).SerializeAsString();
  EXPECT_TRUE(Begin(7)->pending());
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  Serve();
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->placements_size(), 4) << "a, b, o, and c, which another rank writes; nothing for m";
  ASSERT_TRUE(Commit(begun->save()).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  const auto& write = std::get<action::StartWrite>(actions[0]);
  ASSERT_EQ(write.target->moved_in.size(), 1u);
  EXPECT_EQ(write.target->ItemAt(4).name, "m");
  ASSERT_EQ(write.peers.size(), 1u) << "whom it takes from; rank 4 finds this one by itself";
  EXPECT_EQ(write.peers.at(5).incarnation(), 105u);
  EXPECT_EQ(write.target->moved_out.size(), 1u);
  EXPECT_NE(write.staged->slab_offset[2], SaveImage::kNotStaged);
  EXPECT_EQ(write.order.step(), 7);
  session_.saves().OnWriteProgress(begun->save(), 100, {5});
  ASSERT_EQ(Only().awaited_ranks_size(), 1);
  EXPECT_EQ(Only().awaited_ranks(0), 5u);
  session_.saves().OnWriteProgress(begun->save(), 200, {});
  EXPECT_EQ(Only().awaited_ranks_size(), 0);
  session_.saves().OnWriteEnded(begun->save(), Result());
  EXPECT_TRUE(Serve().empty()) << "others may still take its shards";
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  const auto after = Serve();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_EQ(std::get<action::EndLending>(after[0]).save, begun->save());
}

// The save takes a shard in, by a way that the coordinator may decide while it is written.
class ExchangedShardOrdersTest : public ServedSession {
 protected:
  ExchangedShardOrdersTest() {
    const testing::MovedInShard in = {5, 2, Whole("m", DType::kFloat32, {50})};
    plans_["p1"] = MakeMovingPlan(*layout_, 3, {{0, 1, 2, 4}, {3}}, "p1", {in}, {}).SerializeAsString();
  }
  // Orders to write; the shard goes that way.
  void OrderWrite(v1::Exchange::Way way, const std::string& reason = "") {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    response.set_revision(++revision_);
    v1::SaveOrder& write = *response.add_saves();
    write.set_step(7);
    write.set_phase(v1::Phase::WRITING);
    write.set_plan_digest("p1");
    write.set_attempt(1);
    write.set_attempt_nonce(nonce_);
    write.mutable_exchange()->set_way(way);
    write.mutable_exchange()->set_reason(reason);
    write.mutable_exchange()->add_ranks(2);
    write.mutable_exchange()->add_ranks(3);
    ASSERT_TRUE(session_.OnOrders(response).ok());
  }
};

TEST_F(ExchangedShardOrdersTest, Way_IsDecidedWhileItIsWritten_TellsTheWriterOnce) {
  EXPECT_TRUE(Begin(7)->pending());
  OrderWrite(v1::Exchange::UNDECIDED);
  Serve();
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok() && Commit(begun->save()).ok());
  auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  const auto& write = std::get<action::StartWrite>(actions[0]);
  EXPECT_EQ(write.order.exchange().way(), v1::Exchange::UNDECIDED);
  EXPECT_EQ(write.peers.size(), 2u) << "the one that it takes from, and the one that keeps the gate";
  OrderWrite(v1::Exchange::UNDECIDED);
  EXPECT_TRUE(Serve().empty());
  for (int again = 0; again < 2; ++again) {
    OrderWrite(v1::Exchange::GROUP);
    actions = Serve();
    ASSERT_EQ(actions.size(), again == 0 ? 1u : 0u);
    if (again == 0) {
      EXPECT_EQ(std::get<action::DecideMoves>(actions[0]).exchange.way(), v1::Exchange::GROUP);
    }
  }
  OrderWrite(v1::Exchange::HOST, "the group has broken");
  actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::DecideMoves>(actions[0]).save, begun->save());
  EXPECT_EQ(std::get<action::DecideMoves>(actions[0]).exchange.reason(), "the group has broken");
  OrderWrite(v1::Exchange::GROUP);
  EXPECT_TRUE(Serve().empty()) << "there is no way back";
}

TEST_F(ExchangedShardOrdersTest, Way_ACoordinatorThatWantsNoNcclFollows_IsTheHost) {
  EXPECT_TRUE(Begin(7)->pending());
  OrderWrite(v1::Exchange::UNDECIDED);
  Serve();
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok() && Commit(begun->save()).ok());
  Serve();
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::DecideMoves>(actions[0]).exchange.way(), v1::Exchange::HOST);
}

TEST_F(RankSavesOrdersTest, AnotherPlan_ThatMovesOutWhatWasNotStaged_IsLayoutChanged) {
  plans_["p2"] = MakeMovingPlan(*layout_, 3, {{0, 1}, {3}}, "p2", {}, {{2, 4}}).SerializeAsString();
  EXPECT_TRUE(Begin(7)->pending());
  ASSERT_TRUE(Order(7, v1::Phase::STAGING).ok());
  Serve();
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok() && Commit(begun->save()).ok());
  ASSERT_TRUE(Order(7, v1::Phase::WRITING, "p2").ok());
  Serve();
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kLayoutChanged));
}

TEST_F(RankSavesOrdersTest, AttemptsNonce_UntilAnotherIsNamed_IsKept) {
  const uint64_t save = StartWriting(7);
  session_.saves().OnWriteEnded(save, v1::WriteResult());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
  EXPECT_EQ(Only().attempt_nonce(), 11u);
  ASSERT_TRUE(Order(7, v1::Phase::WAITING).ok());  // of a coordinator that has just started
  EXPECT_EQ(Only().attempt_nonce(), 11u);
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
  nonce_ = 12;  // the same number below another root
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITING);
  EXPECT_EQ(Only().attempt_nonce(), 12u);
}

TEST_F(RankSavesOrdersTest, AnotherPlan_AfterStaging_IsWrittenFromTheSlab) {
  const uint64_t first = StartWriting(7);
  session_.saves().OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  const auto begun = Begin(8);
  ASSERT_TRUE(Commit(begun->save()).ok());
  ASSERT_TRUE(Order(8, v1::Phase::WRITING, "p2").ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  const auto& write = std::get<action::StartWrite>(actions[0]);
  EXPECT_EQ(write.staged->plan_digest, "p1");
  EXPECT_EQ(write.target->plan_digest, "p2");
}

TEST_F(RankSavesOrdersTest, AnotherPlan_ThatNeedsWhatWasNotStaged_IsLayoutChanged) {
  const uint64_t first = StartWriting(7);
  session_.saves().OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  const auto begun = Begin(8);
  ASSERT_TRUE(Order(8, v1::Phase::STAGING, "p3").ok());
  EXPECT_TRUE(Serve().empty());
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  const absl::Status told = Commit(begun->save());
  EXPECT_TRUE(HasReason(told, Reason::kLayoutChanged)) << told;
  EXPECT_EQ(MetadataOf(told)["tensor"], "c");
  ASSERT_TRUE(Order(8, v1::Phase::ABORTED, "p3", 1, told).ok());
  EXPECT_EQ(Begin(9)->placements_size(), 4) << "the next save follows the new plan, unasked";
  EXPECT_EQ(Only().plan_digest(), "p3");
}

TEST_F(RankSavesOrdersTest, SaveInFlight_AfterTheCoordinatorsRestart_GoesOn) {
  const uint64_t save = StartWriting(7);
  session_.OnUnregistered();
  EXPECT_FALSE(session_.registered());
  session_.saves().OnWriteEnded(save, Result());
  v1::RegisterAgentResponse registered;
  registered.set_coordinator_epoch(6);
  ASSERT_TRUE(session_.OnRegistered(registered).ok());
  EXPECT_EQ(session_.Identity().coordinator_epoch(), 6u);
  EXPECT_EQ(session_.BuildRequest(std::nullopt).known_revision(), 0u);
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
  ASSERT_TRUE(Order(7, v1::Phase::WRITING, "p1", 1, absl::OkStatus(), 6).ok());
  EXPECT_TRUE(Serve().empty()) << "it is written already";
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED, "p1", 1, absl::OkStatus(), 6).ok());
  EXPECT_EQ(Wait(7, save)->checkpoint().state(), v1::Phase::COMMITTED);
}

TEST_F(RankSavesOrdersTest, RankThatWaitedInVain_WhenTheCoordinatorKnows_IsToldForWhom) {
  ASSERT_TRUE(Begin(7)->pending());
  State();
  now_ += absl::Seconds(60);
  session_.OnTick(now_);
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_FALSE(MetadataOf(StatusFromProto(Only().error())).contains("ranks")) << "it does not know who is late";
  ASSERT_TRUE(Begin(7)->pending()) << "the coordinator knows";
  const absl::Status why = MakeError(Reason::kRankLate, "rank 5 held up the others", {{"ranks", "5"}});
  ASSERT_TRUE(Order(7, v1::Phase::ABORTING, "", 0, why).ok());
  EXPECT_EQ(Begin(7).status(), why);
}

TEST_F(RankSavesOrdersTest, RankThatWaitedInVain_WithoutTheCoordinatorsWord_FailsByItself) {
  ASSERT_TRUE(Begin(7)->pending());
  now_ += absl::Seconds(60);
  session_.OnTick(now_);
  now_ += absl::Seconds(3);
  const absl::Status told = Begin(7).status();
  EXPECT_TRUE(HasReason(told, Reason::kRankLate)) << told;
  EXPECT_NE(told.message().find("rank 3 waited for other ranks"), std::string::npos) << told;
}

TEST_F(RankSavesOrdersTest, Abort_WhileAWriterRuns_StopsItAndThenSaysStopped) {
  const uint64_t save = StartWriting(7);
  const absl::Status why = MakeError(Reason::kRankLate, "rank 5 is late", {{"ranks", "5"}});
  ASSERT_TRUE(Order(7, v1::Phase::ABORTING, "p1", 1, why).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StopWrite>(actions[0]));
  EXPECT_EQ(Only().phase(), v1::Phase::WRITING) << "a file is still open";
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_EQ(Only().phase(), v1::Phase::STOPPED);
  ASSERT_TRUE(Order(7, v1::Phase::ABORTED, "p1", 1, why).ok());
  const auto checkpoint = Wait(7, save)->checkpoint();
  EXPECT_EQ(checkpoint.state(), v1::Phase::ABORTED);
  EXPECT_TRUE(HasReason(StatusFromProto(checkpoint.error()), Reason::kRankLate));
  // The next call of the step is a new one.
  EXPECT_FALSE(Begin(7)->pending());
  EXPECT_EQ(Only().call(), 2u);
}

TEST_F(RankSavesOrdersTest, WriteFails_ForWantOfAnotherRanksShards_NamesTheOtherRank) {
  const uint64_t save = StartWriting(7);
  session_.saves().OnWriteEnded(save, MakeError(Reason::kTransportFailed, "from rank 5", {{"source_rank", "5"}}));
  const absl::Status told = StatusFromProto(Only().error());
  EXPECT_TRUE(HasReason(told, Reason::kTransportFailed)) << told;
  EXPECT_EQ(MetadataOf(told)["ranks"], "5");
  EXPECT_EQ(MetadataOf(told)["rank"], "3") << "who says so";
}

TEST_F(RankSavesOrdersTest, WriteFails_ByItself_NamesThisRank) {
  const uint64_t save = StartWriting(7);
  session_.saves().OnWriteEnded(save, MakeError(Reason::kNoSpace, "the disk is full"));
  EXPECT_EQ(MetadataOf(StatusFromProto(Only().error()))["ranks"], "3");
}

TEST_F(RankSavesOrdersTest, AbortOfAnUnknownAttempt_UntilItIsForgotten_IsAnsweredStopped) {
  ASSERT_TRUE(Order(7, v1::Phase::ABORTING, "p1", 4).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::STOPPED);
  EXPECT_EQ(Only().attempt(), 4u);
  ASSERT_TRUE(Order(8, v1::Phase::WAITING).ok());
  EXPECT_EQ(State().saves_size(), 0);
}

TEST_F(RankSavesOrdersTest, Outcome_OfAnEarlierCall_LeavesTheNewOneAlone) {
  EXPECT_TRUE(Begin(7).ok());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_phase(v1::Phase::ABORTED);
  order->set_call(9);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_EQ(State().saves_size(), 1);
}

TEST_F(RankSavesOrdersTest, Orders_ForAStateBeforeTheSaveBegan_DoNotTouchIt) {
  State();
  EXPECT_TRUE(Begin(7).ok());
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_phase(v1::Phase::ABORTED);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_EQ(State().saves_size(), 1);
}

}  // namespace
}  // namespace cairn
