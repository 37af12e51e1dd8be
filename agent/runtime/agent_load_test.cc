// Loads of two real agents: the transports, what damage they find, and how they end.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "agent/testing/agent_fixture.h"
#include "agent/testing/half_states.h"
#include "agent/testing/running_agent.h"
#include "agent/transport/exchange.h"
#include "agent/transport/host_exchange.h"
#include "agent/transport/transfer_service.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::Contents;
using testing::ExpectWhole;
using testing::FakeTrainer;
using testing::HalfLayout;
using testing::HalfReadPlan;
using testing::MakeWritePlan;
using testing::RunningAgent;
using testing::WholeLayout;

// Two agents that save halves; then both load everything whole, each reading its own file in several rounds.
class AgentLoadTest : public AgentFixture {
 protected:
  void SetUp() override {
    AgentFixture::SetUp();
    Start(true);
  }

  void Start(bool shared_memory) {
    trainers_.clear();
    agents_.clear();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      AgentOptions options = Options(rank, 2);
      options.shared_memory = shared_memory;
      options.slab_loads = slab_loads_;
      agents_.push_back(std::make_unique<RunningAgent>(options));
      trainers_.push_back(std::make_unique<FakeTrainer>(agents_[rank]->address()));
      ASSERT_TRUE(trainers_[rank]->Attach().ok());
    }
  }

  std::string FileOf(uint32_t rank) {
    return root_ + "/demo/000000000007/0001/" + BinName(static_cast<int>(rank), 0) + ".safetensors";
  }

  void Save() {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const RankLayoutPtr layout = HalfLayout(rank);
      const std::string plan = MakeWritePlan(*layout, rank, {{1, 0, 2}}, "save-plan").SerializeAsString();
      coordinator_.AddPlan(rank, "save-plan", plan);
      OrderSave(rank, SaveOrderOf(7, v1::Phase::WRITING, "save-plan"));
      auto begun = trainers_[rank]->BeginSave(*layout, 7);
      ASSERT_TRUE(begun.ok()) << begun.status();
      const auto contents = Contents(*layout, std::to_string(rank));
      ASSERT_TRUE(trainers_[rank]->Fill(*begun, contents).ok());
      ASSERT_TRUE(trainers_[rank]->Commit(*begun, {}).ok());
      written_[rank] = AwaitPhase(rank, 7, v1::Phase::WRITTEN).result().files(0);
      OrderSave(rank, SaveOrderOf(7, v1::Phase::COMMITTED, "save-plan"));
      coordinator_.Await(rank, [](const v1::AgentState& state) { return state.saves_size() == 0; });
    }
  }

  v1::LoadOrder LoadOrderOf(v1::Phase::Value action, const std::string& token = "load-secret") {
    v1::LoadOrder order;
    order.set_number(1);
    order.set_phase(action);
    order.set_step(7);
    order.set_plan_digest("load-plan");
    order.set_transfer_token(token);
    return order;
  }

  void OrderLoad(uint32_t rank, const v1::LoadOrder& order) {
    v1::SynchronizeAgentResponse orders;
    *orders.add_loads() = order;
    coordinator_.Order(rank, orders);
  }

  v1::LoadState AwaitLoad(uint32_t rank, v1::Phase::Value phase) {
    const v1::AgentState state = coordinator_.Await(
        rank, [&](const v1::AgentState& now) { return now.loads_size() == 1 && now.loads(0).phase() == phase; });
    return state.loads_size() == 1 ? state.loads(0) : v1::LoadState();
  }

  // Both ranks begin and receive, side by side. Returns the status of each.
  std::vector<absl::Status> Receive(std::vector<std::vector<std::string>>& targets) {
    const RankLayoutPtr layout = WholeLayout();
    std::vector<absl::Status> results(2);
    targets.assign(2, {});
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (const StoredItem& item : layout->items) targets[rank].emplace_back(item.bytes(), '\0');
      threads.emplace_back([&, rank] {
        auto begun = trainers_[rank]->BeginLoad(*layout, 1);
        results[rank] = begun.ok() ? trainers_[rank]->Receive(1, targets[rank]) : begun.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  void RunLoad(const std::string& transport) {
    Save();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      coordinator_.AddPlan(rank, "load-plan", HalfReadPlan(rank, written_[rank]).SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::Phase::READING));
    }
    std::vector<std::vector<std::string>> targets;
    for (const absl::Status& status : Receive(targets)) ASSERT_TRUE(status.ok()) << status;
    for (const auto& target : targets) ExpectWhole(target);
    // A trainer that maps sees the other agent's socket too. One that fetches sees only its own agent's.
    EXPECT_EQ(trainers_[0]->sources().size(), transport == "shared-memory" ? 2u : 1u);
    std::vector<std::thread> enders;
    std::vector<absl::StatusOr<v1::EndLoadResponse>> ended(2, absl::UnknownError(""));
    for (uint32_t rank = 0; rank < 2; ++rank)
      enders.emplace_back([&, rank] { ended[rank] = trainers_[rank]->EndLoad(1); });
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::LoadState done = AwaitLoad(rank, v1::Phase::DONE);
      EXPECT_EQ(done.bytes_done(), done.bytes_total());
      EXPECT_GE(done.storage_bytes(), done.bytes_total());
      EXPECT_NE(done.io_path(), v1::IO_PATH_UNSPECIFIED);
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      v1::LoadOrder done = LoadOrderOf(v1::Phase::DONE);
      done.set_total_bytes_read(11);
      OrderLoad(rank, done);
    }
    for (std::thread& thread : enders) thread.join();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(ended[rank].ok()) << ended[rank].status();
      EXPECT_EQ(ended[rank]->bytes_read(), HalfReadPlan(rank, written_[rank]).read_bytes());
      EXPECT_EQ(ended[rank]->total_bytes_read(), 11u);
      coordinator_.Await(rank, [](const v1::AgentState& state) { return state.loads_size() == 0; });
    }
  }

  // Damages rank 1's file, loads, and gives what rank 1 tells the coordinator.
  v1::LoadState LoadDamaged(const std::function<void(const std::string&)>& damage) {
    Save();
    damage(FileOf(1));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      coordinator_.AddPlan(rank, "load-plan", HalfReadPlan(rank, written_[rank]).SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::Phase::READING));
    }
    std::vector<std::vector<std::string>> targets;
    for (const absl::Status& status : Receive(targets)) EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    const v1::LoadState failed = AwaitLoad(1, v1::Phase::FAILED);
    // After the order to abort nothing is held any more.
    for (uint32_t rank = 0; rank < 2; ++rank) {
      v1::LoadOrder abort = LoadOrderOf(v1::Phase::ABORTING);
      *abort.mutable_error() = failed.error();
      OrderLoad(rank, abort);
      AwaitLoad(rank, v1::Phase::STOPPED);
      EXPECT_TRUE(agents_[rank]->agent().loads().empty());
    }
    return failed;
  }

  void AbortSourceFirst() {
    Save();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::ReadPlan plan = HalfReadPlan(rank, written_[rank], {0, 200'000, 400'000, 600'000, 800'000, 1'000'000});
      coordinator_.AddPlan(rank, "load-plan", plan.SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::Phase::READING));
    }
    // Rank 1 begins and takes nothing, so its later rounds do not come.
    ASSERT_TRUE(trainers_[1]->BeginLoad(*WholeLayout(), 1).ok());
    absl::Status received;
    std::thread consumer([&] {
      const RankLayoutPtr layout = WholeLayout();
      std::vector<std::string> targets;
      for (const StoredItem& item : layout->items) targets.emplace_back(item.bytes(), '\0');
      const auto begun = trainers_[0]->BeginLoad(*layout, 1);
      received = begun.ok() ? trainers_[0]->Receive(1, targets) : begun.status();
    });
    AwaitLoad(0, v1::Phase::READING);
    v1::LoadOrder abort = LoadOrderOf(v1::Phase::ABORTING);
    *abort.mutable_error() = StatusToProto(MakeError(Reason::kRankLate, "demo: rank 1 is late", {{"ranks", "1"}}));
    OrderLoad(1, abort);
    AwaitLoad(1, v1::Phase::STOPPED);
    OrderLoad(0, abort);
    AwaitLoad(0, v1::Phase::STOPPED);
    consumer.join();
    EXPECT_TRUE(HasReason(received, Reason::kRankLate)) << received;
    EXPECT_EQ(MetadataOf(received)["ranks"], "1");
  }

  bool slab_loads_ = false;
  std::vector<std::unique_ptr<RunningAgent>> agents_;
  std::vector<std::unique_ptr<FakeTrainer>> trainers_;
  v1::FileResult written_[2];
};

