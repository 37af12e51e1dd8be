// Fake agents drive the real coordinator binary over gRPC. In whatever way it, an agent or a trainer ends or stands
// still, there must be one verdict in time that names the cause, and nothing may be half committed.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/base/random_id.h"
#include "common/file/posix.h"
#include "common/format/manifest.h"
#include "common/format/safetensors_header.h"
#include "common/format/verdict.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "common/storage/checkpoint_path.h"
#include "tests/testing/fake_agent.h"
#include "tests/testing/process.h"

namespace cairn::testing {
namespace {

using State = v1::Checkpoint;

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() {
    root_ = directory_.path() + "/root";
    std::filesystem::create_directory(root_);
    log_ = directory_.path() + "/coordinator.log";
    setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);  // the copies of tokens go there
  }
  ~CoordinatorTest() override {
    agents_.clear();
    if (HasFailure() || std::getenv("CAIRN_TEST_LOG") != nullptr) std::fprintf(stderr, "%s\n", ReadWhole(log_).c_str());
  }

  // Starts the coordinator, always at the same address.
  void Start(std::vector<std::string> flags = {"--phase-timeout=20s", "--lease-ttl=4s"}) {
    const std::string file = absl::StrCat(directory_.path(), "/address-", ++starts_);
    std::vector<std::string> command = {
        "coordinator/cairn-coordinator", "--root", root_, "--address-file", file, "--listen", port_.address()};
    command.insert(command.end(), flags.begin(), flags.end());
    flags_ = flags;
    coordinator_ = Process(command, log_);
    for (int i = 0; i < 3000 && !std::filesystem::exists(file); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    address_ = ReadWhole(file);
    while (!address_.empty() && address_.back() == '\n') address_.pop_back();
    ASSERT_FALSE(address_.empty()) << ReadWhole(log_);
    if (token_.empty()) token_ = ReadWhole(root_ + "/.cairn/token");
    stub_ = v1::CheckpointService::NewStub(MakeChannel(address_, 64 << 20));
  }
  void Restart() {
    coordinator_.Kill();
    Start(flags_);
  }

  FakeAgentOptions AgentOptions(int rank) {
    FakeAgentOptions options;
    options.coordinator = address_;
    options.root = root_;
    options.rank = rank;
    options.token = token_;
    return options;
  }
  void StartAgents(int count = 3) {
    for (int rank = 0; rank < count; ++rank) agents_.push_back(std::make_unique<FakeAgent>(AgentOptions(rank)));
    for (auto& agent : agents_) ASSERT_TRUE(agent->WaitRegistered());
  }
  void SaveAll(int64_t step) {
    for (auto& agent : agents_) agent->Save(step);
  }
  // Returns the verdict of all ranks, which must agree, as OK or the error of an abort.
  absl::Status Verdict(int64_t step, const std::vector<int>& except = {}) {
    absl::Status verdict = absl::UnknownError("no agent");
    for (size_t i = 0; i < agents_.size(); ++i) {
      if (std::find(except.begin(), except.end(), static_cast<int>(i)) != except.end()) continue;
      const absl::Status each = agents_[i]->WaitVerdict(step);
      if (verdict.code() == absl::StatusCode::kUnknown) verdict = each;
      EXPECT_EQ(each.ok(), verdict.ok()) << "rank " << i << ": " << each << "; another: " << verdict;
      EXPECT_EQ(ReasonOf(each), ReasonOf(verdict)) << "rank " << i;
    }
    return verdict;
  }

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::CheckpointService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                        Response*),
                    const Request& request, Response& response) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(60), token_);
    context.set_wait_for_ready(true);  // a coordinator that has just started may not listen yet
    return CallError((stub_.get()->*method)(&context, request, &response), PeerKind::kCoordinator, address_);
  }
  absl::StatusOr<v1::Checkpoint> Create(std::optional<int64_t> step = std::nullopt,
                                        const std::string& id = RandomToken(),
                                        absl::Duration timeout = absl::InfiniteDuration()) {
    v1::CreateCheckpointRequest request;
    request.set_job("demo");
    request.set_request_id(id);
    if (step.has_value()) request.set_step(*step);
    if (timeout != absl::InfiniteDuration()) request.mutable_timeout()->set_seconds(absl::ToInt64Seconds(timeout));
    v1::Checkpoint checkpoint;
    const absl::Status status = Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint);
    if (!status.ok()) return status;
    return checkpoint;
  }
  // Follows a request to its end, across restarts, as `cairn save` does.
  v1::Checkpoint Follow(v1::Checkpoint checkpoint, const std::string& id) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(90);
    while (checkpoint.state() != State::COMMITTED && checkpoint.state() != State::ABORTED) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "no end: " << checkpoint.ShortDebugString();
        return checkpoint;
      }
      v1::WaitCheckpointRequest request;
      request.set_job("demo");
      request.set_request_id(id);
      request.set_known_revision(checkpoint.revision());
      request.set_coordinator_epoch(checkpoint.coordinator_epoch());
      request.mutable_max_wait()->set_seconds(1);
      v1::Checkpoint next;
      const absl::Status status = Call(&v1::CheckpointService::Stub::WaitCheckpoint, request, next);
      if (status.ok()) {
        checkpoint = next;
      } else if (!HasReason(status, Reason::kCoordinatorUnreachable)) {
        ADD_FAILURE() << status;
        return checkpoint;
      }
    }
    return checkpoint;
  }
  std::vector<int64_t> Steps() {
    v1::ListCheckpointsRequest request;
    request.set_job("demo");
    v1::ListCheckpointsResponse response;
    const absl::Status status = Call(&v1::CheckpointService::Stub::ListCheckpoints, request, response);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<int64_t> steps;
    for (const v1::Checkpoint& checkpoint : response.checkpoints()) steps.push_back(checkpoint.step());
    return steps;
  }
  bool HasFiles(int64_t step, uint32_t attempt) {
    return std::filesystem::exists(absl::StrCat(root_, "/", AttemptDirectory("demo", step, attempt)));
  }
  // Checks that every file of the manifest is there, with its length and its header's checksum.
  void ExpectWhole(int64_t step) {
    v1::GetCheckpointRequest request;
    request.set_job("demo");
    request.set_step(step);
    v1::Checkpoint checkpoint;
    const absl::Status status = Call(&v1::CheckpointService::Stub::GetCheckpoint, request, checkpoint);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(checkpoint.state(), State::COMMITTED);
    const auto verdict =
        DecodeVerdict(ReadWhole(absl::StrCat(root_, "/", VerdictPath("demo", step, checkpoint.attempt()))));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    const Manifest& manifest = std::get<Manifest>(*verdict);
    EXPECT_EQ(manifest.world_size, 3u);
    EXPECT_EQ(manifest.tensors.size(), 2u);
    EXPECT_EQ(checkpoint.bytes(), manifest.total_bytes());
    for (const ManifestFile& file : manifest.files) {
      const std::string bytes = ReadWhole(absl::StrCat(root_, "/demo/", manifest.path_of(file)));
      ASSERT_EQ(bytes.size(), file.bytes()) << file.name;
      const auto header = ParseHeader(bytes.substr(0, file.header_bytes));
      EXPECT_TRUE(header.ok()) << header.status();
    }
  }

  TemporaryDirectory directory_;
  const ReservedPort port_;
  std::string root_;
  std::string log_;
  std::string address_;
  std::string token_;
  std::vector<std::string> flags_;
  int starts_ = 0;
  Process coordinator_;
  std::unique_ptr<v1::CheckpointService::Stub> stub_;
  std::vector<std::unique_ptr<FakeAgent>> agents_;
};

