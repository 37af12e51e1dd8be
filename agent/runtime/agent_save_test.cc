// Saves of one real agent: the orders, the files and what the trainer hears.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/runtime/agent.h"
#include "agent/testing/agent_fixture.h"
#include "agent/testing/running_agent.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::Contents;
using testing::FakeTrainer;
using testing::MakeLayout;
using testing::MakeWritePlan;
using testing::Object;
using testing::RunningAgent;
using testing::Tensor;
using testing::Whole;

RankLayoutPtr SmallLayout() {
  return MakeLayout(
      {Tensor("a.weight", DType::kFloat32, {8, 1000}, {4, 0}, {4, 1000}), Whole("b.bias", DType::kBfloat16, {3}),
       Whole("c.big", DType::kFloat32, {700, 1024}), Whole("d.scalar", DType::kInt64, {})},
      {Object("rng", 8192), Object("schedule", 4096)});
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads a bin with nothing of Cairn's. Another library reads the JSON, and checksums are computed bit by bit.
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

class AgentSaveTest : public AgentFixture {};

TEST_F(AgentSaveTest, Save_OrderedStepByStep_WritesExactBinsAndTellsTheOutcome) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  EXPECT_EQ(trainer.attached().job(), "demo");
  const RankLayoutPtr layout = SmallLayout();
  const std::vector<std::vector<uint32_t>> files = {{5, 2, 0}, {4, 3, 1}};
  coordinator_.AddPlan(0, "plan-1", MakeWritePlan(*layout, 0, files, "plan-1").SerializeAsString());
  OrderSave(0, SaveOrderOf(7, v1::Phase::STAGING, "plan-1"));

  auto begun = trainer.BeginSave(*layout, 7);
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_EQ(begun->placements_size(), 6);
  std::vector<std::string> contents = Contents(*layout);
  // Bytes that the trainer leaves behind an object's end must not reach the file.
  ASSERT_TRUE(trainer.Fill(*begun, contents).ok());
  EXPECT_EQ(begun->check_items_size(), 2) << "shared objects, whoever writes them";
  ASSERT_TRUE(trainer
                  .Commit(*begun, {77, 4096},
                          {testing::SlowCrc32c(contents[4].substr(0, 77)), testing::SlowCrc32c(contents[5])})
                  .ok());
  contents[4].replace(77, std::string::npos, contents[4].size() - 77, '\0');

  AwaitPhase(0, 7, v1::Phase::STAGED);
  OrderSave(0, SaveOrderOf(7, v1::Phase::WRITING, "plan-1"));
  const v1::SaveState written = AwaitPhase(0, 7, v1::Phase::WRITTEN);
  ASSERT_EQ(written.result().files_size(), 2);
  for (int bin = 0; bin < 2; ++bin) {
    CheckBin(root_ + "/demo/000000000007/0001/" + BinName(0, bin) + ".safetensors", *layout,
             files[static_cast<size_t>(bin)], contents, written.result().files(bin));
  }
  EXPECT_EQ(written.result().files(0).object_sizes(0), 4096u);
  EXPECT_EQ(written.result().files(1).object_sizes(0), 77u);
  // The trainer's checksums of its objects can be compared with those that were written.
  ASSERT_EQ(written.replica_checksums_size(), 2);
  EXPECT_EQ(written.replica_checksums(0).crc32c(), written.result().files(1).item_checksums(0));
  EXPECT_EQ(written.replica_checksums(0).object_bytes(), 77u);
  EXPECT_EQ(written.replica_checksums(1).crc32c(), written.result().files(0).item_checksums(0));
  EXPECT_EQ(written.replica_checksums(1).object_bytes(), 4096u);
  EXPECT_EQ(written.bytes_done(), written.bytes_total());

  OrderSave(0, SaveOrderOf(7, v1::Phase::COMMITTED, "plan-1"));
  const auto checkpoint = trainer.WaitSave(7, begun->save());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->state(), v1::Phase::COMMITTED);
  EXPECT_EQ(checkpoint->data_directory(), "demo/000000000007/0001");
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.saves_size() == 0; });
  // The coordinator says whether it still is.
  v1::SaveOrder refusal = SaveOrderOf(7, v1::Phase::ABORTED, "plan-1");
  *refusal.mutable_error() = StatusToProto(MakeError(Reason::kStepCommitted, "committed"));
  OrderSave(0, refusal);
  EXPECT_TRUE(HasReason(trainer.BeginSave(*layout, 7).status(), Reason::kStepCommitted));
}

TEST_F(AgentSaveTest, Slab_AfterACommit_IsUsedAgain) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  uint64_t slabs[3] = {};
  for (int64_t step = 0; step < 3; ++step) {
    Stage(trainer, *layout_, step, &slabs[step]);
    OrderSave(0, SaveOrderOf(step, v1::Phase::WRITING, "plan-1"));
    const v1::SaveState written = AwaitPhase(0, step, v1::Phase::WRITTEN);
    CheckBin(root_ + "/" + AttemptDirectory("demo", step, 1) + "/rank00000-bin00.safetensors", *layout_, {0, 2},
             Contents(*layout_, std::to_string(step)), written.result().files(0));
    Commit(step);
  }
  EXPECT_EQ(slabs[0], slabs[1]);
  EXPECT_EQ(slabs[0], slabs[2]);
}