TEST_F(AgentLoadTest, Load_SameMachine_TrainersCopyOutOfBothAgentsBuffers) { RunLoad("shared-memory"); }

TEST_F(AgentLoadTest, Load_WithoutSharedMemory_BytesAreFetched) {
  Start(false);
  RunLoad("grpc");
}

TEST_F(AgentLoadTest, Load_FlippedBit_IsFoundWithFileOffsetAndTensor) {
  const v1::LoadState failed = LoadDamaged([](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1'100'000);
    file.put('!');
  });
  const absl::Status error = StatusFromProto(failed.error());
  EXPECT_TRUE(HasReason(error, Reason::kChecksumMismatch)) << error;
  EXPECT_EQ(MetadataOf(error)["tensor"], "b.big");
  EXPECT_EQ(MetadataOf(error)["file"], FileOf(1));
  // The block of 1 MiB that has the byte.
  const uint64_t offset = std::stoull(MetadataOf(error)["offset"]);
  EXPECT_LE(offset, 1'100'000u);
  EXPECT_GT(offset + (1 << 20), 1'100'000u);
}

TEST_F(AgentLoadTest, Load_FlippedBitInHeader_IsFound) {
  const v1::LoadState failed = LoadDamaged([](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('!');
  });
  EXPECT_TRUE(HasReason(StatusFromProto(failed.error()), Reason::kChecksumMismatch));
}

