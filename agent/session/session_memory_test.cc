// What a session lets be written where, and what it keeps how long.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "agent/session/session.h"
#include "agent/testing/layouts.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeMovingPlan;
using testing::MakeWritePlan;
using testing::Whole;

constexpr uint64_t kFirst = 71;
constexpr uint64_t kSecond = 72;
constexpr uint64_t kThird = 73;

// A session whose shell does at once what it is asked for.
class SessionMemoryTest : public ::testing::Test {
 protected:
  SessionMemoryTest() : session_({.job = "demo", .rank = 0, .world_size = 2, .incarnation = 9}) {
    v1::RegisterAgentResponse registered;
    registered.set_coordinator_epoch(5);
    EXPECT_TRUE(session_.OnRegistered(registered).ok());
    session_.AddLayout(layout_);
  }

  absl::StatusOr<v1::BeginSaveResponse> Begin(uint64_t trainer, int64_t step, int timeout = 60) {
    v1::BeginSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.mutable_layout()->set_digest(layout_->digest);
    request.mutable_timeout()->set_seconds(timeout);
    return session_.BeginSave(request, now_);
  }
  absl::Status Commit(uint64_t trainer, uint64_t save) {
    v1::CommitStagingRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_save(save);
    return session_.CommitStaging(request, now_);
  }
  absl::Status Cancel(uint64_t trainer, uint64_t save) {
    v1::CancelSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_save(save);
    return session_.CancelSave(request, now_);
  }
  absl::StatusOr<v1::WaitSaveResponse> Wait(uint64_t trainer, int64_t step, uint64_t save = 0) {
    v1::WaitSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.set_save(save);
    return session_.WaitSave(request);
  }
  // An answer to the session's state as it is now.
  void Order(int64_t step, v1::SaveOrder::Action action, const absl::Status& error = absl::OkStatus()) {
    session_.BuildRequest(std::nullopt);
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::SaveOrder& order = *response.add_saves();
    order.set_step(step);
    order.set_action(action);
    order.set_plan_digest(plan_);
    order.set_attempt(1);
    order.set_directory("demo/dir");
    if (!error.ok()) *order.mutable_error() = StatusToProto(error);
    EXPECT_TRUE(session_.OnOrders(response, now_).ok());
    Serve();
  }
  void Serve() {
    for (std::vector<Action> actions = session_.TakeActions(); !actions.empty(); actions = session_.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* get = std::get_if<action::GetPlan>(&action); get != nullptr && plans_.contains(get->digest)) {
          session_.OnPlan(get->digest, plans_.at(get->digest), now_);
        } else if (const auto* slab = std::get_if<action::MakeSlab>(&action); slab != nullptr && serve_slabs_) {
          session_.OnSlab(SlabDescription{++slabs_, slab->bytes}, now_);
        } else if (const auto* write = std::get_if<action::StartWrite>(&action); write != nullptr) {
          v1::WriteResult result;
          result.add_files()->set_file_bytes(1);
          session_.OnWriteEnded(write->save, result);
        } else if (const auto* stop = std::get_if<action::StopRead>(&action); stop != nullptr) {
          session_.OnReadStopped(stop->number);
        }
      }
    }
  }

  // Begins a save and waits for its slab, as a trainer that has just attached or goes on.
  v1::BeginSaveResponse Stage(uint64_t trainer, int64_t step) {
    session_.Attach(trainer);
    EXPECT_TRUE(Begin(trainer, step).ok());
    Order(step, v1::SaveOrder::STAGE);
    const auto begun = Begin(trainer, step);
    EXPECT_TRUE(begun.ok() && !begun->pending()) << begun.status();
    return begun.ok() ? *begun : v1::BeginSaveResponse();
  }
  uint64_t SlabOf(uint64_t trainer, int64_t step) { return Stage(trainer, step).slab().descriptor_id(); }
  // A save from its beginning to its verdict; the number of its slab.
  uint64_t Save(uint64_t trainer, int64_t step) {
    const auto begun = Stage(trainer, step);
    EXPECT_TRUE(Commit(trainer, begun.save()).ok());
    Order(step, v1::SaveOrder::WRITE);
    Order(step, v1::SaveOrder::COMMITTED);
    return begun.slab().descriptor_id();
  }
  // What the rest of the job decides about a save that this rank's trainer has left.
  void Abort(int64_t step) { Order(step, v1::SaveOrder::ABORTED, MakeError(Reason::kTrainerLost, "lost")); }

  const RankLayoutPtr layout_ =
      MakeLayout({Whole("a", DType::kFloat32, {100}), Whole("b", DType::kFloat32, {200})}, {});
  std::map<std::string, std::string> plans_ = {
      {"p", MakeWritePlan(*layout_, 0, {{0, 1}}, "p").SerializeAsString()},
      {"lending", MakeMovingPlan(*layout_, 0, {{0}}, "lending", {}, {{1, 1}}).SerializeAsString()},
      {"nothing", MakeWritePlan(*layout_, 0, {}, "nothing").SerializeAsString()}};
  std::string plan_ = "p";
  absl::Time now_ = absl::UnixEpoch();
  uint64_t slabs_ = 0;
  bool serve_slabs_ = true;
  Session session_;
};

