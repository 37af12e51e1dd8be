// A real agent with its sockets and files, between a coordinator whose orders the test gives and a trainer in C++.
#include "agent/runtime/agent.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "agent/testing/fake_coordinator.h"
#include "agent/testing/fake_trainer.h"
#include "agent/testing/layouts.h"
#include "agent/trainer_service/local_server.h"
#include "agent/trainer_service/local_service.h"
#include "agent/transport/transfer_service.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "common/storage/attempt_owner.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

using testing::FakeCoordinator;
using testing::FakeTrainer;
using testing::MakeLayout;
using testing::MakeWritePlan;
using testing::Object;
using testing::Pattern;
using testing::Tensor;
using testing::Whole;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// An agent and its local server.
class Running {
 public:
  Running(AgentOptions options) {
    auto agent = Agent::Start(options);
    EXPECT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    service_ = std::make_unique<LocalService>(*agent_);
    auto server =
        LocalServer::Start(options.socket_directory + "/agent.sock", UserPolicy(options.allowed_users), service_.get());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    service_->SetCallerLookup([this](const std::string& peer) { return server_->CallerOf(peer); });
  }
  ~Running() {
    agent_->Quiesce();
    server_->Shutdown(absl::Milliseconds(200));
    agent_->Stop(false);
  }
  std::string address() const { return "unix:" + server_->path(); }
  Agent& agent() { return *agent_; }

 private:
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<LocalService> service_;
  std::unique_ptr<LocalServer> server_;
};

class AgentTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kNonce = 0x1234;

  void SetUp() override {
    // Socket paths are short: not below the test's own long directory.
    directory_ = "/tmp/cairn-test-" + RandomToken(6);
    root_ = std::string(::testing::TempDir()) + "/root-" + RandomToken(6);
    std::filesystem::create_directories(directory_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::remove_all(root_);
  }
  AgentOptions Options(uint32_t rank = 0, uint32_t world = 1) {
    AgentOptions options;
    options.coordinator = coordinator_.address();
    options.job = "demo";
    options.rank = rank;
    options.world_size = world;
    options.root = root_;
    options.socket_directory = directory_ + "/" + std::to_string(rank);
    return options;
  }
  static v1::SaveOrder SaveOrderOf(int64_t step, v1::SaveOrder::Action action, const std::string& plan,
                                   uint32_t attempt = 1) {
    v1::SaveOrder order;
    order.set_step(step);
    order.set_action(action);
    order.set_attempt(attempt);
    order.set_plan_digest(plan);
    order.set_directory(AttemptDirectory("demo", step, attempt));
    order.set_attempt_nonce(kNonce);
    return order;
  }
  void OrderSave(uint32_t rank, const v1::SaveOrder& order) {
    if (order.action() == v1::SaveOrder::WRITE) MakeAttempt(order.directory());
    v1::SynchronizeAgentResponse orders;
    *orders.add_saves() = order;
    coordinator_.Order(rank, orders);
  }
  // As the coordinator does; nothing if it is there, or cannot be made.
  void MakeAttempt(const std::string& directory) {
    const auto storage = PosixStorage::Open(root_, false);
    ASSERT_TRUE(storage.ok()) << storage.status();
    MakeAttemptDirectory(**storage, directory, kNonce, "").IgnoreError();
  }
  v1::SaveState AwaitPhase(uint32_t rank, int64_t step, v1::SaveState::Phase phase) {
    const v1::AgentState state = coordinator_.Await(rank, [&](const v1::AgentState& now) {
      for (const auto& save : now.saves()) {
        if (save.step() == step && save.phase() == phase) return true;
      }
      return false;
    });
    for (const auto& save : state.saves()) {
      if (save.step() == step) return save;
    }
    return {};
  }

  FakeCoordinator coordinator_;
  std::string directory_;
  std::string root_;
};

RankLayoutPtr SmallLayout() {
  return MakeLayout(
      {Tensor("a.weight", DType::kFloat32, {8, 1000}, {4, 0}, {4, 1000}), Whole("b.bias", DType::kBfloat16, {3}),
       Whole("c.big", DType::kFloat32, {700, 1024}), Whole("d.scalar", DType::kInt64, {})},
      {Object("rng", 8192), Object("schedule", 4096)});
}

std::vector<std::string> Contents(const RankLayout& layout, const std::string& salt = "") {
  std::vector<std::string> contents;
  for (const StoredItem& item : layout.items) contents.push_back(Pattern(salt + item.name, item.bytes()));
  return contents;
}