TEST_F(AgentLoadTest, Load_TruncatedFile_IsFound) {
  const v1::LoadState failed =
      LoadDamaged([](const std::string& path) { std::filesystem::resize_file(path, 1'000'000); });
  EXPECT_TRUE(HasReason(StatusFromProto(failed.error()), Reason::kFileTruncated));
}

TEST_F(AgentLoadTest, Load_MissingFile_IsFound) {
  const v1::LoadState failed = LoadDamaged([](const std::string& path) { std::filesystem::remove(path); });
  EXPECT_TRUE(HasReason(StatusFromProto(failed.error()), Reason::kFileMissing));
}

TEST_F(AgentLoadTest, Peers_DuringALoad_AreAskedForOnceAndOnlyTheOtherSources) {
  RunLoad("shared-memory");
  EXPECT_EQ(coordinator_.peer_requests(0), std::vector<std::vector<uint32_t>>({{1}}));
  EXPECT_EQ(coordinator_.peer_requests(1), std::vector<std::vector<uint32_t>>({{0}}));
}

TEST_F(AgentLoadTest, Load_SourceThatNobodyHolds_EndsByName) {
  coordinator_.Hide(1);
  Save();
  coordinator_.AddPlan(0, "load-plan", HalfReadPlan(0, written_[0]).SerializeAsString());
  OrderLoad(0, LoadOrderOf(v1::Phase::READING));
  std::thread trainer([&] { (void)trainers_[0]->BeginLoad(*WholeLayout(), 1); });
  const absl::Status error = StatusFromProto(AwaitLoad(0, v1::Phase::FAILED).error());
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_NE(error.message().find("no address of rank 1"), std::string::npos) << error;
  trainer.join();
}