TEST_F(SessionMemoryTest, ATrainer_UsesItsSlabAgain_AlsoAfterACopyThatCameToNothing) {
  EXPECT_EQ(Save(kFirst, 1), 1u);
  const auto cancelled = Stage(kFirst, 2);
  EXPECT_EQ(cancelled.slab().descriptor_id(), 1u);
  ASSERT_TRUE(Cancel(kFirst, cancelled.save()).ok());
  Abort(2);
  const auto late = Stage(kFirst, 3);
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  EXPECT_TRUE(HasReason(Commit(kFirst, late.save()), Reason::kRankLate));
  Abort(3);
  EXPECT_EQ(Save(kFirst, 4), 1u);
}

TEST_F(SessionMemoryTest, ASlabThatAnotherTrainerMayWrite_IsGivenToNobodyElse) {
  // However its saves ended: staged and committed, late, still staging.
  EXPECT_EQ(Save(kFirst, 1), 1u);
  EXPECT_EQ(Save(kSecond, 2), 2u) << "the first lives";
  const auto late = Stage(kSecond, 3);
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  Abort(3);
  EXPECT_EQ(SlabOf(kFirst, 4), 3u) << "the second has not even copied yet";
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  Abort(4);
  EXPECT_EQ(SlabOf(kSecond, 5), 4u) << "the first did not say that it has unmapped it";
  EXPECT_FALSE(Commit(kSecond, late.save()).ok());
}

TEST_F(SessionMemoryTest, ASlabIsFree_WhenItsWriterHasUnmappedItOrIsDead) {
  EXPECT_EQ(Save(kFirst, 1), 1u);
  session_.OnTrainerGone(kFirst, TrainerEnd::kUnmapped);
  EXPECT_EQ(SlabOf(kSecond, 2), 1u);
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  Abort(2);
  EXPECT_EQ(SlabOf(kFirst, 3), 1u) << "killed while it copied, and known to have ended";
}

TEST_F(SessionMemoryTest, AWriterThatWasReplaced_FreesItsSlabByItsLaterEnd) {
  EXPECT_EQ(Save(kFirst, 1), 1u);
  session_.Attach(kSecond);
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  EXPECT_TRUE(session_.attached_trainer() == kSecond);
  EXPECT_EQ(SlabOf(kSecond, 2), 1u);
}

TEST_F(SessionMemoryTest, ATrainerThatCopiesNothing_GetsNoSlab_SoItsSuccessorMayHaveIt) {
  plan_ = "nothing";
  int64_t step = 0;
  for (uint64_t trainer : {kFirst, kSecond}) {
    const auto begun = Stage(trainer, ++step);
    EXPECT_FALSE(begun.has_slab());
    ASSERT_TRUE(Commit(trainer, begun.save()).ok());
    Order(step, v1::SaveOrder::WRITE);
    Order(step, v1::SaveOrder::COMMITTED);
  }
  EXPECT_EQ(slabs_, 1u);
}

TEST_F(SessionMemoryTest, ASlabThatWasLent_IsWrittenAgainOnlyByWhoHasItMapped) {
  plan_ = "lending";
  EXPECT_EQ(Save(kFirst, 1), 1u);
  EXPECT_EQ(Save(kFirst, 2), 1u);
  session_.OnTrainerGone(kFirst, TrainerEnd::kUnmapped);
  EXPECT_EQ(Save(kSecond, 3), 2u) << "nobody can map the first one to write any more";
  session_.OnTrainerGone(kSecond, TrainerEnd::kDetached);
  EXPECT_EQ(Save(kSecond, 4), 3u) << "it came back, perhaps without its mapping";
  const auto begun = Stage(kSecond, 5);
  EXPECT_EQ(begun.slab().descriptor_id(), 3u);
  ASSERT_TRUE(Cancel(kSecond, begun.save()).ok());
  Abort(5);
  EXPECT_EQ(SlabOf(kSecond, 6), 4u) << "it gave up, perhaps for want of the mapping";
}

