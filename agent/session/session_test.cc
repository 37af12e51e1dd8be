#include "agent/session/session.h"

#include <gtest/gtest.h>

#include <map>

#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeMovingPlan;
using testing::MakeWritePlan;
using testing::Object;
using testing::Whole;

// A session and what a shell would hold for it.
class SessionTest : public SessionFixture {
 protected:
  SessionTest()
      : SessionFixture(MakeLayout({Whole("a", DType::kFloat32, {100}), Whole("b", DType::kFloat32, {200}),
                                   Whole("c", DType::kFloat32, {300})},
                                  {Object("o", 4096)})) {}

  v1::SaveState Only() {
    const v1::AgentState state = State();
    EXPECT_EQ(state.saves_size(), 1);
    return state.saves_size() == 1 ? state.saves(0) : v1::SaveState();
  }

  absl::StatusOr<v1::BeginSaveResponse> Begin(int64_t step, int timeout = 60) {
    return BeginSave(trainer_, step, timeout);
  }
  absl::Status Commit(uint64_t save, std::vector<uint64_t> objects = {10}) {
    v1::CommitStagingRequest request;
    request.set_trainer_incarnation(trainer_);
    request.set_save(save);
    for (uint64_t bytes : objects) {
      request.add_object_sizes(bytes);
      request.add_check_checksums(5);
    }
    return session_.CommitStaging(request, now_);
  }
  absl::StatusOr<v1::WaitSaveResponse> Wait(int64_t step, uint64_t save = 0) {
    v1::WaitSaveRequest request;
    request.set_trainer_incarnation(trainer_);
    request.set_step(step);
    request.set_save(save);
    return session_.WaitSave(request);
  }

  // An answer to the session's state as it is now.
  absl::Status Order(int64_t step, v1::SaveOrder::Action action, const std::string& plan = "p1", uint32_t attempt = 1,
                     const absl::Status& error = absl::OkStatus(), uint64_t epoch = 5) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(epoch);
    response.set_revision(++revision_);
    auto* order = response.add_saves();
    order->set_step(step);
    order->set_action(action);
    order->set_plan_digest(plan);
    order->set_attempt(attempt);
    order->set_directory("demo/dir");
    if (action == v1::SaveOrder::WRITE) order->set_attempt_nonce(nonce_);
    if (!error.ok()) *order->mutable_error() = StatusToProto(error);
    return session_.OnOrders(response, now_);
  }

  // Carries out what a shell would do at once; what remains is returned.
  std::vector<Action> Serve() {
    std::vector<Action> rest;
    while (true) {
      std::vector<Action> actions = session_.TakeActions();
      if (actions.empty()) return rest;
      for (Action& action : actions) {
        if (const auto* get = std::get_if<action::GetPlan>(&action); get != nullptr && plans_.contains(get->digest)) {
          session_.OnPlan(get->digest, plans_.at(get->digest), now_);
        } else if (const auto* peers = std::get_if<action::GetPeers>(&action); peers != nullptr) {
          session_.OnPeers(peers->ranks, testing::PeersOf(peers->ranks));
        } else if (const auto* slab = std::get_if<action::MakeSlab>(&action); slab != nullptr && slab_error_.ok()) {
          ++slabs_;
          session_.OnSlab(SlabDescription{100 + slabs_, slab->bytes}, now_);
        } else if (slab != nullptr) {
          session_.OnSlab(slab_error_, now_);
        } else {
          rest.push_back(std::move(action));
        }
      }
    }
  }

  // Brings a save to WRITING.
  uint64_t StartWriting(int64_t step) {
    EXPECT_TRUE(Begin(step).ok());
    EXPECT_TRUE(Order(step, v1::SaveOrder::WRITE).ok());
    Serve();
    const auto begun = Begin(step);
    EXPECT_TRUE(begun.ok()) << begun.status();
    EXPECT_TRUE(Commit(begun->save()).ok());
    const auto actions = Serve();
    EXPECT_EQ(actions.size(), 1u);
    EXPECT_TRUE(!actions.empty() && std::holds_alternative<action::StartWrite>(actions[0]));
    EXPECT_EQ(Only().phase(), v1::SaveState::WRITING);
    return begun->save();
  }
  v1::WriteResult Result() {
    v1::WriteResult result;
    result.add_files()->set_file_bytes(1);
    return result;
  }

  std::map<std::string, std::string> plans_ = {
      {"p1", MakeWritePlan(*layout_, 3, {{0, 1}, {3}}, "p1").SerializeAsString()},
      {"p2", MakeWritePlan(*layout_, 3, {{3, 1}}, "p2").SerializeAsString()},
      {"p3", MakeWritePlan(*layout_, 3, {{0, 1, 2, 3}}, "p3").SerializeAsString()}};
  uint64_t trainer_ = kTrainer;
  uint64_t nonce_ = 11;  // of the attempt, in orders to write
  uint64_t revision_ = 0;
  uint64_t slabs_ = 0;
  absl::Status slab_error_;
};