// Reads a bin with nothing of Cairn's: JSON by another library, checksums bit by bit.
void CheckBin(const std::string& path, const RankLayout& layout, const std::vector<uint32_t>& items,
              const std::vector<std::string>& contents, const v1::FileResult& result) {
  const std::string bytes = ReadAll(path);
  ASSERT_EQ(bytes.size(), result.file_bytes()) << path;
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
  ASSERT_EQ((length + 8) % 4096, 0u);
  EXPECT_EQ(testing::SlowCrc32c(bytes.substr(0, length + 8)), result.header_crc32c());
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(header.size(), items.size() + 1);
  uint64_t at = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const StoredItem& item = layout.items[items[i]];
    const auto& entry = header.at(item.stored_name());
    ASSERT_EQ(entry.at("data_offsets")[0].get<uint64_t>(), at) << item.name;
    ASSERT_EQ(entry.at("data_offsets")[1].get<uint64_t>(), at + item.bytes());
    const std::string data = bytes.substr(8 + length + at, item.bytes());
    EXPECT_TRUE(data == contents[items[i]]) << item.name;
    EXPECT_EQ(testing::SlowCrc32c(data), result.item_checksums(static_cast<int>(i))) << item.name;
    at += item.bytes();
  }
  EXPECT_EQ(bytes.size(), 8 + length + at);
}

TEST_F(AgentTest, Save_WritesExactBins_AndTellsTheVerdict) {
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  EXPECT_EQ(trainer.attached().job(), "demo");
  const RankLayoutPtr layout = SmallLayout();
  const std::vector<std::vector<uint32_t>> files = {{5, 2, 0}, {4, 3, 1}};
  coordinator_.AddPlan(0, "plan-1", MakeWritePlan(*layout, 0, files, "plan-1").SerializeAsString());
  OrderSave(0, SaveOrderOf(7, v1::SaveOrder::STAGE, "plan-1"));

  auto begun = trainer.BeginSave(*layout, 7);
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_EQ(begun->placements_size(), 6);
  std::vector<std::string> contents = Contents(*layout);
  // What the trainer leaves behind an object's end must not reach the file.
  ASSERT_TRUE(trainer.Fill(*begun, contents).ok());
  EXPECT_EQ(begun->check_items_size(), 2) << "shared objects, whoever writes them";
  ASSERT_TRUE(trainer
                  .Commit(*begun, {77, 4096},
                          {testing::SlowCrc32c(contents[4].substr(0, 77)), testing::SlowCrc32c(contents[5])})
                  .ok());
  contents[4].replace(77, std::string::npos, contents[4].size() - 77, '\0');

  AwaitPhase(0, 7, v1::SaveState::STAGED);
  OrderSave(0, SaveOrderOf(7, v1::SaveOrder::WRITE, "plan-1"));
  const v1::SaveState written = AwaitPhase(0, 7, v1::SaveState::WRITTEN);
  ASSERT_EQ(written.result().files_size(), 2);
  for (int bin = 0; bin < 2; ++bin) {
    CheckBin(root_ + "/demo/000000000007/0001/" + BinName(0, bin) + ".safetensors", *layout,
             files[static_cast<size_t>(bin)], contents, written.result().files(bin));
  }
  EXPECT_EQ(written.result().files(0).object_sizes(0), 4096u);
  EXPECT_EQ(written.result().files(1).object_sizes(0), 77u);
  // What the trainer says of its objects and what was written of them can be compared.
  ASSERT_EQ(written.replica_checksums_size(), 2);
  EXPECT_EQ(written.replica_checksums(0).crc32c(), written.result().files(1).item_checksums(0));
  EXPECT_EQ(written.replica_checksums(0).object_bytes(), 77u);
  EXPECT_EQ(written.replica_checksums(1).crc32c(), written.result().files(0).item_checksums(0));
  EXPECT_EQ(written.replica_checksums(1).object_bytes(), 4096u);
  EXPECT_EQ(written.bytes_done(), written.bytes_total());

  OrderSave(0, SaveOrderOf(7, v1::SaveOrder::COMMITTED, "plan-1"));
  const auto checkpoint = trainer.WaitSave(7, begun->save());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->state(), v1::Checkpoint::COMMITTED);
  EXPECT_EQ(checkpoint->data_directory(), "demo/000000000007/0001");
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.saves_size() == 0; });
  // Whether it still is, the coordinator says.
  v1::SaveOrder refusal = SaveOrderOf(7, v1::SaveOrder::ABORTED, "plan-1");
  *refusal.mutable_error() = StatusToProto(MakeError(Reason::kStepCommitted, "committed"));
  OrderSave(0, refusal);
  EXPECT_TRUE(HasReason(trainer.BeginSave(*layout, 7).status(), Reason::kStepCommitted));
}