TEST_F(CoordinatorTest, Save_CalledByTrainers_IsCommittedAndWhole) {
  Start();
  StartAgents();
  SaveAll(10);
  EXPECT_TRUE(Verdict(10).ok());
  ExpectWhole(10);
  SaveAll(20);
  EXPECT_TRUE(Verdict(20).ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{10, 20}));
  // A save of a committed step is refused, and the first verdict stays.
  SaveAll(10);
  EXPECT_TRUE(HasReason(Verdict(10), Reason::kStepCommitted));
}

TEST_F(CoordinatorTest, Save_RequestedWithoutAStep_TakesAStepAheadOfAllRanks) {
  Start();
  StartAgents();
  std::atomic<bool> stop = false;
  std::vector<std::thread> trainers;
  for (size_t i = 0; i < agents_.size(); ++i) {
    trainers.emplace_back([&, i] {
      // Each trainer has its own pace.
      for (int64_t step = 1; !stop; ++step) {
        agents_[i]->ReportStep(step);
        std::this_thread::sleep_for(std::chrono::milliseconds(5 + 3 * i));
      }
    });
  }
  const std::string id = RandomToken();
  auto created = Create(std::nullopt, id);
  ASSERT_TRUE(created.ok()) << created.status();
  const v1::Checkpoint ended = Follow(*created, id);
  stop = true;
  for (std::thread& trainer : trainers) trainer.join();
  EXPECT_EQ(ended.state(), State::COMMITTED) << ended.ShortDebugString();
  ExpectWhole(ended.step());
  // The same request, also after a restart, gets the same answer and makes no other save.
  agents_.clear();
  Restart();
  created = Create(std::nullopt, id);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->state(), State::COMMITTED);
  EXPECT_EQ(created->step(), ended.step());
  EXPECT_EQ(Steps().size(), 1u);
}