TEST_F(SessionTest, Save_GoesThroughItsPhases_AndTellsItsVerdict) {
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_EQ(Only().phase(), v1::SaveState::BEGUN);
  ASSERT_TRUE(Order(7, v1::SaveOrder::STAGE).ok());
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_TRUE(Serve().empty());
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->placements_size(), 3);
  EXPECT_EQ(begun->slab().descriptor_id(), 101u);
  EXPECT_EQ(begun->check_items_size(), 1) << "the shared object";
  EXPECT_EQ(Only().phase(), v1::SaveState::STAGING);
  EXPECT_TRUE(Commit(begun->save()).ok());
  EXPECT_TRUE(Commit(begun->save()).ok()) << "idempotent";
  EXPECT_EQ(Only().phase(), v1::SaveState::STAGED);
  EXPECT_TRUE(Wait(7, begun->save())->pending());
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::StartWrite>(actions[0]).directory, "demo/dir");
  session_.OnWriteEnded(begun->save(), Result());
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITTEN);
  EXPECT_EQ(Only().result().files_size(), 1);
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  EXPECT_EQ(State().saves_size(), 0);
  EXPECT_EQ(Wait(7, begun->save())->checkpoint().state(), v1::Checkpoint::COMMITTED);
}

TEST_F(SessionTest, SaveOfACommittedStep_AsksTheCoordinatorBeforeAnythingIsStaged) {
  StartWriting(7);
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  Serve();
  EXPECT_TRUE(Begin(7)->pending()) << "people may have removed it";
  EXPECT_EQ(Only().call(), 2u);
  EXPECT_EQ(Only().phase(), v1::SaveState::BEGUN);
  const absl::Status committed = MakeError(Reason::kStepCommitted, "it is");
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORTED, "", 0, committed).ok());
  EXPECT_TRUE(HasReason(Begin(7).status(), Reason::kStepCommitted));
}

TEST_F(SessionTest, StalledStorage_IsToldToWhoWaits_AndBlamedForTheSlab) {
  const uint64_t first = StartWriting(7);
  session_.OnWriteEnded(first, Result());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.set_revision(++revision_);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_action(v1::SaveOrder::WRITE);
  order->set_plan_digest("p1");
  order->set_attempt(1);
  *order->mutable_stalled() = StatusToProto(MakeError(Reason::kStorageStalled, "storage does not answer"));
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  const auto waiting = Wait(7, first);
  EXPECT_TRUE(waiting->pending());
  EXPECT_TRUE(HasReason(StatusFromProto(waiting->stalled()), Reason::kStorageStalled));
  EXPECT_TRUE(Begin(8)->pending()) << "the slab holds step 7";
  now_ += absl::Hours(1);
  session_.OnTick(now_);
  EXPECT_TRUE(HasReason(Begin(8).status(), Reason::kStorageStalled)) << Begin(8).status();
}

TEST_F(SessionTest, CommitTime_IsTold) {
  const uint64_t save = StartWriting(7);
  session_.OnWriteEnded(save, Result());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.set_revision(++revision_);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_action(v1::SaveOrder::COMMITTED);
  order->set_attempt(1);
  order->mutable_commit_time()->set_seconds(1234);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  EXPECT_EQ(Wait(7, save)->checkpoint().commit_time().seconds(), 1234);
}

TEST_F(SessionTest, MovedShards_AreStagedAndLent_AndWhoIsWaitedForIsTold) {
  // Rank 4 writes c for this rank (3), which writes m for rank 5.
  const testing::MovedInShard in = {5, 2, Whole("m", DType::kFloat32, {50})};
  plans_["p1"] = MakeMovingPlan(*layout_, 3, {{0, 1, 4}, {3}}, "p1", {in}, {{2, 4}}).SerializeAsString();
  EXPECT_TRUE(Begin(7)->pending());
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE).ok());
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
  session_.OnWriteProgress(begun->save(), 100, {5});
  ASSERT_EQ(Only().awaited_ranks_size(), 1);
  EXPECT_EQ(Only().awaited_ranks(0), 5u);
  session_.OnWriteProgress(begun->save(), 200, {});
  EXPECT_EQ(Only().awaited_ranks_size(), 0);
  session_.OnWriteEnded(begun->save(), Result());
  EXPECT_TRUE(Serve().empty()) << "others may still take its shards";
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  const auto after = Serve();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_EQ(std::get<action::EndLending>(after[0]).save, begun->save());
}

