// The real coordinator is killed, frozen or asked to end, while fake agents save. There must be one outcome, and
// nothing may be half committed.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "common/status/status_proto.h"
#include "store/posix/posix_storage.h"
#include "store/root/root_proof.h"
#include "tests/fault/coordinator_fixture.h"

namespace cairn::testing {
namespace {

using State = v1::Phase;

class CoordinatorEndTest : public CoordinatorFixture {};

// The coordinator is killed while rank 1 stands still in each phase; the save goes on under the next coordinator.
TEST_F(CoordinatorEndTest, Save_CoordinatorIsKilledInAnyPhase_GoesOn) {
  Start();
  StartAgents();
  int64_t step = 0;
  uint64_t epoch = 1;
  for (v1::Phase::Value phase : {v1::Phase::STAGING, v1::Phase::STAGED, v1::Phase::WRITING, v1::Phase::WRITTEN}) {
    agents_[1]->HoldAt(phase);
    if (phase == v1::Phase::WRITTEN) agents_[0]->HoldAt(v1::Phase::STAGED);
    SaveAll(++step);
    ASSERT_TRUE(agents_[1]->WaitPhase(step, phase)) << phase;
    Restart();
    ++epoch;
    agents_[0]->Release();
    agents_[1]->Release();
    EXPECT_TRUE(Outcome(step).ok()) << v1::Phase::Value_Name(phase) << ": " << Outcome(step);
    EXPECT_EQ(agents_[1]->epoch(), epoch);
    ExpectWhole(step);
  }
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST_F(CoordinatorEndTest, Save_CoordinatorAndAgentAreKilled_AbortsCleanly) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();
  agents_[1]->HoldAt(v1::Phase::WRITING);
  SaveAll(3);
  ASSERT_TRUE(agents_[1]->WaitPhase(3, v1::Phase::WRITING));
  coordinator_.Kill();
  agents_[1]->Kill();
  Start(flags_);
  agents_[1] = std::make_unique<FakeAgent>(AgentOptions(1));
  const absl::Status outcome = Outcome(3, {1});
  EXPECT_TRUE(HasReason(outcome, Reason::kRankLost)) << outcome;
  EXPECT_EQ(MetadataOf(outcome)["ranks"], "1");
  EXPECT_FALSE(HasFiles(3, 1));
  SaveAll(4);
  EXPECT_TRUE(Outcome(4).ok());
}

TEST_F(CoordinatorEndTest, Save_CoordinatorRestartsInPreparing_EndsTheRequestByName) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();  // no trainer reports a step, so no step is agreed on
  const std::string id = RandomToken();
  const auto created = Create(std::nullopt, id);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->state(), State::PREPARING);
  Restart();
  const v1::Checkpoint ended = Follow(*created, id);
  EXPECT_EQ(ended.state(), State::ABORTED);
  EXPECT_TRUE(HasReason(StatusFromProto(ended.error()), Reason::kCoordinatorRestarted)) << ended.ShortDebugString();
}

// The coordinator is frozen just before it commits, and finds an abort record when it wakes up.
TEST_F(CoordinatorEndTest, Save_TombstoneStandsWhenAFrozenCoordinatorWakes_IsNotCommitted) {
  Start({"--phase-timeout=60s", "--lease-ttl=10s"});
  StartAgents();
  agents_[1]->HoldAt(v1::Phase::WRITING);
  SaveAll(8);
  ASSERT_TRUE(agents_[0]->WaitPhase(8, v1::Phase::WRITTEN));
  ASSERT_TRUE(agents_[2]->WaitPhase(8, v1::Phase::WRITTEN));
  coordinator_.Signal(SIGSTOP);
  auto storage = PosixStorage::Open(root_, false);
  ASSERT_TRUE(storage.ok());
  AbortRecord abort_record;
  abort_record.job = "demo";
  abort_record.step = 8;
  abort_record.attempt = 1;
  abort_record.reason = "RANK_LOST";
  abort_record.message = "aborted by another coordinator";
  ASSERT_EQ(*(*storage)->PutIfAbsent(OutcomePath("demo", 8, 1), EncodeOutcome(abort_record)), Put::kCreated);
  agents_[1]->Release();  // it writes once it is answered, and then everything is there for a commit
  coordinator_.Signal(SIGCONT);
  const absl::Status outcome = Outcome(8);
  EXPECT_TRUE(HasReason(outcome, Reason::kRankLost)) << outcome;
  EXPECT_EQ(outcome.message(), "aborted by another coordinator");
  EXPECT_TRUE(Steps().empty());
  SaveAll(8);
  EXPECT_TRUE(Outcome(8).ok());
  EXPECT_TRUE(HasFiles(8, 2));
  EXPECT_FALSE(HasFiles(8, 1));
}

