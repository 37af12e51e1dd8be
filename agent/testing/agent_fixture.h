// Agents with real sockets and files, between a coordinator whose orders the test gives and trainers in C++.
#ifndef CAIRN_AGENT_TESTING_AGENT_FIXTURE_H_
#define CAIRN_AGENT_TESTING_AGENT_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "agent/runtime/agent.h"
#include "agent/testing/fake_coordinator.h"
#include "agent/testing/fake_trainer.h"
#include "agent/testing/layouts.h"
#include "common/base/random_id.h"
#include "common/format/checkpoint_path.h"
#include "store/posix/posix_storage.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace testing {

// Returns what the items of a layout hold: bytes that depend on `salt` and the item's name.
inline std::vector<std::string> Contents(const RankLayout& layout, const std::string& salt = "") {
  std::vector<std::string> contents;
  contents.reserve(layout.items.size());
  for (const StoredItem& item : layout.items) contents.push_back(Pattern(salt + item.name, item.bytes()));
  return contents;
}

}  // namespace testing

// The job "demo" below a root of its own. Its coordinator's epoch is 5.
class AgentFixture : public ::testing::Test {
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
  static v1::SaveOrder SaveOrderOf(int64_t step, v1::Phase::Value action, const std::string& plan,
                                   uint32_t attempt = 1) {
    v1::SaveOrder order;
    order.set_step(step);
    order.set_phase(action);
    order.set_attempt(attempt);
    order.set_plan_digest(plan);
    order.set_directory(AttemptDirectory("demo", step, attempt));
    order.set_attempt_nonce(kNonce);
    return order;
  }
  void OrderSave(uint32_t rank, const v1::SaveOrder& order) {
    if (order.phase() == v1::Phase::WRITING) MakeAttempt(order.directory());
    v1::SynchronizeAgentResponse orders;
    *orders.add_saves() = order;
    coordinator_.Order(rank, orders);
  }
  // Makes the directory as the coordinator does. It does nothing if the directory is there, or cannot be made.
  void MakeAttempt(const std::string& directory) {
    const auto storage = PosixStorage::Open(root_, false);
    ASSERT_TRUE(storage.ok()) << storage.status();
    MakeAttemptDirectory(**storage, directory, kNonce, "").IgnoreError();
  }
  v1::SaveState AwaitPhase(uint32_t rank, int64_t step, v1::Phase::Value phase) {
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
  // Brings a save of rank 0 to STAGED by plan-1, which is made for the layout. Returns its number.
  uint64_t Stage(testing::FakeTrainer& trainer, const RankLayout& layout, int64_t step, uint64_t* slab_id = nullptr) {
    coordinator_.AddPlan(0, "plan-1", testing::MakeWritePlan(layout, 0, {{0, 2}, {1}}, "plan-1").SerializeAsString());
    OrderSave(0, SaveOrderOf(step, v1::Phase::STAGING, "plan-1"));
    auto begun = trainer.BeginSave(layout, step);
    EXPECT_TRUE(begun.ok()) << begun.status();
    if (!begun.ok()) return 0;
    if (slab_id != nullptr) *slab_id = begun->slab().descriptor_id();
    EXPECT_TRUE(trainer.Fill(*begun, testing::Contents(layout, std::to_string(step))).ok());
    EXPECT_TRUE(trainer.Commit(*begun, {}).ok());
    AwaitPhase(0, step, v1::Phase::STAGED);
    return begun->save();
  }
  // Tells rank 0 that a save has committed, and waits until the agent has let go of it.
  void Commit(int64_t step) {
    OrderSave(0, SaveOrderOf(step, v1::Phase::COMMITTED, "plan-1"));
    coordinator_.Await(0, [](const v1::AgentState& state) { return state.saves_size() == 0; });
  }

  testing::FakeCoordinator coordinator_;
  std::string directory_;
  std::string root_;
  const RankLayoutPtr layout_ =
      testing::MakeLayout({testing::Whole("a", DType::kFloat32, {100'000}),
                           testing::Whole("b", DType::kFloat32, {50'000}), testing::Whole("c", DType::kInt8, {7})},
                          {});
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TESTING_AGENT_FIXTURE_H_