class SaveTest : public AgentTest {
 protected:
  // Brings a save to STAGED by plan-1, which is made for the layout.
  uint64_t Stage(FakeTrainer& trainer, const RankLayout& layout, int64_t step, uint64_t* slab_id = nullptr) {
    coordinator_.AddPlan(0, "plan-1", MakeWritePlan(layout, 0, {{0, 2}, {1}}, "plan-1").SerializeAsString());
    OrderSave(0, SaveOrderOf(step, v1::SaveOrder::STAGE, "plan-1"));
    auto begun = trainer.BeginSave(layout, step);
    EXPECT_TRUE(begun.ok()) << begun.status();
    if (!begun.ok()) return 0;
    if (slab_id != nullptr) *slab_id = begun->slab().descriptor_id();
    EXPECT_TRUE(trainer.Fill(*begun, Contents(layout, std::to_string(step))).ok());
    EXPECT_TRUE(trainer.Commit(*begun, {}).ok());
    AwaitPhase(0, step, v1::SaveState::STAGED);
    return begun->save();
  }
  void Commit(int64_t step) {
    OrderSave(0, SaveOrderOf(step, v1::SaveOrder::COMMITTED, "plan-1"));
    coordinator_.Await(0, [](const v1::AgentState& state) { return state.saves_size() == 0; });
  }
  const RankLayoutPtr layout_ = MakeLayout(
      {Whole("a", DType::kFloat32, {100'000}), Whole("b", DType::kFloat32, {50'000}), Whole("c", DType::kInt8, {7})},
      {});
};

TEST_F(SaveTest, Slab_IsUsedAgain) {
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  uint64_t slabs[3] = {};
  for (int64_t step = 0; step < 3; ++step) {
    Stage(trainer, *layout_, step, &slabs[step]);
    OrderSave(0, SaveOrderOf(step, v1::SaveOrder::WRITE, "plan-1"));
    const v1::SaveState written = AwaitPhase(0, step, v1::SaveState::WRITTEN);
    CheckBin(root_ + "/" + AttemptDirectory("demo", step, 1) + "/rank00000-bin00.safetensors", *layout_, {0, 2},
             Contents(*layout_, std::to_string(step)), written.result().files(0));
    Commit(step);
  }
  EXPECT_EQ(slabs[0], slabs[1]);
  EXPECT_EQ(slabs[0], slabs[2]);
}

TEST_F(SaveTest, CoordinatorRestarts_TheAgentRegistersAgain_AndTheSaveGoesOn) {
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  const uint64_t save = Stage(trainer, *layout_, 3);
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::WRITE, "plan-1"));
  coordinator_.Restart(6);
  AwaitPhase(0, 3, v1::SaveState::WRITTEN);
  EXPECT_EQ(coordinator_.registration(0).agent().coordinator_epoch(), 5u) << "the highest that it had heard of";
  EXPECT_EQ(coordinator_.registrations(), 2);
  Commit(3);
  EXPECT_EQ(trainer.WaitSave(3, save)->state(), v1::Checkpoint::COMMITTED);
  // One that is older than it was is not obeyed: the agent stays without a coordinator.
  const int before = coordinator_.registrations();
  coordinator_.Restart(4);
  while (coordinator_.registrations() < before + 2) {
    agent.agent().host().WaitForChange(
        agent.agent().host().Do([](Session& session, absl::Time) { return session.version(); }),
        absl::Milliseconds(50));
  }
  EXPECT_FALSE(agent.agent().host().Do([](Session& session, absl::Time) { return session.registered(); }));
}

TEST_F(SaveTest, TrainerDies_AfterStaging_TheSaveIsWritten) {
  Running agent(Options());
  {
    FakeTrainer trainer(agent.address());
    ASSERT_TRUE(trainer.Attach().ok());
    Stage(trainer, *layout_, 3);
    agent.agent().TrainerGone(trainer.incarnation(), TrainerEnd::kEnded);
  }
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::WRITE, "plan-1"));
  AwaitPhase(0, 3, v1::SaveState::WRITTEN);
  Commit(3);
  FakeTrainer next(agent.address());
  ASSERT_TRUE(next.Attach().ok());
  EXPECT_EQ(next.WaitSave(3)->state(), v1::Checkpoint::COMMITTED);
}