TEST_F(CoordinatorTest, Save_ARankDoesNotMove_NamesItInEveryPhase) {
  Start({"--phase-timeout=1500ms", "--lease-ttl=4s"});
  StartAgents();
  int64_t step = 0;
  for (const auto& [phase, name] :
       {std::pair(v1::SaveState::STAGING, "staging"), {v1::SaveState::WRITING, "writing"}}) {
    agents_[1]->HoldAt(phase);
    SaveAll(++step);
    const absl::Status verdict = Verdict(step);
    EXPECT_TRUE(HasReason(verdict, Reason::kRankLate)) << verdict;
    EXPECT_EQ(MetadataOf(verdict)["ranks"], "1");
    EXPECT_EQ(MetadataOf(verdict)["phase"], name);
    EXPECT_EQ(MetadataOf(verdict)["step"], absl::StrCat(step));
    agents_[1]->Release();
    // The attempt's files are gone, and the step can be saved at once.
    SaveAll(step);
    EXPECT_TRUE(Verdict(step).ok());
    EXPECT_FALSE(HasFiles(step, 1));
    ExpectWhole(step);
  }
  // The trainer of rank 1 does not come.
  agents_[0]->Save(7);
  agents_[2]->Save(7);
  const absl::Status verdict = Verdict(7, {1});
  EXPECT_TRUE(HasReason(verdict, Reason::kRankLate)) << verdict;
  EXPECT_EQ(MetadataOf(verdict)["ranks"], "1");
  EXPECT_EQ(MetadataOf(verdict)["phase"], "waiting");
  EXPECT_EQ(MetadataOf(verdict)["last_committed"], "2");
  // It comes after all and hears the same, and the next save works.
  agents_[1]->Save(7);
  EXPECT_TRUE(HasReason(agents_[1]->WaitVerdict(7), Reason::kRankLate));
  SaveAll(7);
  EXPECT_TRUE(Verdict(7).ok());
}