TEST_F(SessionMemoryTest, AVerdict_IsToldToWhomItConcerns) {
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  session_.Attach(kSecond);
  EXPECT_TRUE(Begin(kSecond, 1)->pending()) << "until the first one's call has its verdict";
  Abort(1);
  const auto begun = Begin(kSecond, 1);
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_TRUE(begun->pending());
  Order(1, v1::SaveOrder::STAGE);
  const auto staged = Begin(kSecond, 1);
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_TRUE(HasReason(Wait(kSecond, 1, staged->save() - 1).status(), Reason::kNotCommitted));
  EXPECT_FALSE(Commit(kFirst, staged->save()).ok()) << "not attached";
}

TEST_F(SessionMemoryTest, AnAbortedSaveOfAPredecessor_IsNoVerdictOfTheStep) {
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  Abort(1);
  session_.Attach(kSecond);
  EXPECT_TRUE(HasReason(Wait(kSecond, 1).status(), Reason::kNotCommitted));
  Save(kSecond, 1);
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  session_.Attach(kFirst);
  EXPECT_EQ(Wait(kFirst, 1)->checkpoint().state(), v1::Checkpoint::COMMITTED) << "that concerns everybody";
}

TEST_F(SessionMemoryTest, ANextCallsDeadline_IsThatOfItsOwnTrainer) {
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  session_.Attach(kSecond);
  EXPECT_TRUE(Begin(kSecond, 1, 10)->pending());
  now_ += absl::Seconds(11);
  session_.Attach(kThird);
  EXPECT_TRUE(Begin(kThird, 1, 10)->pending()) << "its ten seconds begin now";
}

TEST_F(SessionMemoryTest, AWantOfMemory_IsToldOnlyToWhoAskedForIt) {
  serve_slabs_ = false;
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  Order(1, v1::SaveOrder::STAGE);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  Abort(1);
  session_.Attach(kSecond);
  session_.OnSlab(MakeError(Reason::kMemoryLimit, "too large"), now_);
  serve_slabs_ = true;
  EXPECT_EQ(SlabOf(kSecond, 1), 1u);
}

TEST_F(SessionMemoryTest, ACommittedStep_IsTheCoordinatorsToRefuse) {
  Save(kFirst, 1);
  EXPECT_TRUE(Begin(kFirst, 1)->pending()) << "not even the slab is opened before it has answered";
  Order(1, v1::SaveOrder::ABORTED, MakeError(Reason::kStepCommitted, "committed"));
  EXPECT_TRUE(HasReason(Begin(kFirst, 1).status(), Reason::kStepCommitted));
  // The directory of the step was removed.
  EXPECT_EQ(Save(kFirst, 1), 1u);
}

TEST_F(SessionMemoryTest, NumbersOfSaves_AreNotThoseOfAnotherAgentOfTheRank) {
  const auto begun = Stage(kFirst, 1);
  Session other({.job = "demo", .rank = 0, .world_size = 2, .incarnation = 10'000});
  other.Attach(kFirst);
  v1::CommitStagingRequest request;
  request.set_trainer_incarnation(kFirst);
  request.set_save(begun.save());
  EXPECT_TRUE(HasReason(other.CommitStaging(request, now_), Reason::kBadRequest));
}

TEST_F(SessionMemoryTest, TheLease_IsKnownOnceTheCoordinatorHasSaidIt) {
  EXPECT_EQ(session_.lease_ttl(), absl::ZeroDuration());
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.mutable_lease_ttl()->set_seconds(3);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  EXPECT_EQ(session_.lease_ttl(), absl::Seconds(3));
}

TEST_F(SessionMemoryTest, TenThousandLayouts_LeaveNoneBehind) {
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
    ASSERT_TRUE(session_.BeginLoad(begin)->need_layout());
    session_.AddLayout(layout);
    const auto pending = session_.BeginLoad(begin);
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
    order.set_action(v1::LoadOrder::READ);
    ASSERT_TRUE(session_.OnOrders(response, now_).ok());
    session_.TakeActions();
    session_.OnPlan(digest, plan.SerializeAsString(), now_);
    for (const Action& action : session_.TakeActions()) {
      if (const auto* read = std::get_if<action::StartRead>(&action)) plans.push_back(read->plan);
    }
    ASSERT_EQ(plans.size(), layouts.size());
    session_.OnReadProgress(begin.number(), {.bytes_done = 32, .io_path = v1::IO_PATH_CACHED, .all_read = true});
    v1::EndLoadRequest end;
    end.set_trainer_incarnation(kFirst);
    end.set_number(begin.number());
    if (!fails) {
      EXPECT_TRUE(session_.EndLoad(end)->pending());
    }
    order.set_action(fails ? v1::LoadOrder::FAILED : v1::LoadOrder::DONE);
    session_.BuildRequest(std::nullopt);
    ASSERT_TRUE(session_.OnOrders(response, now_).ok());
    Serve();
    const auto ended = session_.EndLoad(end);
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