TEST_F(SessionTest, AnotherPlan_ThatMovesOutWhatWasNotStaged_IsLayoutChanged) {
  plans_["p2"] = MakeMovingPlan(*layout_, 3, {{0, 1}, {3}}, "p2", {}, {{2, 4}}).SerializeAsString();
  EXPECT_TRUE(Begin(7)->pending());
  ASSERT_TRUE(Order(7, v1::SaveOrder::STAGE).ok());
  Serve();
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok() && Commit(begun->save()).ok());
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE, "p2").ok());
  Serve();
  EXPECT_EQ(Only().phase(), v1::SaveState::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kLayoutChanged));
}

TEST_F(SessionTest, AttemptsNonce_IsKeptUntilAnotherIsNamed_AndThenItIsWrittenAgain) {
  const uint64_t save = StartWriting(7);
  session_.OnWriteEnded(save, v1::WriteResult());
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITTEN);
  EXPECT_EQ(Only().attempt_nonce(), 11u);
  ASSERT_TRUE(Order(7, v1::SaveOrder::WAIT).ok());  // of a coordinator that has just started
  EXPECT_EQ(Only().attempt_nonce(), 11u);
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE).ok());
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITTEN);
  nonce_ = 12;  // the same number below another root
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE).ok());
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITING);
  EXPECT_EQ(Only().attempt_nonce(), 12u);
}

TEST_F(SessionTest, NewPlan_IsAskedForWithThePartThatIsKnown) {
  StartWriting(7);
  plans_.erase("p2");
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE, "p2", 2).ok());
  const auto actions = Serve();
  ASSERT_FALSE(actions.empty());
  const auto* get = std::get_if<action::GetPlan>(&actions[0]);
  ASSERT_NE(get, nullptr);
  EXPECT_EQ(get->digest, "p2");
  EXPECT_EQ(get->known, plans_["p1"]);
}

TEST_F(SessionTest, Reshard_LendsItsSource_AndEndsWhenAllIsTaken) {
  const RankLayoutPtr target = MakeLayout({Whole("a", DType::kFloat32, {100})}, {});
  session_.AddLayout(target);
  v1::BeginLoadRequest request;
  request.set_trainer_incarnation(trainer_);
  request.set_number(1);
  request.mutable_layout()->set_digest(target->digest);
  request.mutable_source()->set_digest("unknown");
  EXPECT_TRUE(session_.BeginLoad(request)->need_source());
  request.mutable_source()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.BeginLoad(request)->pending());
  ASSERT_EQ(State().loads_size(), 1);
  EXPECT_EQ(State().loads(0).source_layout_digest(), layout_->digest);
  v1::ReadPlan read;
  read.set_plan_digest("r1");
  read.set_rank(3);
  read.set_layout_digest(target->digest);
  read.set_read_bytes(400);
  plans_["r1"] = read.SerializeAsString();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  v1::LoadOrder& order = *response.add_loads();
  order.set_number(1);
  order.set_action(v1::LoadOrder::READ);
  order.set_plan_digest("r1");
  order.set_source_plan_digest("p1");
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  ASSERT_NE(std::get<action::StartRead>(actions[0]).source, nullptr);
  EXPECT_TRUE(session_.BeginLoad(request)->pending()) << "no memory yet";
  v1::CommitSourceRequest commit;
  commit.set_trainer_incarnation(trainer_);
  commit.set_number(1);
  EXPECT_TRUE(HasReason(session_.CommitSource(commit), Reason::kBadRequest));
  session_.OnSource(1, {77, 8192});
  const auto begun = session_.BeginLoad(request);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->source_memory().descriptor_id(), 77u);
  EXPECT_EQ(begun->source_placements_size(), 3) << "what the plan p1 has this rank lend";
  EXPECT_FALSE(State().loads(0).source_staged());
  ASSERT_TRUE(session_.CommitSource(commit).ok());
  ASSERT_TRUE(session_.CommitSource(commit).ok()) << "idempotent";
  actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::LendSource>(actions[0]).number, 1u);
  EXPECT_TRUE(State().loads(0).source_staged());
  session_.OnReadProgress(1, {0, 0, v1::IO_PATH_MEMORY, true});
  v1::EndLoadRequest end;
  end.set_trainer_incarnation(trainer_);
  end.set_number(1);
  EXPECT_TRUE(session_.EndLoad(end)->pending());
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::DONE);
  order.set_action(v1::LoadOrder::DONE);
  order.set_unique_bytes(400);
  order.set_io_path(v1::IO_PATH_MEMORY);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  const auto ended = session_.EndLoad(end);
  ASSERT_TRUE(ended.ok() && !ended->pending());
  EXPECT_EQ(ended->bytes_read(), 0u) << "nothing came from storage";
  EXPECT_EQ(ended->unique_bytes(), 400u);
  EXPECT_EQ(ended->io_path(), v1::IO_PATH_MEMORY);
}