TEST_F(AgentSaveTest, Save_TrainerDiesAfterStaging_IsWritten) {
  RunningAgent agent(Options());
  {
    FakeTrainer trainer(agent.address());
    ASSERT_TRUE(trainer.Attach().ok());
    Stage(trainer, *layout_, 3);
    agent.agent().TrainerGone(trainer.incarnation(), TrainerEnd::kEnded);
  }
  OrderSave(0, SaveOrderOf(3, v1::Phase::WRITING, "plan-1"));
  AwaitPhase(0, 3, v1::Phase::WRITTEN);
  Commit(3);
  FakeTrainer next(agent.address());
  ASSERT_TRUE(next.Attach().ok());
  EXPECT_EQ(next.WaitSave(3)->state(), v1::Phase::COMMITTED);
}

TEST_F(AgentSaveTest, BeginSave_SlabAboveTheBudget_IsAMemoryLimitWithTheNumbers) {
  AgentOptions options = Options();
  options.memory_budget = 100'000;
  RunningAgent agent(options);
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  coordinator_.AddPlan(0, "plan-1", MakeWritePlan(*layout_, 0, {{0, 1, 2}}, "plan-1").SerializeAsString());
  OrderSave(0, SaveOrderOf(3, v1::Phase::STAGING, "plan-1"));
  const absl::Status status = trainer.BeginSave(*layout_, 3).status();
  EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
  EXPECT_EQ(MetadataOf(status)["limit"], "100000");
  EXPECT_EQ(MetadataOf(status)["rank"], "0");
  AwaitPhase(0, 3, v1::Phase::FAILED);
}

TEST_F(AgentSaveTest, Abort_FilesWereReported_KeepsThemAndTellsWhy) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  const uint64_t save = Stage(trainer, *layout_, 3);
  OrderSave(0, SaveOrderOf(3, v1::Phase::WRITING, "plan-1"));
  AwaitPhase(0, 3, v1::Phase::WRITTEN);
  v1::SaveOrder abort = SaveOrderOf(3, v1::Phase::ABORTING, "plan-1");
  *abort.mutable_error() = StatusToProto(MakeError(Reason::kRankLate, "rank 9 is late", {{"ranks", "9"}}));
  OrderSave(0, abort);
  AwaitPhase(0, 3, v1::Phase::STOPPED);
  // Another coordinator may have committed them.
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + AttemptDirectory("demo", 3, 1) + "/rank00000-bin00.safetensors"));
  abort.set_phase(v1::Phase::ABORTED);
  OrderSave(0, abort);
  const auto checkpoint = trainer.WaitSave(3, save);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->state(), v1::Phase::ABORTED);
  EXPECT_TRUE(HasReason(StatusFromProto(checkpoint->error()), Reason::kRankLate));
}

TEST_F(AgentSaveTest, Save_DirectoryCannotBeRead_FailsWithItsPath) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  std::ofstream(root_ + "/demo") << "in the way";
  OrderSave(0, SaveOrderOf(3, v1::Phase::WRITING, "plan-1"));
  const absl::Status error = StatusFromProto(AwaitPhase(0, 3, v1::Phase::FAILED).error());
  EXPECT_TRUE(HasReason(error, Reason::kStorageError)) << error;
  EXPECT_EQ(MetadataOf(error)["rank"], "0");
  EXPECT_NE(MetadataOf(error)["file"].find("/demo"), std::string::npos);
}

TEST_F(AgentSaveTest, Save_RootIsNotTheCoordinators_WritesNothingAndNamesTheRoot) {
  AgentOptions options = Options();
  options.node = "node-7";
  RunningAgent agent(options);
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  v1::SaveOrder order = SaveOrderOf(3, v1::Phase::WRITING, "plan-1");
  MakeAttempt(order.directory());
  order.set_attempt_nonce(kNonce + 1);
  OrderSave(0, order);
  const v1::SaveState failed = AwaitPhase(0, 3, v1::Phase::FAILED);
  EXPECT_EQ(failed.attempt_nonce(), kNonce + 1);
  const absl::Status error = StatusFromProto(failed.error());
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  EXPECT_EQ(MetadataOf(error)["rank"], "0");
  EXPECT_EQ(MetadataOf(error)["node"], "node-7");
  EXPECT_NE(error.message().find(root_), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(root_ + "/" + order.directory() + "/rank00000-bin00.partial"));
}

TEST_F(AgentSaveTest, Save_AnotherRootInPlaceOfTheProvenOne_FailsAndRegistersAgain) {
  std::filesystem::create_directory(root_ + "/.cairn");
  std::ofstream(root_ + "/.cairn/root-proof") << "proof";
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  EXPECT_EQ(coordinator_.registration(0).root_proof(), "proof");
  // As if the file system had been unmounted: an empty directory stands there.
  std::filesystem::rename(root_, root_ + "-away");
  std::filesystem::create_directory(root_);
  OrderSave(0, SaveOrderOf(3, v1::Phase::WRITING, "plan-1"));
  const absl::Status error = StatusFromProto(AwaitPhase(0, 3, v1::Phase::FAILED).error());
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  EXPECT_EQ(coordinator_.registration(0).root_proof(), "") << "it has registered again, with what it finds there";
  EXPECT_EQ(coordinator_.registrations(), 2);
  std::filesystem::remove_all(root_ + "-away");
}

}  // namespace
}  // namespace cairn