TEST_F(SaveTest, ReplacedTrainer_IsToldInItsControlPage_AndDoesNotComeBack) {
  Running agent(Options());
  const auto page_of = [](const FakeTrainer& trainer) {
    v1::SlabReference page;
    page.set_descriptor_socket(trainer.attached().descriptor_socket());
    page.set_descriptor_id(trainer.attached().control_page_descriptor());
    page.set_bytes(kControlPageBytes);
    return *testing::Mapping::Open(page, true);
  };
  const auto replaced = [](const testing::Mapping& page) { return page.data()[32] == 1; };
  FakeTrainer first(agent.address()), second(agent.address());
  ASSERT_TRUE(first.Attach().ok());
  const auto page = page_of(first);
  EXPECT_FALSE(replaced(*page));
  ASSERT_TRUE(second.Attach().ok());
  EXPECT_TRUE(replaced(*page));
  EXPECT_FALSE(replaced(*page_of(second)));

  const auto refused = [](const absl::Status& status) { return HasReason(status, Reason::kStaleIncarnation); };
  EXPECT_TRUE(refused(first.Attach(first.attached().agent_incarnation())));
  EXPECT_TRUE(refused(first.Attach(first.attached().agent_incarnation() + 1))) << "of another process of the agent";
  EXPECT_TRUE(refused(first.BeginSave(*layout_, 1).status()));
  EXPECT_FALSE(replaced(*page_of(second))) << "its page is the one it had";
  EXPECT_TRUE(second.Attach(second.attached().agent_incarnation()).ok());
}

TEST_F(SaveTest, SlabAboveTheBudget_IsAMemoryLimit_WithTheNumbers) {
  AgentOptions options = Options();
  options.memory_budget = 100'000;
  Running agent(options);
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  coordinator_.AddPlan(0, "plan-1", MakeWritePlan(*layout_, 0, {{0, 1, 2}}, "plan-1").SerializeAsString());
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::STAGE, "plan-1"));
  const absl::Status status = trainer.BeginSave(*layout_, 3).status();
  EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
  EXPECT_EQ(MetadataOf(status)["limit"], "100000");
  EXPECT_EQ(MetadataOf(status)["rank"], "0");
  AwaitPhase(0, 3, v1::SaveState::FAILED);
}

TEST_F(SaveTest, Abort_RemovesTheRanksFiles_UnlessTheyWereReported) {
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  const uint64_t save = Stage(trainer, *layout_, 3);
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::WRITE, "plan-1"));
  AwaitPhase(0, 3, v1::SaveState::WRITTEN);
  v1::SaveOrder abort = SaveOrderOf(3, v1::SaveOrder::ABORT, "plan-1");
  *abort.mutable_error() = StatusToProto(MakeError(Reason::kRankLate, "rank 9 is late", {{"ranks", "9"}}));
  OrderSave(0, abort);
  AwaitPhase(0, 3, v1::SaveState::STOPPED);
  // Another coordinator may have committed them.
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + AttemptDirectory("demo", 3, 1) + "/rank00000-bin00.safetensors"));
  abort.set_action(v1::SaveOrder::ABORTED);
  OrderSave(0, abort);
  const auto checkpoint = trainer.WaitSave(3, save);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->state(), v1::Checkpoint::ABORTED);
  EXPECT_TRUE(HasReason(StatusFromProto(checkpoint->error()), Reason::kRankLate));
}

TEST_F(SaveTest, DirectoryThatCannotBeRead_FailsTheSave_WithItsPath) {
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  std::ofstream(root_ + "/demo") << "in the way";
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::WRITE, "plan-1"));
  const absl::Status error = StatusFromProto(AwaitPhase(0, 3, v1::SaveState::FAILED).error());
  EXPECT_TRUE(HasReason(error, Reason::kStorageError)) << error;
  EXPECT_EQ(MetadataOf(error)["rank"], "0");
  EXPECT_NE(MetadataOf(error)["file"].find("/demo"), std::string::npos);
}

TEST_F(SaveTest, RootThatIsNotTheCoordinators_IsNotWrittenTo_AndNamed) {
  AgentOptions options = Options();
  options.node = "node-7";
  Running agent(options);
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  v1::SaveOrder order = SaveOrderOf(3, v1::SaveOrder::WRITE, "plan-1");
  MakeAttempt(order.directory());
  order.set_attempt_nonce(kNonce + 1);
  OrderSave(0, order);
  const v1::SaveState failed = AwaitPhase(0, 3, v1::SaveState::FAILED);
  EXPECT_EQ(failed.attempt_nonce(), kNonce + 1);
  const absl::Status error = StatusFromProto(failed.error());
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  EXPECT_EQ(MetadataOf(error)["rank"], "0");
  EXPECT_EQ(MetadataOf(error)["node"], "node-7");
  EXPECT_NE(error.message().find(root_), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(root_ + "/" + order.directory() + "/rank00000-bin00.partial"));
}