TEST_F(CoordinatorTest, Save_AgentIsKilled_NamesItAndTheNextOneWorks) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();
  agents_[2]->HoldAt(v1::SaveState::WRITING);
  SaveAll(5);
  ASSERT_TRUE(agents_[2]->WaitPhase(5, v1::SaveState::WRITING));
  agents_[2]->Kill();
  const absl::Status verdict = Verdict(5, {2});
  EXPECT_TRUE(HasReason(verdict, Reason::kRankLost)) << verdict;
  EXPECT_EQ(MetadataOf(verdict)["ranks"], "2");
  EXPECT_EQ(MetadataOf(verdict)["phase"], "writing");
  agents_[2] = std::make_unique<FakeAgent>(AgentOptions(2));
  ASSERT_TRUE(agents_[2]->WaitRegistered());
  SaveAll(6);
  EXPECT_TRUE(Verdict(6).ok());
  EXPECT_EQ(Steps(), std::vector<int64_t>{6});
}

TEST_F(CoordinatorTest, Save_TrainerIsLostWhileStaging_NamesIt) {
  Start();
  StartAgents();
  agents_[1]->HoldAt(v1::SaveState::STAGING);
  SaveAll(5);
  ASSERT_TRUE(agents_[1]->WaitPhase(5, v1::SaveState::STAGING));
  agents_[1]->LoseTrainer();
  const absl::Status verdict = Verdict(5);
  EXPECT_TRUE(HasReason(verdict, Reason::kTrainerLost)) << verdict;
  EXPECT_EQ(MetadataOf(verdict)["ranks"], "1");
}

TEST_F(CoordinatorTest, Save_DisksOfSeveralRanksFail_ReportsAllTogether) {
  Start();
  StartAgents();
  for (int rank : {0, 2}) {
    agents_[static_cast<size_t>(rank)]->FailWith(
        MakeError(Reason::kNoSpace, "write /ckpt/x: No space left on device", {{"errno", "28"}}));
  }
  SaveAll(5);
  const absl::Status verdict = Verdict(5);
  EXPECT_TRUE(HasReason(verdict, Reason::kNoSpace)) << verdict;
  EXPECT_EQ(MetadataOf(verdict)["ranks"], "0, 2");
  EXPECT_EQ(MetadataOf(verdict)["errno"], "28");
  EXPECT_FALSE(HasFiles(5, 1));
}

TEST_F(CoordinatorTest, Save_AReplicaDiffers_IsRefusedByName) {
  Start();
  for (int rank = 0; rank < 3; ++rank) {
    FakeAgentOptions options = AgentOptions(rank);
    options.diverged = rank == 1;
    agents_.push_back(std::make_unique<FakeAgent>(options));
  }
  for (auto& agent : agents_) ASSERT_TRUE(agent->WaitRegistered());
  SaveAll(1);
  const absl::Status verdict = Verdict(1);
  EXPECT_TRUE(HasReason(verdict, Reason::kReplicaMismatch)) << verdict;
  EXPECT_NE(verdict.message().find("tensor b "), std::string::npos) << verdict;
  EXPECT_TRUE(Steps().empty());
}

TEST_F(CoordinatorTest, Save_NamesAreDropped_IsRefusedUnlessAllowed) {
  Start();
  StartAgents();
  SaveAll(1);
  ASSERT_TRUE(Verdict(1).ok());
  agents_.clear();
  Restart();
  for (int rank = 0; rank < 3; ++rank) {
    FakeAgentOptions options = AgentOptions(rank);
    options.without_b = true;
    agents_.push_back(std::make_unique<FakeAgent>(options));
  }
  SaveAll(2);
  const absl::Status verdict = Verdict(2);
  EXPECT_TRUE(HasReason(verdict, Reason::kNamesDropped)) << verdict;
  EXPECT_EQ(MetadataOf(verdict)["names"], "b");
  for (auto& agent : agents_) agent->Save(2, /*allow_dropped_names=*/true);
  EXPECT_TRUE(Verdict(2).ok());
}