TEST_F(SessionTest, UnchangedLayout_OpensTheSlabAtOnce) {
  const uint64_t first = StartWriting(7);
  session_.OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  const auto begun = Begin(8);
  ASSERT_TRUE(begun.ok());
  EXPECT_FALSE(begun->pending());
  EXPECT_EQ(begun->slab().descriptor_id(), 101u) << "the same slab";
  EXPECT_EQ(Only().plan_digest(), "p1");
  EXPECT_TRUE(Serve().empty());
}

TEST_F(SessionTest, AnotherPlanAfterStaging_IsWrittenFromTheSlab_IfAllIsThere) {
  const uint64_t first = StartWriting(7);
  session_.OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  const auto begun = Begin(8);
  ASSERT_TRUE(Commit(begun->save()).ok());
  ASSERT_TRUE(Order(8, v1::SaveOrder::WRITE, "p2").ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  const auto& write = std::get<action::StartWrite>(actions[0]);
  EXPECT_EQ(write.staged->plan_digest, "p1");
  EXPECT_EQ(write.target->plan_digest, "p2");
}

TEST_F(SessionTest, AnotherPlanThatNeedsWhatWasNotStaged_IsLayoutChanged) {
  const uint64_t first = StartWriting(7);
  session_.OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  const auto begun = Begin(8);
  ASSERT_TRUE(Order(8, v1::SaveOrder::STAGE, "p3").ok());
  EXPECT_TRUE(Serve().empty());
  EXPECT_EQ(Only().phase(), v1::SaveState::FAILED);
  const absl::Status told = Commit(begun->save());
  EXPECT_TRUE(HasReason(told, Reason::kLayoutChanged)) << told;
  EXPECT_EQ(MetadataOf(told)["tensor"], "c");
  ASSERT_TRUE(Order(8, v1::SaveOrder::ABORTED, "p3", 1, told).ok());
  EXPECT_EQ(Begin(9)->placements_size(), 4) << "the next save follows the new plan, unasked";
  EXPECT_EQ(Only().plan_digest(), "p3");
}

TEST_F(SessionTest, CheckReplicas_AsksForWhatThisRankDoesNotWrite) {
  EXPECT_TRUE(Begin(7).ok());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_action(v1::SaveOrder::STAGE);
  order->set_plan_digest("p1");
  order->set_check_replicas(true);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  Serve();
  const auto begun = Begin(7);
  ASSERT_EQ(begun->check_items_size(), 2);
  EXPECT_EQ(begun->check_items(0), 2u);
  EXPECT_EQ(begun->check_items(1), 3u) << "the shared object";
  EXPECT_TRUE(HasReason(Commit(begun->save()), Reason::kBadRequest)) << "a checksum is missing";
  v1::CommitStagingRequest request;
  request.set_trainer_incarnation(kTrainer);
  request.set_save(begun->save());
  request.add_object_sizes(1);
  request.add_check_checksums(0xabcd);
  request.add_check_checksums(0xef);
  ASSERT_TRUE(session_.CommitStaging(request, now_).ok());
  ASSERT_EQ(Only().replica_checksums_size(), 2);
  EXPECT_EQ(Only().replica_checksums(0).crc32c(), 0xabcdu);
}

TEST_F(SessionTest, SmallerCoordinatorEpoch_IsRefused) {
  EXPECT_TRUE(Begin(7).ok());
  EXPECT_TRUE(Order(7, v1::SaveOrder::STAGE, "p1", 1, absl::OkStatus(), 6).ok());
  EXPECT_TRUE(HasReason(Order(7, v1::SaveOrder::ABORTED, "p1", 1, absl::OkStatus(), 5), Reason::kStaleEpoch));
  EXPECT_EQ(State().saves_size(), 1) << "nothing of it was obeyed";
  v1::RegisterAgentResponse registered;
  registered.set_coordinator_epoch(4);
  EXPECT_TRUE(HasReason(session_.OnRegistered(registered), Reason::kStaleEpoch));
}

TEST_F(SessionTest, CoordinatorRestart_KeepsTheSaveInFlight) {
  const uint64_t save = StartWriting(7);
  session_.OnUnregistered();
  EXPECT_FALSE(session_.registered());
  session_.OnWriteEnded(save, Result());
  v1::RegisterAgentResponse registered;
  registered.set_coordinator_epoch(6);
  ASSERT_TRUE(session_.OnRegistered(registered).ok());
  EXPECT_EQ(session_.Identity().coordinator_epoch(), 6u);
  EXPECT_EQ(session_.BuildRequest(std::nullopt).known_revision(), 0u);
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITTEN);
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE, "p1", 1, absl::OkStatus(), 6).ok());
  EXPECT_TRUE(Serve().empty()) << "it is written already";
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED, "p1", 1, absl::OkStatus(), 6).ok());
  EXPECT_EQ(Wait(7, save)->checkpoint().state(), v1::Checkpoint::COMMITTED);
}

