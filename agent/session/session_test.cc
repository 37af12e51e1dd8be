#include "agent/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::Whole;

using SessionTest = ServedSession;

TEST_F(SessionTest, Answer_OfASmallerCoordinatorEpoch_IsRefused) {
  EXPECT_TRUE(Begin(7).ok());
  EXPECT_TRUE(Order(7, v1::Phase::STAGING, "p1", 1, absl::OkStatus(), 6).ok());
  EXPECT_TRUE(HasReason(Order(7, v1::Phase::ABORTED, "p1", 1, absl::OkStatus(), 5), Reason::kStaleEpoch));
  EXPECT_EQ(State().saves_size(), 1) << "nothing of it was obeyed";
  v1::RegisterAgentResponse registered;
  registered.set_coordinator_epoch(4);
  EXPECT_TRUE(HasReason(session_.OnRegistered(registered), Reason::kStaleEpoch));
}

TEST_F(SessionTest, Prepare_UntilThereIsAPlanOfItsLayout_WaitsAndThenMakesTheSlab) {
  v1::PrepareRequest request;
  request.set_trainer_incarnation(kTrainer);
  request.mutable_layout()->set_digest("unknown");
  EXPECT_TRUE(session_.Ask(request, now_)->need_layout());
  request.mutable_layout()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  EXPECT_EQ(State().trainer().layout_digest(), layout_->digest);
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.set_current_plan_digest("p1");
  response.add_wanted_layouts(layout_->digest);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::PutLayout>(actions[0]));
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  Serve();
  const auto prepared = session_.Ask(request, now_);
  ASSERT_TRUE(prepared.ok());
  EXPECT_FALSE(prepared->pending());
  EXPECT_GT(prepared->slab_bytes(), 0u);
  EXPECT_EQ(prepared->slab().bytes(), prepared->slab_bytes());
  EXPECT_NE(prepared->slab().descriptor_id(), 0u);
  EXPECT_FALSE(Begin(1)->pending()) << "the first save need not ask";

  *response.mutable_current_plan_error() = StatusToProto(MakeError(Reason::kShardGap, "a gap"));
  EXPECT_EQ(State().trainer().prepare_calls(), 0u) << "it waits in none";
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_TRUE(session_.Ask(request, now_)->pending()) << "an earlier call's error is not this one's, nor is its plan";
  EXPECT_EQ(State().trainer().prepare_calls(), 2u);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_TRUE(HasReason(session_.Ask(request, now_).status(), Reason::kShardGap));
  EXPECT_TRUE(session_.Ask(request, now_)->pending()) << "it was told, so this is the next call";
  EXPECT_EQ(State().trainer().prepare_calls(), 3u);
  response.clear_current_plan_error();
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_FALSE(session_.Ask(request, now_)->pending());
}

TEST_F(SessionTest, Prepare_RepeatedUnderItsNumber_IsOneCallUntilTheTrainerLeavesIt) {
  v1::PrepareRequest request;
  request.set_trainer_incarnation(kTrainer);
  request.set_number(7);
  request.mutable_layout()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  EXPECT_EQ(State().trainer().prepare_calls(), 7u);
  v1::PrepareRequest left;
  left.set_trainer_incarnation(kTrainer);
  left.set_end(true);
  left.set_number(6);
  EXPECT_TRUE(session_.Ask(left, now_).ok());
  EXPECT_EQ(State().trainer().prepare_calls(), 7u) << "it was another call";
  left.set_number(7);
  EXPECT_TRUE(session_.Ask(left, now_).ok());
  EXPECT_EQ(State().trainer().prepare_calls(), 0u);
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  *response.mutable_current_plan_error() = StatusToProto(MakeError(Reason::kShardGap, "a gap"));
  ASSERT_TRUE(session_.OnOrders(response).ok());
  request.set_number(8);
  EXPECT_TRUE(session_.Ask(request, now_)->pending()) << "what was said before is not said of this call";
  EXPECT_EQ(State().trainer().prepare_calls(), 8u);
}