TEST_F(AgentLoadTest, AwaitRound_WithoutTheLoadsToken_GetsNothing) {
  Save();
  coordinator_.AddPlan(0, "load-plan", HalfReadPlan(0, written_[0]).SerializeAsString());
  OrderLoad(0, LoadOrderOf(v1::Phase::READING, "secret"));
  std::thread trainer([&] { EXPECT_TRUE(trainers_[0]->BeginLoad(*WholeLayout(), 1).ok()); });
  AwaitLoad(0, v1::Phase::READING);
  trainer.join();
  const v1::RegisterAgentRequest source = coordinator_.registration(0);
  const auto stub = v1::TransferService::NewStub(MakeChannel(source.transfer_address()));
  const auto ask = [&](const std::string& number_of, const std::string& token, uint64_t process = 0) {
    v1::AwaitRoundRequest request;
    v1::TransferIdentity& transfer = *request.mutable_transfer();
    transfer.set_job("demo");
    transfer.set_plan_digest("load-plan");
    transfer.set_load_number(TransferService::Key::OfLoad("load-plan", number_of).load_number);
    transfer.set_consumer_rank(1);
    transfer.set_source_incarnation(process != 0 ? process : source.agent().incarnation());
    transfer.set_token(token);
    request.mutable_max_wait()->set_nanos(1);
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(30));
    v1::AwaitRoundResponse response;
    return CallError(stub->AwaitRound(&context, request, &response), ServerRole::kAgent, source.transfer_address());
  };
  while (HasReason(ask("secret", "secret"), Reason::kPlanUnknown)) std::this_thread::yield();  // it is being begun
  EXPECT_TRUE(ask("secret", "secret").ok());
  EXPECT_TRUE(HasReason(ask("secret", "guess"), Reason::kBadToken));
  EXPECT_TRUE(HasReason(ask("guess", "guess"), Reason::kPlanUnknown)) << "of another load, or none";
  EXPECT_TRUE(HasReason(ask("secret", "secret", 77), Reason::kStaleIncarnation)) << "of the process before this one";
}

TEST_F(AgentLoadTest, Load_SourceAbortsFirst_ConsumerTellsWhatTheCoordinatorSays) { AbortSourceFirst(); }

TEST_F(AgentLoadTest, Load_SourceAbortsFirstWithoutSharedMemory_ConsumerTellsWhatTheCoordinatorSays) {
  Start(false);
  AbortSourceFirst();
}

TEST_F(AgentLoadTest, Load_TrainerDies_Fails) {
  Save();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    coordinator_.AddPlan(rank, "load-plan", HalfReadPlan(rank, written_[rank]).SerializeAsString());
    OrderLoad(rank, LoadOrderOf(v1::Phase::READING));
  }
  ASSERT_TRUE(trainers_[0]->BeginLoad(*WholeLayout(), 1).ok());
  AwaitLoad(0, v1::Phase::READING);
  agents_[0]->agent().TrainerGone(trainers_[0]->incarnation(), TrainerEnd::kEnded);
  EXPECT_TRUE(HasReason(StatusFromProto(AwaitLoad(0, v1::Phase::FAILED).error()), Reason::kTrainerLost));
}

// The agents take what they wrote from their slabs. The files are gone.
class SlabLoadTest : public AgentLoadTest {
 protected:
  SlabLoadTest() { slab_loads_ = true; }

  // Orders a load of what Save has saved, by rounds of 200,000 bytes.
  void OrderReads() {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::ReadPlan plan = HalfReadPlan(rank, written_[rank], {0, 200'000, 400'000, 600'000, 800'000, 1'000'000});
      coordinator_.AddPlan(rank, "load-plan", plan.SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::Phase::READING));
    }
  }
  void Spoil(uint32_t rank) {
    std::fstream file(FileOf(rank), std::ios::in | std::ios::out | std::ios::binary);
    const std::string zeros(std::filesystem::file_size(FileOf(rank)), '\0');
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  }
};

TEST_F(SlabLoadTest, Load_FilesAreSpoiled_ComesFromTheSlabs) {
  Save();
  Spoil(0);
  Spoil(1);
  OrderReads();
  std::vector<std::vector<std::string>> targets;
  for (const absl::Status& status : Receive(targets)) ASSERT_TRUE(status.ok()) << status;
  for (const auto& target : targets) ExpectWhole(target);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const v1::AgentState state = coordinator_.Await(rank, [](const v1::AgentState& now) {
      return now.loads_size() == 1 && now.loads(0).io_path() != v1::IO_PATH_UNSPECIFIED;
    });
    EXPECT_EQ(state.loads(0).io_path(), v1::IO_PATH_SLAB);
    EXPECT_EQ(state.loads(0).storage_bytes(), 0u);
    EXPECT_EQ(state.loads(0).kept_step(), 7);
    EXPECT_EQ(state.loads(0).kept_attempt(), 1u);
  }
}