TEST_F(CoordinatorEndTest, Save_CoordinatorIsFrozenBeyondTheLease_BlamesNobody) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();
  agents_[1]->HoldAt(v1::Phase::WRITING);
  SaveAll(8);
  ASSERT_TRUE(agents_[1]->WaitPhase(8, v1::Phase::WRITING));
  coordinator_.Signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  coordinator_.Signal(SIGCONT);
  agents_[1]->Release();
  EXPECT_TRUE(Outcome(8).ok());
}

// A throttled container: no stop is long, and an agent is not heard in between.
TEST_F(CoordinatorEndTest, Lease_CoordinatorIsStoppedInPieces_IsKept) {
  Start({"--lease-ttl=3s"});
  const auto stub = v1::AgentCoordinationService::NewStub(*AwaitChannel(*CoordinatorAt(address_, token_)));
  v1::AgentIdentity agent;
  agent.set_job("quiet");
  agent.set_incarnation(7);
  {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(30));
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = agent;
    request.set_world_size(1);
    request.set_root_proof(*ReadRootProof(**PosixStorage::Open(root_, false)));
    v1::RegisterAgentResponse response;
    const grpc::Status status = stub->RegisterAgent(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    agent.set_coordinator_epoch(response.coordinator_epoch());
  }
  for (int piece = 0; piece < 4; ++piece) {
    coordinator_.Signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1400));
    coordinator_.Signal(SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(30));
  v1::SynchronizeAgentRequest request;
  *request.mutable_agent() = agent;
  request.mutable_max_wait();
  v1::SynchronizeAgentResponse response;
  const grpc::Status status = stub->SynchronizeAgent(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(CoordinatorEndTest, Start_AnotherCoordinatorHasTheRoot_IsRefusedAndNamesIt) {
  Start();
  const std::string log = directory_.path() + "/second.log";
  Process second({"coordinator/cairn-coordinator", "--root", root_, "--lock-timeout=200ms"}, log);
  EXPECT_EQ(second.Wait(absl::Seconds(30)), 1);
  EXPECT_NE(ReadWhole(log).find("ROOT_IN_USE"), std::string::npos) << ReadWhole(log);
  EXPECT_NE(ReadWhole(log).find(absl::StrCat("process ", coordinator_.pid())), std::string::npos) << ReadWhole(log);
}

TEST_F(CoordinatorEndTest, Sigterm_SaveIsInFlight_DrainsIt) {
  Start();
  StartAgents();
  agents_[1]->HoldAt(v1::Phase::WRITING);
  SaveAll(2);
  ASSERT_TRUE(agents_[1]->WaitPhase(2, v1::Phase::WRITING));
  coordinator_.Signal(SIGTERM);
  for (;;) {
    const auto refused = Create(std::nullopt);
    if (HasReason(refused.status(), Reason::kCoordinatorUnreachable)) break;
  }
  agents_[1]->Release();
  EXPECT_TRUE(Outcome(2).ok());
  EXPECT_EQ(coordinator_.Wait(absl::Seconds(30)), 0);
}

}  // namespace
}  // namespace cairn::testing
