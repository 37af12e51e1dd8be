// A real agent with its sockets and files, between a coordinator whose orders the test gives and a trainer in C++.
#include "agent/agent.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/local/local_server.h"
#include "agent/local/local_service.h"
#include "agent/testing/fake_coordinator.h"
#include "agent/testing/fake_trainer.h"
#include "agent/testing/layouts.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/rpc/reason.h"
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
    auto server = LocalServer::Start(options.socket_directory + "/agent.sock", UserPolicy(), service_.get());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    service_->SetPeerLookup([this](const std::string& peer) { return server_->PeerOfCall(peer); });
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
  static v1::SaveOrder SaveOrderOf(int64_t step, v1::SaveOrder::Action action, const std::string& plan, uint32_t attempt = 1) {
    v1::SaveOrder order;
    order.set_step(step);
    order.set_action(action);
    order.set_attempt(attempt);
    order.set_plan_digest(plan);
    order.set_directory(AttemptDirectory("demo", step, attempt));
    return order;
  }
  void OrderSave(uint32_t rank, const v1::SaveOrder& order) {
    v1::SynchronizeAgentResponse orders;
    *orders.add_save() = order;
    coordinator_.Order(rank, orders);
  }
  v1::SaveState AwaitPhase(uint32_t rank, int64_t step, v1::SaveState::Phase phase) {
    const v1::AgentState state = coordinator_.Await(rank, [&](const v1::AgentState& now) {
      for (const auto& save : now.save()) {
        if (save.step() == step && save.phase() == phase) return true;
      }
      return false;
    });
    for (const auto& save : state.save()) {
      if (save.step() == step) return save;
    }
    return {};
  }

  FakeCoordinator coordinator_;
  std::string directory_;
  std::string root_;
};

RankLayoutPtr SmallLayout() {
  return MakeLayout({Tensor("a.weight", DType::kFloat32, {8, 1000}, {4, 0}, {4, 1000}),
                     Whole("b.bias", DType::kBfloat16, {3}),
                     Whole("c.big", DType::kFloat32, {700, 1024}),
                     Whole("d.scalar", DType::kInt64, {})},
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
    EXPECT_EQ(testing::SlowCrc32c(data), result.item_crc32c(static_cast<int>(i))) << item.name;
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
  EXPECT_EQ(begun->placement_size(), 6);
  std::vector<std::string> contents = Contents(*layout);
  // What the trainer leaves behind an object's end must not reach the file.
  ASSERT_TRUE(trainer.Fill(*begun, contents).ok());
  ASSERT_TRUE(trainer.Commit(*begun, {77, 4096}).ok());
  contents[4].replace(77, std::string::npos, contents[4].size() - 77, '\0');

  AwaitPhase(0, 7, v1::SaveState::STAGED);
  OrderSave(0, SaveOrderOf(7, v1::SaveOrder::WRITE, "plan-1"));
  const v1::SaveState written = AwaitPhase(0, 7, v1::SaveState::WRITTEN);
  ASSERT_EQ(written.result().file_size(), 2);
  for (int bin = 0; bin < 2; ++bin) {
    CheckBin(root_ + "/demo/000000000007/0001/" + BinName(0, bin) + ".safetensors", *layout,
             files[static_cast<size_t>(bin)], contents, written.result().file(bin));
  }
  EXPECT_EQ(written.result().file(0).object_bytes(0), 4096u);
  EXPECT_EQ(written.result().file(1).object_bytes(0), 77u);
  EXPECT_TRUE(written.path() == "direct" || written.path() == "buffered") << written.path();
  EXPECT_EQ(written.bytes_done(), written.bytes_total());

  OrderSave(0, SaveOrderOf(7, v1::SaveOrder::COMMITTED, "plan-1"));
  const auto checkpoint = trainer.WaitSave(7, begun->save());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->state(), v1::Checkpoint::COMMITTED);
  EXPECT_EQ(checkpoint->data_directory(), "demo/000000000007/0001");
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.save_size() == 0; });
  EXPECT_TRUE(HasReason(trainer.BeginSave(*layout, 7).status(), Reason::kStepCommitted));
}

}  // namespace
}  // namespace cairn