// The next save overwrites the slab of rank 0 while rank 1's trainer has not taken its rounds yet.
TEST_F(SlabLoadTest, Save_BeginsWhileALoadIsUnderWay_GetsTheSlabAndTheLoadGoesOnWithFiles) {
  Save();
  OrderReads();
  ASSERT_TRUE(trainers_[0]->BeginLoad(*WholeLayout(), 1).ok());
  ASSERT_TRUE(trainers_[1]->BeginLoad(*WholeLayout(), 1).ok());
  AwaitLoad(0, v1::Phase::READING);
  OrderSave(0, SaveOrderOf(8, v1::Phase::STAGING, "save-plan"));
  const RankLayoutPtr layout = HalfLayout(0);
  auto begun = trainers_[0]->BeginSave(*layout, 8);
  ASSERT_TRUE(begun.ok()) << begun.status();
  ASSERT_TRUE(trainers_[0]->Fill(*begun, Contents(*layout, "other")).ok());
  std::vector<std::vector<std::string>> targets;
  for (const absl::Status& status : Receive(targets)) ASSERT_TRUE(status.ok()) << status;
  for (const auto& target : targets) ExpectWhole(target);
  const v1::AgentState state = coordinator_.Await(
      0, [](const v1::AgentState& now) { return now.loads_size() == 1 && now.loads(0).storage_bytes() > 0; });
  EXPECT_GT(state.loads(0).storage_bytes(), 0u);
}

// A load's part in an exchange for which the system has no memory left when it begins to serve other ranks.
class StarvedLoad : public LoadExchange {
 public:
  explicit StarvedLoad(std::atomic<bool>& stopped) : stopped_(stopped) {}
  ~StarvedLoad() override { EXPECT_TRUE(stopped_); }

  void Serve(Load) override { throw std::bad_alloc(); }
  void StopServing() override { EXPECT_FALSE(stopped_); }
  const std::shared_ptr<WindowOffers>& offers() const override { return offers_; }
  void Prepare() override {}
  absl::Status Begin(uint64_t) override { return absl::OkStatus(); }
  void GoByHost() override {}
  void Stop(const absl::Status& why) override {
    EXPECT_TRUE(HasReason(why, Reason::kPlanUnknown)) << why;
    stopped_ = true;
  }
  bool ended() override { return true; }

 private:
  std::atomic<bool>& stopped_;
  std::shared_ptr<WindowOffers> offers_;
};

class StarvedExchange : public HostExchange {
 public:
  explicit StarvedExchange(std::atomic<bool>& stopped) : stopped_(stopped) {}
  absl::StatusOr<std::shared_ptr<LoadExchange>> OfLoad(const action::StartRead&) override {
    return std::make_shared<StarvedLoad>(stopped_);
  }

 private:
  std::atomic<bool>& stopped_;
};

TEST_F(AgentLoadTest, Load_MemoryIsRefusedAfterItIsServed_EndsWhatHasBegun) {
  Save();
  std::atomic<bool> stopped = false;
  trainers_[0].reset();
  agents_[0].reset();
  AgentOptions options = Options(0, 2);
  agents_[0] = std::make_unique<RunningAgent>(options, std::make_unique<StarvedExchange>(stopped));
  trainers_[0] = std::make_unique<FakeTrainer>(agents_[0]->address());
  ASSERT_TRUE(trainers_[0]->Attach().ok());
  coordinator_.AddPlan(0, "load-plan", HalfReadPlan(0, written_[0]).SerializeAsString());
  v1::LoadOrder order = LoadOrderOf(v1::Phase::READING);
  order.mutable_exchange()->set_way(v1::Exchange::UNDECIDED);
  OrderLoad(0, order);
  ASSERT_TRUE(trainers_[0]->BeginLoad(*WholeLayout(), 1).ok());
  const absl::Status failed = StatusFromProto(AwaitLoad(0, v1::Phase::FAILED).error());
  EXPECT_TRUE(HasReason(failed, Reason::kMemoryLimit)) << failed;
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace cairn