TEST_F(SessionTest, TrainerDies_AfterStagingNothingChanges_BeforeItTheSaveFails) {
  const uint64_t save = StartWriting(7);
  session_.OnTrainerGone(kTrainer, TrainerEnd::kEnded);
  session_.OnWriteEnded(save, Result());
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITTEN);
  EXPECT_TRUE(HasReason(Begin(8).status(), Reason::kNotRegistered));
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());

  session_.Attach(trainer_ = 78);
  EXPECT_EQ(Wait(7)->checkpoint().state(), v1::Checkpoint::COMMITTED) << "its successor may ask";
  const auto begun = Begin(8);
  ASSERT_TRUE(begun.ok());
  EXPECT_FALSE(begun->pending());
  session_.OnTrainerGone(78, TrainerEnd::kReplaced);
  EXPECT_EQ(Only().phase(), v1::SaveState::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kTrainerLost));
  ASSERT_TRUE(Order(8, v1::SaveOrder::ABORTED, "p1", 1, StatusFromProto(Only().error())).ok());
  // It may copy still: its slab is nobody else's.
  session_.Attach(trainer_ = 79);
  EXPECT_TRUE(Begin(9)->pending());
  Serve();
  EXPECT_EQ(Begin(9)->slab().descriptor_id(), 102u);
}

TEST_F(SessionTest, RankThatWaitedInVain_IsToldForWhom) {
  ASSERT_TRUE(Begin(7)->pending());
  State();
  now_ += absl::Seconds(60);
  session_.OnTick(now_);
  EXPECT_EQ(Only().phase(), v1::SaveState::FAILED);
  EXPECT_FALSE(MetadataOf(StatusFromProto(Only().error())).contains("ranks")) << "it does not know who is late";
  ASSERT_TRUE(Begin(7)->pending()) << "the coordinator knows";
  const absl::Status why = MakeError(Reason::kRankLate, "rank 5 held up the others", {{"ranks", "5"}});
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORT, "", 0, why).ok());
  EXPECT_EQ(Begin(7).status(), why);
}

TEST_F(SessionTest, RankThatWaitedInVain_DoesNotWaitForTheBlameForEver) {
  ASSERT_TRUE(Begin(7)->pending());
  now_ += absl::Seconds(60);
  session_.OnTick(now_);
  now_ += absl::Seconds(3);
  const absl::Status told = Begin(7).status();
  EXPECT_TRUE(HasReason(told, Reason::kRankLate)) << told;
  EXPECT_NE(told.message().find("rank 3 waited for other ranks"), std::string::npos) << told;
}

TEST_F(SessionTest, Abort_StopsTheWriter_ThenSaysStopped) {
  const uint64_t save = StartWriting(7);
  const absl::Status why = MakeError(Reason::kRankLate, "rank 5 is late", {{"ranks", "5"}});
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORT, "p1", 1, why).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StopWrite>(actions[0]));
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITING) << "a file is still open";
  session_.OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_EQ(Only().phase(), v1::SaveState::STOPPED);
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORTED, "p1", 1, why).ok());
  const auto checkpoint = Wait(7, save)->checkpoint();
  EXPECT_EQ(checkpoint.state(), v1::Checkpoint::ABORTED);
  EXPECT_TRUE(HasReason(StatusFromProto(checkpoint.error()), Reason::kRankLate));
  // The next call of the step is a new one.
  EXPECT_FALSE(Begin(7)->pending());
  EXPECT_EQ(Only().call(), 2u);
}

TEST_F(SessionTest, AbortOfAnUnknownAttempt_IsAnsweredStopped_UntilItIsForgotten) {
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORT, "p1", 4).ok());
  EXPECT_EQ(Only().phase(), v1::SaveState::STOPPED);
  EXPECT_EQ(Only().attempt(), 4u);
  ASSERT_TRUE(Order(8, v1::SaveOrder::WAIT).ok());
  EXPECT_EQ(State().saves_size(), 0);
}