TEST_F(SaveTest, AnotherRootInPlaceOfTheProvenOne_IsProvenBeforeItIsWrittenTo) {
  std::filesystem::create_directory(root_ + "/.cairn");
  std::ofstream(root_ + "/.cairn/root-proof") << "proof";
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  EXPECT_EQ(coordinator_.registration(0).root_proof(), "proof");
  // As if the file system had been unmounted: an empty directory stands there.
  std::filesystem::rename(root_, root_ + "-away");
  std::filesystem::create_directory(root_);
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::WRITE, "plan-1"));
  const absl::Status error = StatusFromProto(AwaitPhase(0, 3, v1::SaveState::FAILED).error());
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  EXPECT_EQ(coordinator_.registration(0).root_proof(), "") << "it has registered again, with what it finds there";
  EXPECT_EQ(coordinator_.registrations(), 2);
  std::filesystem::remove_all(root_ + "-away");
}

TEST_F(SaveTest, Unattached_AndDrain) {
  Running agent(Options());
  FakeTrainer trainer(agent.address());
  EXPECT_TRUE(HasReason(trainer.BeginSave(*layout_, 1).status(), Reason::kNotRegistered));
  ASSERT_TRUE(trainer.Attach().ok());
  EXPECT_TRUE(agent.agent().Drain(absl::ZeroDuration()));
  Stage(trainer, *layout_, 3);
  EXPECT_FALSE(agent.agent().Drain(absl::Milliseconds(20)));
  OrderSave(0, SaveOrderOf(3, v1::SaveOrder::ABORTED, "plan-1"));
  EXPECT_TRUE(agent.agent().Drain(absl::Seconds(10)));
  agent.agent().Stop(true);
  EXPECT_TRUE(coordinator_.unregistered(0));
}

TEST_F(AgentTest, PeerOfAnotherUser_IsRefused_UnlessAllowed) {
  if (seteuid(54321) != 0) GTEST_SKIP() << "only root, and in no sandbox, can become another user";
  ASSERT_EQ(seteuid(0), 0);
  AgentOptions options = Options();
  options.allowed_users = {54321};
  Running agent(options);
  const auto attach_as = [&](uid_t user) {
    // The kernel takes the credentials of the process at connect(2).
    EXPECT_EQ(seteuid(user), 0);
    const absl::Status status = FakeTrainer(agent.address()).Attach();
    EXPECT_EQ(seteuid(0), 0);
    return status;
  };
  EXPECT_TRUE(attach_as(54321).ok());
  EXPECT_TRUE(HasReason(attach_as(54322), Reason::kPeerUid));
}

// Two ranks that hold halves: rows of the first two tensors, columns of the third.
RankLayoutPtr HalfLayout(int64_t rank) {
  return MakeLayout({Tensor("a.rows", DType::kFloat32, {8, 1000}, {4 * rank, 0}, {4, 1000}),
                     Tensor("b.big", DType::kFloat32, {700, 1024}, {350 * rank, 0}, {350, 1024}),
                     Tensor("c.cols", DType::kFloat32, {64, 64}, {0, 32 * rank}, {64, 32})},
                    {}, static_cast<uint32_t>(rank));
}

RankLayoutPtr WholeLayout() {
  return MakeLayout({Whole("a.rows", DType::kFloat32, {8, 1000}), Whole("b.big", DType::kFloat32, {700, 1024}),
                     Whole("c.cols", DType::kFloat32, {64, 64})},
                    {});
}