// The coordinator is killed while rank 1 stands still in each phase; the save goes on under the next coordinator.
TEST_F(CoordinatorTest, Save_CoordinatorIsKilledInAnyPhase_GoesOn) {
  Start();
  StartAgents();
  int64_t step = 0;
  uint64_t epoch = 1;
  for (v1::SaveState::Phase phase :
       {v1::SaveState::STAGING, v1::SaveState::STAGED, v1::SaveState::WRITING, v1::SaveState::WRITTEN}) {
    agents_[1]->HoldAt(phase);
    if (phase == v1::SaveState::WRITTEN) agents_[0]->HoldAt(v1::SaveState::STAGED);
    SaveAll(++step);
    ASSERT_TRUE(agents_[1]->WaitPhase(step, phase)) << phase;
    Restart();
    ++epoch;
    agents_[0]->Release();
    agents_[1]->Release();
    EXPECT_TRUE(Verdict(step).ok()) << v1::SaveState::Phase_Name(phase) << ": " << Verdict(step);
    EXPECT_EQ(agents_[1]->epoch(), epoch);
    ExpectWhole(step);
  }
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST_F(CoordinatorTest, Save_CoordinatorAndAgentAreKilled_AbortsCleanly) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();
  agents_[1]->HoldAt(v1::SaveState::WRITING);
  SaveAll(3);
  ASSERT_TRUE(agents_[1]->WaitPhase(3, v1::SaveState::WRITING));
  coordinator_.Kill();
  agents_[1]->Kill();
  Start(flags_);
  agents_[1] = std::make_unique<FakeAgent>(AgentOptions(1));
  const absl::Status verdict = Verdict(3, {1});
  EXPECT_TRUE(HasReason(verdict, Reason::kRankLost)) << verdict;
  EXPECT_EQ(MetadataOf(verdict)["ranks"], "1");
  EXPECT_FALSE(HasFiles(3, 1));
  SaveAll(4);
  EXPECT_TRUE(Verdict(4).ok());
}

TEST_F(CoordinatorTest, Save_CoordinatorRestartsInPreparing_EndsTheRequestByName) {
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

// The coordinator is frozen just before it commits, and finds a tombstone when it wakes up.
TEST_F(CoordinatorTest, Save_TombstoneStandsWhenAFrozenCoordinatorWakes_IsNotCommitted) {
  Start({"--phase-timeout=60s", "--lease-ttl=10s"});
  StartAgents();
  agents_[1]->HoldAt(v1::SaveState::WRITING);
  SaveAll(8);
  ASSERT_TRUE(agents_[0]->WaitPhase(8, v1::SaveState::WRITTEN));
  ASSERT_TRUE(agents_[2]->WaitPhase(8, v1::SaveState::WRITTEN));
  coordinator_.Signal(SIGSTOP);
  auto storage = PosixStorage::Open(root_, false);
  ASSERT_TRUE(storage.ok());
  Tombstone tombstone;
  tombstone.job = "demo";
  tombstone.step = 8;
  tombstone.attempt = 1;
  tombstone.reason = "RANK_LOST";
  tombstone.message = "aborted by another coordinator";
  ASSERT_EQ(*(*storage)->PutIfAbsent(VerdictPath("demo", 8, 1), EncodeVerdict(tombstone)), PosixStorage::Put::kCreated);
  agents_[1]->Release();  // it writes once it is answered, and then everything is there for a commit
  coordinator_.Signal(SIGCONT);
  const absl::Status verdict = Verdict(8);
  EXPECT_TRUE(HasReason(verdict, Reason::kRankLost)) << verdict;
  EXPECT_EQ(verdict.message(), "aborted by another coordinator");
  EXPECT_TRUE(Steps().empty());
  SaveAll(8);
  EXPECT_TRUE(Verdict(8).ok());
  EXPECT_TRUE(HasFiles(8, 2));
  EXPECT_FALSE(HasFiles(8, 1));
}

TEST_F(CoordinatorTest, Save_CoordinatorIsFrozenBeyondTheLease_BlamesNobody) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();
  agents_[1]->HoldAt(v1::SaveState::WRITING);
  SaveAll(8);
  ASSERT_TRUE(agents_[1]->WaitPhase(8, v1::SaveState::WRITING));
  coordinator_.Signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  coordinator_.Signal(SIGCONT);
  agents_[1]->Release();
  EXPECT_TRUE(Verdict(8).ok());
}