TEST_F(SessionTest, VerdictOfAnEarlierCall_LeavesTheNewOneAlone) {
  EXPECT_TRUE(Begin(7).ok());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_action(v1::SaveOrder::ABORTED);
  order->set_call(9);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  EXPECT_EQ(State().saves_size(), 1);
}

TEST_F(SessionTest, OrdersForAStateBeforeTheSaveBegan_DoNotTouchIt) {
  State();
  EXPECT_TRUE(Begin(7).ok());
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_action(v1::SaveOrder::ABORTED);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  EXPECT_EQ(State().saves_size(), 1);
}

TEST_F(SessionTest, ErrorBeforeStaging_IsTold_AndTheNextCallWaitsForTheVerdict) {
  slab_error_ = MakeError(Reason::kMemoryLimit, "too large");
  EXPECT_TRUE(Begin(7).ok());
  ASSERT_TRUE(Order(7, v1::SaveOrder::STAGE).ok());
  Serve();
  EXPECT_TRUE(HasReason(Begin(7).status(), Reason::kMemoryLimit));
  EXPECT_EQ(Only().phase(), v1::SaveState::FAILED);
  EXPECT_TRUE(Begin(7)->pending()) << "a new call, while the coordinator aborts the old one";
  now_ += absl::Seconds(61);
  EXPECT_TRUE(HasReason(Begin(7).status(), Reason::kSaveInProgress));
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORTED).ok());
  slab_error_ = absl::OkStatus();
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_EQ(Only().call(), 2u);
}

// It may bring another state, and must not be told that this one is committed.
TEST_F(SessionTest, NextCallOfAStagedStep_WaitsForItsVerdict_AndIsNotToldIt) {
  const uint64_t first = StartWriting(7);
  const auto next = Begin(7);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->pending());
  EXPECT_EQ(next->placements_size(), 0) << "what is being written stays as it is";
  session_.OnWriteEnded(first, Result());
  EXPECT_TRUE(Begin(7)->pending()) << "a manifest may name it";
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  EXPECT_TRUE(Begin(7)->pending()) << "the coordinator is asked: the step is committed";
  EXPECT_EQ(Only().call(), 2u);
  EXPECT_EQ(Only().phase(), v1::SaveState::BEGUN);
  EXPECT_EQ(Wait(7, first)->checkpoint().state(), v1::Checkpoint::COMMITTED);
}

TEST_F(SessionTest, NextCallOfAStagedStep_TakesItsPlace_IfNothingIsWrittenYet) {
  EXPECT_TRUE(Begin(7).ok());
  ASSERT_TRUE(Order(7, v1::SaveOrder::STAGE).ok());
  Serve();
  const auto first = Begin(7);
  ASSERT_TRUE(first.ok() && Commit(first->save()).ok());
  EXPECT_EQ(Only().phase(), v1::SaveState::STAGED);
  now_ += absl::Minutes(2);
  const auto next = Begin(7);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->save(), first->save());
  EXPECT_GT(next->placements_size(), 0);
  session_.OnTick(now_);
  ASSERT_TRUE(Order(7, v1::SaveOrder::WRITE).ok());
  EXPECT_TRUE(Serve().empty()) << "nothing is written while it is copied";
  EXPECT_EQ(Only().phase(), v1::SaveState::STAGING);
  ASSERT_TRUE(Commit(next->save()).ok());
  EXPECT_EQ(Only().phase(), v1::SaveState::WRITING);
}

// The call before was interrupted while it waited for other ranks.
TEST_F(SessionTest, NextCallWithAnotherLayout_DoesNotFollowTheFirstOnes) {
  EXPECT_TRUE(Begin(7).ok());
  const RankLayoutPtr other = MakeLayout({Whole("d", DType::kFloat32, {100})}, {});
  session_.AddLayout(other);
  v1::BeginSaveRequest request;
  request.set_trainer_incarnation(trainer_);
  request.set_step(7);
  request.mutable_layout()->set_digest(other->digest);
  EXPECT_TRUE(session_.BeginSave(request, now_)->pending());
  EXPECT_EQ(Only().phase(), v1::SaveState::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kSaveCancelled));
  ASSERT_TRUE(Order(7, v1::SaveOrder::ABORTED).ok());
  EXPECT_TRUE(session_.BeginSave(request, now_)->pending());
  EXPECT_EQ(Only().layout_digest(), other->digest);
  EXPECT_EQ(Only().call(), 2u);
}