// Two agents that save halves; then both load everything whole, each reading its own file in several rounds.
class LoadTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    Start(true);
  }

  void Start(bool shared_memory) {
    trainers_.clear();
    agents_.clear();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      AgentOptions options = Options(rank, 2);
      options.shared_memory = shared_memory;
      agents_.push_back(std::make_unique<Running>(options));
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
      OrderSave(rank, SaveOrderOf(7, v1::SaveOrder::WRITE, "save-plan"));
      auto begun = trainers_[rank]->BeginSave(*layout, 7);
      ASSERT_TRUE(begun.ok()) << begun.status();
      const auto contents = Contents(*layout, std::to_string(rank));
      ASSERT_TRUE(trainers_[rank]->Fill(*begun, contents).ok());
      ASSERT_TRUE(trainers_[rank]->Commit(*begun, {}).ok());
      written_[rank] = AwaitPhase(rank, 7, v1::SaveState::WRITTEN).result().files(0);
      OrderSave(rank, SaveOrderOf(7, v1::SaveOrder::COMMITTED, "save-plan"));
      coordinator_.Await(rank, [](const v1::AgentState& state) { return state.saves_size() == 0; });
    }
  }

  // What the coordinator would plan. `cuts`: where a file's data is cut into rounds.
  v1::ReadPlan PlanFor(uint32_t rank, std::vector<uint64_t> cuts = {0, 600'000, 1'200'000}) {
    const RankLayoutPtr source = HalfLayout(0);  // both halves have equal sizes
    const uint32_t order[] = {1, 0, 2};
    v1::ReadPlan plan;
    plan.set_plan_digest("load-plan");
    plan.set_layout_digest(WholeLayout()->digest);
    plan.set_rank(rank);
    const v1::FileResult& written = written_[rank];
    const uint64_t data = source->items[0].bytes() + source->items[1].bytes() + source->items[2].bytes();
    const uint64_t header = written.file_bytes() - data;
    auto* file = plan.add_files();
    file->set_path("000000000007/0001/" + BinName(static_cast<int>(rank), 0) + ".safetensors");
    file->set_header_bytes(header);
    file->set_file_bytes(written.file_bytes());
    file->set_header_crc32c(written.header_crc32c());
    uint64_t begin = header;
    std::map<uint32_t, uint64_t> begins;
    for (int i = 0; i < 3; ++i) {
      const StoredItem& item = source->items[order[i]];
      file->add_item_offsets(begin);
      file->add_item_sizes(item.bytes());
      file->add_item_checksums(written.item_checksums(i));
      file->add_item_names(item.name);
      begins[order[i]] = begin;
      begin += item.bytes();
    }
    cuts.push_back(data);
    for (size_t r = 0; r + 1 < cuts.size(); ++r) {
      auto* round = plan.add_rounds();
      auto* read = round->add_reads();
      read->set_file_offset(header + cuts[r]);
      read->set_bytes(cuts[r + 1] - cuts[r]);
      read->set_buffer_offset(read->file_offset() % 4096);
      round->set_buffer_bytes(read->buffer_offset() + read->bytes());
      round->add_consumers(0);
      round->add_consumers(1);
      plan.set_read_bytes(plan.read_bytes() + read->bytes());
      for (uint32_t number : order) {
        const uint64_t item_bytes = source->items[number].bytes();
        const uint64_t from = std::max(begins[number], read->file_offset());
        const uint64_t until = std::min(begins[number] + item_bytes, read->file_offset() + read->bytes());
        if (from >= until) continue;
        for (uint32_t from_rank = 0; from_rank < 2; ++from_rank) {
          auto* copy = plan.add_copies();
          copy->set_source_rank(from_rank);
          copy->set_round(static_cast<uint32_t>(r));
          copy->set_source_offset(read->buffer_offset() + from - read->file_offset());
          copy->set_target(number);
          if (number == 2) {
            copy->set_target_offset(from_rank * 128);
            copy->set_element_bytes(128);
            copy->add_extents(64);
            copy->add_source_strides(128);
            copy->add_target_strides(256);
          } else {
            copy->set_target_offset(from_rank * item_bytes + from - begins[number]);
            copy->set_element_bytes(until - from);
          }
        }
      }
    }
    return plan;
  }

  v1::LoadOrder LoadOrderOf(v1::LoadOrder::Action action, const std::string& token = "load-secret") {
    v1::LoadOrder order;
    order.set_number(1);
    order.set_action(action);
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

  v1::LoadState AwaitLoad(uint32_t rank, v1::LoadState::Phase phase) {
    const v1::AgentState state = coordinator_.Await(
        rank, [&](const v1::AgentState& now) { return now.loads_size() == 1 && now.loads(0).phase() == phase; });
    return state.loads_size() == 1 ? state.loads(0) : v1::LoadState();
  }

  // Both ranks begin and receive, side by side. The status of each.
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

  void ExpectWhole(const std::vector<std::string>& target) {
    const RankLayoutPtr layout = WholeLayout();
    for (size_t t = 0; t < layout->items.size(); ++t) {
      std::string expected(layout->items[t].bytes(), '\0');
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const StoredItem half = HalfLayout(rank)->items[t];
        const std::string bytes = Pattern(std::to_string(rank) + half.name, half.bytes());
        const size_t rows = static_cast<size_t>(half.box.shape[0]), row = bytes.size() / rows;
        for (size_t i = 0; i < rows; ++i) {
          const size_t to = t == 2 ? i * 256 + rank * 128 : (rank * rows + i) * row;
          expected.replace(to, row, bytes, i * row, row);
        }
      }
      EXPECT_TRUE(target[t] == expected) << layout->items[t].name;
    }
  }

  void RunLoad(const std::string& transport) {
    Save();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      coordinator_.AddPlan(rank, "load-plan", PlanFor(rank).SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::LoadOrder::READ));
    }
    std::vector<std::vector<std::string>> targets;
    for (const absl::Status& status : Receive(targets)) ASSERT_TRUE(status.ok()) << status;
    for (const auto& target : targets) ExpectWhole(target);
    // Mapped: the trainer sees the other agent's socket; fetched: only its own.
    EXPECT_EQ(trainers_[0]->sources().size(), transport == "shared-memory" ? 2u : 1u);
    std::vector<std::thread> enders;
    std::vector<absl::StatusOr<v1::EndLoadResponse>> ended(2, absl::UnknownError(""));
    for (uint32_t rank = 0; rank < 2; ++rank)
      enders.emplace_back([&, rank] { ended[rank] = trainers_[rank]->EndLoad(1); });
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::LoadState done = AwaitLoad(rank, v1::LoadState::DONE);
      EXPECT_EQ(done.bytes_done(), done.bytes_total());
      EXPECT_GE(done.storage_bytes(), done.bytes_total());
      EXPECT_NE(done.io_path(), v1::IO_PATH_UNSPECIFIED);
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      v1::LoadOrder done = LoadOrderOf(v1::LoadOrder::DONE);
      done.set_total_bytes_read(11);
      OrderLoad(rank, done);
    }
    for (std::thread& thread : enders) thread.join();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(ended[rank].ok()) << ended[rank].status();
      EXPECT_EQ(ended[rank]->bytes_read(), PlanFor(rank).read_bytes());
      EXPECT_EQ(ended[rank]->total_bytes_read(), 11u);
      coordinator_.Await(rank, [](const v1::AgentState& state) { return state.loads_size() == 0; });
    }
  }

  // Damages rank 1's file, loads, and gives what rank 1 tells the coordinator.
  v1::LoadState LoadDamaged(const std::function<void(const std::string&)>& damage) {
    Save();
    damage(FileOf(1));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      coordinator_.AddPlan(rank, "load-plan", PlanFor(rank).SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::LoadOrder::READ));
    }
    std::vector<std::vector<std::string>> targets;
    for (const absl::Status& status : Receive(targets)) EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    const v1::LoadState failed = AwaitLoad(1, v1::LoadState::FAILED);
    // After the order to abort nothing is held any more.
    for (uint32_t rank = 0; rank < 2; ++rank) {
      v1::LoadOrder abort = LoadOrderOf(v1::LoadOrder::ABORT);
      *abort.mutable_error() = failed.error();
      OrderLoad(rank, abort);
      AwaitLoad(rank, v1::LoadState::STOPPED);
      EXPECT_EQ(agents_[rank]->agent().loads().Find(1, trainers_[rank]->incarnation()), nullptr);
    }
    return failed;
  }

  void AbortSourceFirst() {
    Save();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::ReadPlan plan = PlanFor(rank, {0, 200'000, 400'000, 600'000, 800'000, 1'000'000});
      coordinator_.AddPlan(rank, "load-plan", plan.SerializeAsString());
      OrderLoad(rank, LoadOrderOf(v1::LoadOrder::READ));
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
    AwaitLoad(0, v1::LoadState::READING);
    v1::LoadOrder abort = LoadOrderOf(v1::LoadOrder::ABORT);
    *abort.mutable_error() = StatusToProto(MakeError(Reason::kRankLate, "demo: rank 1 is late", {{"ranks", "1"}}));
    OrderLoad(1, abort);
    AwaitLoad(1, v1::LoadState::STOPPED);
    OrderLoad(0, abort);
    AwaitLoad(0, v1::LoadState::STOPPED);
    consumer.join();
    EXPECT_TRUE(HasReason(received, Reason::kRankLate)) << received;
    EXPECT_EQ(MetadataOf(received)["ranks"], "1");
  }

  std::vector<std::unique_ptr<Running>> agents_;
  std::vector<std::unique_ptr<FakeTrainer>> trainers_;
  v1::FileResult written_[2];
};