// The answers to two calls overtake each other.
TEST_F(SessionTest, WantedLayout_InAnAnswerOlderThanItsUpload_IsNotUploadedAgain) {
  v1::SynchronizeAgentResponse wanted;
  wanted.set_coordinator_epoch(5);
  wanted.set_revision(8);
  wanted.add_wanted_layouts(layout_->digest);
  const auto uploads = [&] {
    EXPECT_TRUE(session_.OnOrders(wanted).ok());
    const auto actions = session_.TakeActions();
    return std::count_if(actions.begin(), actions.end(),
                         [](const auto& action) { return std::holds_alternative<action::PutLayout>(action); });
  };
  State();
  EXPECT_EQ(uploads(), 1);
  State();
  session_.OnLayoutPut(layout_->digest, absl::OkStatus());
  EXPECT_EQ(uploads(), 0) << "asked for before the upload ended";
  EXPECT_EQ(session_.BuildRequest(std::nullopt).known_revision(), 0u) << "it may be wanted all the same";
  EXPECT_EQ(uploads(), 1) << "asked for afterwards";
}

// The coordinator has no room for the layout: whoever waits for its plan hears why, and nobody uploads it without end.
TEST_F(SessionTest, OnLayoutPut_CoordinatorHasNoRoom_FailsTheCallsThatWaitForIt) {
  v1::SynchronizeAgentResponse wanted;
  wanted.set_coordinator_epoch(5);
  wanted.add_wanted_layouts(layout_->digest);
  const auto uploads = [&] {
    State();
    EXPECT_TRUE(session_.OnOrders(wanted).ok());
    const auto actions = session_.TakeActions();
    return std::count_if(actions.begin(), actions.end(),
                         [](const auto& action) { return std::holds_alternative<action::PutLayout>(action); });
  };
  const absl::Status full = MakeError(Reason::kMessageTooLarge, "the layouts in use of job demo take all",
                                      {{"next", "Give the tensors fewer names."}});
  ASSERT_TRUE(Begin(7)->pending());
  EXPECT_EQ(uploads(), 1);
  session_.OnLayoutPut(layout_->digest, full);
  const auto failed = Begin(7);
  EXPECT_TRUE(HasReason(failed.status(), Reason::kMessageTooLarge)) << failed.status();
  EXPECT_EQ(MetadataOf(failed.status())["next"], "Give the tensors fewer names.");
  EXPECT_EQ(MetadataOf(failed.status())["ranks"], "3");
  ASSERT_EQ(State().saves_size(), 1);
  EXPECT_EQ(State().saves(0).phase(), v1::Phase::FAILED) << "the others hear it as well";
  EXPECT_EQ(uploads(), 0) << "nobody has asked for it since";

  v1::PrepareRequest prepare;
  prepare.set_trainer_incarnation(kTrainer);
  prepare.mutable_layout()->set_digest(layout_->digest);
  EXPECT_TRUE(HasReason(session_.Ask(prepare, now_).status(), Reason::kMessageTooLarge));
  EXPECT_TRUE(session_.Ask(prepare, now_).ok()) << "it is tried again";
  EXPECT_EQ(uploads(), 1);
  session_.OnLayoutPut(layout_->digest, MakeError(Reason::kCoordinatorUnreachable, "no answer"));
  EXPECT_TRUE(session_.Ask(prepare, now_)->pending()) << "the coordinator asks again";
}

TEST_F(SessionTest, ArmOrders_WithAndWithoutATrainer_AreCarriedOutOnce) {
  const auto order = [&](uint64_t number, v1::ArmOrder::Action action) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    response.mutable_arm()->set_number(number);
    response.mutable_arm()->set_action(action);
    response.mutable_arm()->set_step(12);
    EXPECT_TRUE(session_.OnOrders(response).ok());
    return session_.TakeActions();
  };
  EXPECT_EQ(order(1, v1::ArmOrder::ARM).size(), 1u);
  EXPECT_EQ(order(1, v1::ArmOrder::ARM).size(), 0u) << "once";
  session_.OnControlPage(1, v1::ArmState::ARMED);
  EXPECT_EQ(State().arm().status(), v1::ArmState::ARMED);
  EXPECT_EQ(State().arm().step(), 12);
  EXPECT_EQ(order(1, v1::ArmOrder::AGREE).size(), 1u);
  session_.OnControlPage(1, v1::ArmState::AGREED);
  EXPECT_EQ(order(1, v1::ArmOrder::DISARM).size(), 1u);
  session_.OnControlPage(1, v1::ArmState::DISARMED);
  EXPECT_EQ(order(2, v1::ArmOrder::AGREE).size(), 0u) << "nothing is armed";
  session_.OnTrainerGone(kTrainer, TrainerEnd::kDetached);
  EXPECT_EQ(order(3, v1::ArmOrder::ARM).size(), 0u);
  EXPECT_EQ(State().arm().status(), v1::ArmState::REFUSED) << "no trainer";
}