TEST_F(SessionTest, AnotherStep_WaitsForTheSlab_UntilItsTimeout) {
  const uint64_t first = StartWriting(7);
  EXPECT_TRUE(Begin(8)->pending());
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  EXPECT_TRUE(HasReason(Begin(8).status(), Reason::kSaveInProgress));
  ASSERT_TRUE(Order(8, v1::SaveOrder::ABORTED).ok());
  EXPECT_TRUE(Begin(9)->pending());
  session_.OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::SaveOrder::COMMITTED).ok());
  EXPECT_FALSE(Begin(9)->pending());
}

TEST_F(SessionTest, NotStagedInTime_IsLate_AndNamesTheRank) {
  EXPECT_TRUE(Begin(7).ok());
  ASSERT_TRUE(Order(7, v1::SaveOrder::STAGE).ok());
  Serve();
  const auto begun = Begin(7);
  session_.OnTick(now_ + absl::Seconds(59));
  EXPECT_EQ(Only().phase(), v1::SaveState::STAGING);
  session_.OnTick(now_ + absl::Seconds(60));
  const absl::Status told = Commit(begun->save());
  EXPECT_TRUE(HasReason(told, Reason::kRankLate));
  EXPECT_EQ(MetadataOf(told)["ranks"], "3");
  EXPECT_EQ(MetadataOf(told)["phase"], "staging");
}

TEST_F(SessionTest, Prepare_WaitsForAPlanOfItsLayout_AndMakesTheSlab) {
  v1::PrepareRequest request;
  request.set_trainer_incarnation(kTrainer);
  request.mutable_layout()->set_digest("unknown");
  EXPECT_TRUE(session_.Prepare(request, now_)->need_layout());
  request.mutable_layout()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.Prepare(request, now_)->pending());
  EXPECT_EQ(State().trainer().layout_digest(), layout_->digest);
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.set_current_plan_digest("p1");
  response.add_wanted_layouts(layout_->digest);
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  EXPECT_TRUE(session_.Prepare(request, now_)->pending());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::PutLayout>(actions[0]));
  EXPECT_TRUE(session_.Prepare(request, now_)->pending());
  Serve();
  const auto prepared = session_.Prepare(request, now_);
  ASSERT_TRUE(prepared.ok());
  EXPECT_FALSE(prepared->pending());
  EXPECT_GT(prepared->slab_bytes(), 0u);
  EXPECT_FALSE(Begin(1)->pending()) << "the first save need not ask";

  *response.mutable_current_plan_error() = StatusToProto(MakeError(Reason::kShardGap, "a gap"));
  State();
  ASSERT_TRUE(session_.OnOrders(response, now_).ok());
  EXPECT_TRUE(HasReason(session_.Prepare(request, now_).status(), Reason::kShardGap));
}

TEST_F(SessionTest, Arm_Agree_Disarm) {
  const auto order = [&](uint64_t number, v1::ArmOrder::Action action) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    response.mutable_arm()->set_number(number);
    response.mutable_arm()->set_action(action);
    response.mutable_arm()->set_step(12);
    EXPECT_TRUE(session_.OnOrders(response, now_).ok());
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

TEST_F(SessionTest, Load_GoesThroughItsPhases) {
  v1::ReadPlan plan;
  plan.set_plan_digest("r1");
  plan.set_layout_digest(layout_->digest);
  plan.set_rank(3);
  plan.set_read_bytes(10);
  plans_["r1"] = plan.SerializeAsString();
  v1::BeginLoadRequest begin;
  begin.set_trainer_incarnation(kTrainer);
  begin.set_number(1);
  begin.mutable_layout()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.BeginLoad(begin)->pending());
  const auto order = [&](v1::LoadOrder::Action action, uint64_t trainer = 0) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    auto* load = response.add_loads();
    load->set_number(1);
    load->set_action(action);
    load->set_step(4);
    load->set_plan_digest("r1");
    load->set_trainer_incarnation(trainer);
    EXPECT_TRUE(session_.OnOrders(response, now_).ok());
    return Serve();
  };
  EXPECT_TRUE(order(v1::LoadOrder::FAILED, 12345).empty()) << "that is another trainer's";
  auto actions = order(v1::LoadOrder::READ);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StartRead>(actions[0]));
  EXPECT_EQ(session_.BeginLoad(begin)->step(), 4);
  v1::EndLoadRequest end;
  end.set_trainer_incarnation(kTrainer);
  end.set_number(1);
  EXPECT_TRUE(session_.EndLoad(end)->pending());
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::READING) << "others may still need what it reads";
  session_.OnReadProgress(1, {.bytes_done = 10, .storage_bytes = 12, .io_path = v1::IO_PATH_DIRECT, .all_read = true});
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::DONE);
  actions = order(v1::LoadOrder::DONE);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StopRead>(actions[0]));
  EXPECT_EQ(session_.EndLoad(end)->bytes_read(), 10u);
  EXPECT_EQ(State().loads_size(), 0);
}

