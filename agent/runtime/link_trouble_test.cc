// A real agent whose coordinator refuses it, or is not there: what its trainer is told.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "agent/runtime/agent.h"
#include "agent/testing/fake_coordinator.h"
#include "agent/testing/fake_trainer.h"
#include "agent/testing/layouts.h"
#include "agent/testing/running_agent.h"
#include "common/base/random_id.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::FakeCoordinator;
using testing::FakeTrainer;
using testing::MakeLayout;
using testing::RunningAgent;
using testing::Whole;

class LinkTroubleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Socket paths are short: not below the test's own long directory.
    directory_ = "/tmp/cairn-test-" + RandomToken(6);
    std::filesystem::create_directories(directory_ + "/root");
  }
  void TearDown() override {
    trainer_.reset();
    agent_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Start(const std::string& coordinator) {
    AgentOptions options;
    options.coordinator = coordinator;
    options.job = "demo";
    options.root = directory_ + "/root";
    options.socket_directory = directory_ + "/sockets";
    agent_ = std::make_unique<RunningAgent>(options);
    trainer_ = std::make_unique<FakeTrainer>(agent_->address());
    ASSERT_TRUE(trainer_->Attach().ok());
  }
  // Returns what keeps a save, as its pending answer says.
  absl::Status Stalled() {
    v1::PrepareRequest request;
    request.set_trainer_incarnation(trainer_->incarnation());
    request.mutable_layout()->set_digest(layout_->digest);
    request.mutable_layout()->set_layout(layout_->bytes);
    request.mutable_max_wait()->set_nanos(50'000'000);
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(30));
    v1::PrepareResponse response;
    EXPECT_TRUE(trainer_->stub().Prepare(&context, request, &response).ok());
    EXPECT_TRUE(response.pending());
    return StatusFromProto(response.stalled());
  }
  absl::Status AwaitStalled() {
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      if (const absl::Status stalled = Stalled(); !stalled.ok()) return stalled;
    }
    return absl::OkStatus();
  }

  const RankLayoutPtr layout_ = MakeLayout({Whole("a", DType::kFloat32, {100})}, {});
  std::string directory_;
  std::unique_ptr<RunningAgent> agent_;
  std::unique_ptr<FakeTrainer> trainer_;
};

TEST_F(LinkTroubleTest, Link_CoordinatorRefuses_TellsTheTrainerUntilItIsOver) {
  FakeCoordinator coordinator;
  coordinator.Refuse(MakeError(Reason::kRootMismatch, "another root", {{"root", "/theirs"}}));
  Start(coordinator.address());
  const absl::Status stalled = AwaitStalled();
  EXPECT_TRUE(HasReason(stalled, Reason::kRootMismatch)) << stalled;
  EXPECT_NE(stalled.message().find("another root"), std::string::npos);
  EXPECT_NE(stalled.message().find(directory_ + "/root"), std::string::npos) << stalled;
  // Nothing plans this save: its error is what kept it.
  const absl::Status error = trainer_->BeginSave(*layout_, 1, 1).status();
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  coordinator.Refuse(absl::OkStatus());
  coordinator.Await(0, [](const v1::AgentState& state) { return state.trainer().attached(); });
  for (const absl::Time end = absl::Now() + absl::Seconds(30); !Stalled().ok();) ASSERT_LT(absl::Now(), end);
}

TEST_F(LinkTroubleTest, Link_CoordinatorIsNotThere_NamesItsAddress) {
  std::string nobody;
  {
    FakeCoordinator gone;
    nobody = gone.address();
  }
  Start(nobody);
  const absl::Status stalled = AwaitStalled();
  EXPECT_TRUE(HasReason(stalled, Reason::kCoordinatorUnreachable)) << stalled;
  EXPECT_NE(stalled.message().find(nobody), std::string::npos) << stalled;
}

}  // namespace
}  // namespace cairn