using SessionMemoryTest = TrainersOfARank;

TEST_F(SessionMemoryTest, Lease_OnceTheCoordinatorHasSaidIt_IsKnown) {
  EXPECT_EQ(session_.lease_ttl(), absl::ZeroDuration());
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.mutable_lease_ttl()->set_seconds(3);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_EQ(session_.lease_ttl(), absl::Seconds(3));
}

TEST_F(SessionMemoryTest, Layouts_OfTenThousandLoads_LeaveNoneBehind) {
  session_.Attach(kFirst);
  Save(kFirst, 1);
  std::vector<std::weak_ptr<const RankLayout>> layouts;
  std::vector<std::weak_ptr<const v1::ReadPlan>> plans;
  for (int i = 1; i <= 10'000; ++i) {
    const RankLayoutPtr layout = MakeLayout({Whole("t" + std::to_string(i), DType::kFloat32, {8})}, {});
    layouts.push_back(layout);
    v1::BeginLoadRequest begin;
    begin.set_trainer_incarnation(kFirst);
    begin.set_number(static_cast<uint64_t>(i));
    begin.mutable_layout()->set_digest(layout->digest);
    ASSERT_TRUE(session_.Ask(begin, now_)->need_layout());
    session_.AddLayout(layout);
    const auto pending = session_.Ask(begin, now_);
    ASSERT_TRUE(pending.ok() && pending->pending() && !pending->need_layout()) << i;
    v1::ReadPlan plan;
    const std::string digest = "r" + std::to_string(i);
    plan.set_plan_digest(digest);
    plan.set_layout_digest(layout->digest);
    plan.set_read_bytes(32);
    session_.BuildRequest(std::nullopt);
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::LoadOrder& order = *response.add_loads();
    order.set_number(begin.number());
    order.set_plan_digest(digest);
    const bool fails = i % 3 == 0;
    order.set_phase(v1::Phase::READING);
    ASSERT_TRUE(session_.OnOrders(response).ok());
    session_.TakeActions();
    session_.OnPlan(digest, plan.SerializeAsString());
    for (const Action& action : session_.TakeActions()) {
      if (const auto* read = std::get_if<action::StartRead>(&action)) plans.push_back(read->plan);
    }
    ASSERT_EQ(plans.size(), layouts.size());
    session_.loads().OnProgress(begin.number(), {.bytes_done = 32, .io_path = v1::IO_PATH_CACHED, .all_read = true});
    v1::EndLoadRequest end;
    end.set_trainer_incarnation(kFirst);
    end.set_number(begin.number());
    if (!fails) {
      EXPECT_TRUE(session_.Ask(end, now_)->pending());
    }
    order.set_phase(fails ? v1::Phase::FAILED : v1::Phase::DONE);
    session_.BuildRequest(std::nullopt);
    ASSERT_TRUE(session_.OnOrders(response).ok());
    Serve();
    const auto ended = session_.Ask(end, now_);
    EXPECT_EQ(ended.ok(), !fails);
    if (!fails) {
      EXPECT_EQ(ended->bytes_read(), 32u);
    }
    if (i % 100 == 0) {  // what saves need stays
      Save(kFirst, i);
      ASSERT_TRUE(session_.KnowsLayout(layout_->digest));
    }
  }
  const auto alive = [](const auto& all) {
    return std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.expired(); });
  };
  EXPECT_LE(alive(layouts), 10);
  EXPECT_LE(alive(plans), 1);
  EXPECT_EQ(slabs_, 1u);
}

}  // namespace
}  // namespace cairn