TEST_F(SessionTest, FailedLoad_IsStoppedAfterTheOrder) {
  v1::ReadPlan plan;
  plan.set_plan_digest("r1");
  plan.set_layout_digest(layout_->digest);
  plan.set_rank(3);
  plans_["r1"] = plan.SerializeAsString();
  v1::BeginLoadRequest begin;
  begin.set_trainer_incarnation(kTrainer);
  begin.set_number(1);
  begin.mutable_layout()->set_digest(layout_->digest);
  EXPECT_TRUE(session_.BeginLoad(begin)->pending());
  const auto order = [&](v1::LoadOrder::Action action) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    auto* load = response.add_loads();
    load->set_number(1);
    load->set_action(action);
    load->set_plan_digest("r1");
    EXPECT_TRUE(session_.OnOrders(response, now_).ok());
    return Serve();
  };
  order(v1::LoadOrder::READ);
  session_.OnReadFailed(1, MakeError(Reason::kChecksumMismatch, "flipped"));
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::FAILED);
  EXPECT_TRUE(HasReason(session_.CheckLoad(kTrainer, 1), Reason::kChecksumMismatch));
  EXPECT_EQ(order(v1::LoadOrder::ABORT).size(), 1u);
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::FAILED) << "its buffers are still held";
  session_.OnReadStopped(1);
  EXPECT_EQ(State().loads(0).phase(), v1::LoadState::STOPPED);
  order(v1::LoadOrder::FAILED);
  EXPECT_EQ(State().loads_size(), 0);
  EXPECT_TRUE(HasReason(session_.BeginLoad(begin).status(), Reason::kChecksumMismatch));
}

TEST(SaveImageTest, PlansThatContradictTheLayout_AreRefused) {
  const RankLayoutPtr layout = MakeLayout({Whole("a", DType::kFloat32, {100})}, {Object("o", 4096)});
  const v1::WritePlan good = MakeWritePlan(*layout, 0, {{0, 1}}, "p");
  const auto image = MakeSaveImage(layout, good);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ((*image)->slab_offset[0], good.files(0).header_bytes());
  EXPECT_EQ((*image)->slab_offset[1], good.files(0).header_bytes() + 400);
  EXPECT_EQ((*image)->slab_bytes % 4096, 0u);
  v1::WritePlan bad = good;
  bad.mutable_files(0)->set_data_bytes(1);
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.mutable_files(0)->set_header_bytes(4096 * 7);
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.mutable_files(0)->add_items(5);
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.mutable_files(0)->set_name("../../etc/passwd");
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.set_layout_digest("another");
  EXPECT_TRUE(HasReason(MakeSaveImage(layout, bad).status(), Reason::kLayoutChanged));
}

TEST(RankLayoutTest, BytesOfAnotherDigest_AreRefused) {
  EXPECT_TRUE(HasReason(ParseRankLayout("wrong", "", 0).status(), Reason::kBadRequest));
  EXPECT_TRUE(ParseRankLayout(Digest(""), "", 0).ok()) << "a rank that declares nothing";
}

TEST(RankLayoutTest, LayoutsWithFaults_AreForwarded_ButNeverWritten) {
  const auto fault = [](std::string bytes) {
    const auto layout = ParseRankLayout(Digest(bytes), bytes, 0);
    if (!layout.ok()) return layout.status();
    v1::WritePlan plan;
    plan.set_layout_digest((*layout)->digest);
    EXPECT_EQ(MakeSaveImage(*layout, plan).status(), (*layout)->fault);
    return (*layout)->fault;
  };
  EXPECT_TRUE(HasReason(fault("garbage"), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(fault(testing::SerializeLayout({testing::Tensor("a", DType::kFloat32, {4}, {2}, {3})}, {})),
                        Reason::kShardOutOfBounds));
  EXPECT_TRUE(HasReason(fault(testing::SerializeLayout({Whole("a", DType::kFloat64, {int64_t{1} << 62})}, {})),
                        Reason::kShapeOverflow));
  EXPECT_TRUE(HasReason(fault(testing::SerializeLayout({Whole("a\n", DType::kFloat64, {1})}, {})), Reason::kBadName));
  EXPECT_TRUE(
      HasReason(fault(testing::SerializeLayout({Whole("a", DType::kUnspecified, {1})}, {})), Reason::kBadDtype));
}

}  // namespace
}  // namespace cairn