TEST_F(LoadTest, SameMachine_TrainersCopyOutOfBothAgentsBuffers) { RunLoad("shared-memory"); }

TEST_F(LoadTest, ForcedGrpc_BytesAreFetched) {
  Start(false);
  RunLoad("grpc");
}

TEST_F(LoadTest, FlippedBit_IsFound_WithFileOffsetAndTensor) {
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

TEST_F(LoadTest, FlippedBitInHeader_IsFound) {
  const v1::LoadState failed = LoadDamaged([](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('!');
  });
  EXPECT_TRUE(HasReason(StatusFromProto(failed.error()), Reason::kChecksumMismatch));
}

TEST_F(LoadTest, TruncatedFile_IsFound) {
  const v1::LoadState failed =
      LoadDamaged([](const std::string& path) { std::filesystem::resize_file(path, 1'000'000); });
  EXPECT_TRUE(HasReason(StatusFromProto(failed.error()), Reason::kFileTruncated));
}

TEST_F(LoadTest, MissingFile_IsFound) {
  const v1::LoadState failed = LoadDamaged([](const std::string& path) { std::filesystem::remove(path); });
  EXPECT_TRUE(HasReason(StatusFromProto(failed.error()), Reason::kFileMissing));
}

TEST_F(LoadTest, Peers_AreAskedForOnce_AndOnlyTheOtherSources) {
  RunLoad("shared-memory");
  EXPECT_EQ(coordinator_.peer_requests(0), std::vector<std::vector<uint32_t>>({{1}}));
  EXPECT_EQ(coordinator_.peer_requests(1), std::vector<std::vector<uint32_t>>({{0}}));
}

TEST_F(LoadTest, SourceThatNobodyHolds_EndsTheLoadByName) {
  coordinator_.Hide(1);
  Save();
  coordinator_.AddPlan(0, "load-plan", PlanFor(0).SerializeAsString());
  OrderLoad(0, LoadOrderOf(v1::LoadOrder::READ));
  std::thread trainer([&] { (void)trainers_[0]->BeginLoad(*WholeLayout(), 1); });
  const absl::Status error = StatusFromProto(AwaitLoad(0, v1::LoadState::FAILED).error());
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_NE(error.message().find("no address of rank 1"), std::string::npos) << error;
  trainer.join();
}

TEST_F(LoadTest, WhoHasNotItsToken_GetsNothingOfALoad) {
  Save();
  coordinator_.AddPlan(0, "load-plan", PlanFor(0).SerializeAsString());
  OrderLoad(0, LoadOrderOf(v1::LoadOrder::READ, "secret"));
  std::thread trainer([&] { EXPECT_TRUE(trainers_[0]->BeginLoad(*WholeLayout(), 1).ok()); });
  AwaitLoad(0, v1::LoadState::READING);
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
    return CallError(stub->AwaitRound(&context, request, &response), PeerKind::kAgent, source.transfer_address());
  };
  while (HasReason(ask("secret", "secret"), Reason::kPlanUnknown)) std::this_thread::yield();  // it is being begun
  EXPECT_TRUE(ask("secret", "secret").ok());
  EXPECT_TRUE(HasReason(ask("secret", "guess"), Reason::kBadToken));
  EXPECT_TRUE(HasReason(ask("guess", "guess"), Reason::kPlanUnknown)) << "of another load, or none";
  EXPECT_TRUE(HasReason(ask("secret", "secret", 77), Reason::kStaleIncarnation)) << "of the process before this one";
}

// A source that was told to abort before its consumers were does not end their load: the coordinator's word does.
TEST_F(LoadTest, SourceAbortsFirst_TheConsumerTellsWhatTheCoordinatorSays) { AbortSourceFirst(); }

TEST_F(LoadTest, SourceAbortsFirst_ForcedGrpc_TheConsumerTellsWhatTheCoordinatorSays) {
  Start(false);
  AbortSourceFirst();
}

TEST_F(LoadTest, TrainerDies_ItsLoadFails) {
  Save();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    coordinator_.AddPlan(rank, "load-plan", PlanFor(rank).SerializeAsString());
    OrderLoad(rank, LoadOrderOf(v1::LoadOrder::READ));
  }
  ASSERT_TRUE(trainers_[0]->BeginLoad(*WholeLayout(), 1).ok());
  AwaitLoad(0, v1::LoadState::READING);
  agents_[0]->agent().TrainerGone(trainers_[0]->incarnation(), TrainerEnd::kEnded);
  EXPECT_TRUE(HasReason(StatusFromProto(AwaitLoad(0, v1::LoadState::FAILED).error()), Reason::kTrainerLost));
}

}  // namespace
}  // namespace cairn