TEST_F(CoordinatorTest, Start_AnotherCoordinatorHasTheRoot_IsRefusedAndNamesIt) {
  Start();
  const std::string log = directory_.path() + "/second.log";
  Process second({"coordinator/cairn-coordinator", "--root", root_, "--lock-timeout=200ms"}, log);
  EXPECT_EQ(second.Wait(absl::Seconds(30)), 1);
  EXPECT_NE(ReadWhole(log).find("ROOT_IN_USE"), std::string::npos) << ReadWhole(log);
  EXPECT_NE(ReadWhole(log).find(absl::StrCat("process ", coordinator_.pid())), std::string::npos) << ReadWhole(log);
}

TEST_F(CoordinatorTest, Sigterm_SaveIsInFlight_DrainsIt) {
  Start();
  StartAgents();
  agents_[1]->HoldAt(v1::SaveState::WRITING);
  SaveAll(2);
  ASSERT_TRUE(agents_[1]->WaitPhase(2, v1::SaveState::WRITING));
  coordinator_.Signal(SIGTERM);
  for (;;) {
    const auto refused = Create(std::nullopt);
    if (HasReason(refused.status(), Reason::kCoordinatorUnreachable)) break;
  }
  agents_[1]->Release();
  EXPECT_TRUE(Verdict(2).ok());
  EXPECT_EQ(coordinator_.Wait(absl::Seconds(30)), 0);
}

TEST_F(CoordinatorTest, Load_AllRanksAsk_IsPlannedOnce) {
  Start();
  StartAgents();
  for (auto& agent : agents_) agent->Load(1, std::nullopt);
  for (auto& agent : agents_) {
    const auto order = agent->WaitLoad(1);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_TRUE(HasReason(StatusFromProto(order->error()), Reason::kNotCommitted)) << order->ShortDebugString();
  }
  SaveAll(4);
  ASSERT_TRUE(Verdict(4).ok());
  for (auto& agent : agents_) agent->Load(2, std::nullopt);
  uint64_t read = 0;
  for (auto& agent : agents_) {
    const auto order = agent->WaitLoad(2);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_EQ(order->action(), v1::LoadOrder::DONE) << order->ShortDebugString();
    EXPECT_EQ(order->step(), 4);
    EXPECT_EQ(order->total_bytes_read(), order->unique_bytes());
    EXPECT_EQ(order->io_path(), v1::IO_PATH_DIRECT);
    read += agent->read_plan().read_bytes();
    if (agent == agents_.back()) {
      EXPECT_EQ(read, order->total_bytes_read());
    }
  }
  // The ranks ask for different loads.
  agents_[0]->Load(3, 4);
  agents_[1]->Load(3, std::nullopt);
  agents_[2]->Load(3, 4);
  for (auto& agent : agents_) {
    const auto order = agent->WaitLoad(3);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_TRUE(HasReason(StatusFromProto(order->error()), Reason::kBadRequest)) << order->ShortDebugString();
  }
}

TEST_F(CoordinatorTest, Request_BadValues_IsRefusedByReason) {
  Start({"--phase-timeout=20s", "--lease-ttl=1s"});
  v1::Checkpoint checkpoint;
  v1::CreateCheckpointRequest request;
  request.set_job("Bad Name");
  request.set_request_id("r");
  EXPECT_TRUE(
      HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kBadJobName));
  request.set_job("demo");
  request.set_step(-1);
  EXPECT_TRUE(HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kBadStep));
  request.clear_step();
  request.set_request_id("");
  EXPECT_TRUE(
      HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(Create().status(), Reason::kJobNotFound));
  request.set_request_id(std::string(5 << 20, 'x'));
  EXPECT_TRUE(
      HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kMessageTooLarge));
  v1::ListCheckpointsRequest list;
  list.set_job("demo");
  list.set_page_token("not mine");
  v1::ListCheckpointsResponse page;
  EXPECT_TRUE(HasReason(Call(&v1::CheckpointService::Stub::ListCheckpoints, list, page), Reason::kBadRequest));
  StartAgents();
  // One agent claims a rank that is taken, the other has another world size.
  FakeAgent twin(AgentOptions(1));
  FakeAgentOptions other = AgentOptions(3);
  other.world_size = 4;
  FakeAgent stranger(other);
  for (auto [agent, reason] : {std::pair(&twin, Reason::kRankConflict), {&stranger, Reason::kWorldSizeMismatch}}) {
    while (agent->registration_errors().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(HasReason(agent->registration_errors()[0], reason)) << agent->registration_errors()[0];
  }
  SaveAll(1);
  ASSERT_TRUE(Verdict(1).ok());
  EXPECT_TRUE(HasReason(Create(1).status(), Reason::kStepCommitted));
  for (auto& agent : agents_) agent->ReportStep(9);
  for (int i = 0; i < 100; ++i) {
    const auto passed = Create(9, absl::StrCat("p", i), absl::Seconds(1));
    if (!passed.ok()) {
      EXPECT_TRUE(HasReason(passed.status(), Reason::kStepPassed)) << passed.status();
      break;
    }
  }
}

TEST_F(CoordinatorTest, Request_WithoutTheToken_IsRefused) {
  token_ = "a token of more than sixteen characters";
  const std::string file = directory_.path() + "/token";
  std::ofstream(file) << token_ << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  Start({"--phase-timeout=20s", "--lease-ttl=4s", "--token-file=" + file});
  StartAgents();
  SaveAll(1);
  EXPECT_TRUE(Verdict(1).ok());
  const std::string right = token_;
  for (const char* wrong : {"", "another token, just as long as that"}) {
    token_ = wrong;
    EXPECT_TRUE(HasReason(Create().status(), Reason::kBadToken));
    FakeAgent stranger(AgentOptions(0));
    while (stranger.registration_errors().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(HasReason(stranger.registration_errors()[0], Reason::kBadToken));
  }
  token_ = right;
}

TEST_F(CoordinatorTest, Request_CancelledOrTimedOut_EndsByName) {
  Start();
  StartAgents();
  for (auto& agent : agents_) agent->ReportStep(1);
  // The step is far away, so the ranks agree on it and the save waits for it.
  auto created = Create(1000, "far", absl::Seconds(2));
  ASSERT_TRUE(created.ok()) << created.status();
  v1::Checkpoint ended = Follow(*created, "far");
  EXPECT_TRUE(HasReason(StatusFromProto(ended.error()), Reason::kRankLate)) << ended.ShortDebugString();
  EXPECT_EQ(MetadataOf(StatusFromProto(ended.error()))["ranks"], "0, 1, 2");
  created = Create(2000, "cancelled");
  ASSERT_TRUE(created.ok()) << created.status();
  v1::CancelCheckpointRequest cancel;
  cancel.set_job("demo");
  cancel.set_request_id("cancelled");
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(Call(&v1::CheckpointService::Stub::CancelCheckpoint, cancel, checkpoint).ok());
  ended = Follow(*created, "cancelled");
  EXPECT_TRUE(HasReason(StatusFromProto(ended.error()), Reason::kSaveCancelled)) << ended.ShortDebugString();
  SaveAll(3);
  EXPECT_TRUE(Verdict(3).ok());
}

}  // namespace
}  // namespace cairn::testing
