// Tests the real coordinator with storage that hangs in a system call, and with callers that do not wait.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/base/digest.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/testing/proven_peer.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "tests/testing/fake_agent.h"
#include "tests/testing/process.h"

namespace cairn::testing {
namespace {

class StalledStorageTest : public ::testing::Test {
 protected:
  StalledStorageTest() {
    root_ = directory_.path() + "/root";
    hang_ = directory_.path() + "/hang";
    log_ = directory_.path() + "/coordinator.log";
    std::filesystem::create_directory(root_);
    setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);  // the copies of tokens go there
  }
  ~StalledStorageTest() override {
    agents_.clear();
    if (HasFailure()) std::fprintf(stderr, "%s\n", ReadWhole(log_).c_str());
  }

  void Start(const std::string& storage_timeout = "500ms") {
    const std::string file = directory_.path() + "/address";
    setenv("LD_PRELOAD", "tests/fault/libhanging_link.so", 1);
    setenv("CAIRN_TEST_HANG", hang_.c_str(), 1);
    setenv("MALLOC_PERTURB_", "85", 1);  // freed memory gets other bytes at once
    coordinator_ = Process(
        {"coordinator/cairn-coordinator", "--root", root_, "--address-file", file, "--listen", "127.0.0.1:0",
         "--phase-timeout=20s", "--lease-ttl=4s", "--storage-timeout=" + storage_timeout, "--drain-timeout=100ms"},
        log_);
    unsetenv("LD_PRELOAD");
    unsetenv("MALLOC_PERTURB_");
    for (int i = 0; i < 3000 && !std::filesystem::exists(file); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    address_ = ReadWhole(file);
    while (!address_.empty() && address_.back() == '\n') address_.pop_back();
    ASSERT_FALSE(address_.empty()) << ReadWhole(log_);
    token_ = ReadWhole(root_ + "/.cairn/token");
    people_ = v1::CheckpointService::NewStub(*AwaitChannel(*CoordinatorAt(address_, token_, 64 << 20)));
  }
  std::vector<FakeAgent*> StartAgents(const std::string& job) {
    std::vector<FakeAgent*> started;
    for (int rank = 0; rank < 3; ++rank) {
      FakeAgentOptions options;
      options.coordinator = address_;
      options.root = root_;
      options.job = job;
      options.rank = rank;
      agents_.push_back(std::make_unique<FakeAgent>(options));
      started.push_back(agents_.back().get());
    }
    for (FakeAgent* agent : started) EXPECT_TRUE(agent->WaitRegistered());
    return started;
  }
  v1::Checkpoint Get(const std::string& job, int64_t step) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(30));
    v1::GetCheckpointRequest request;
    request.set_job(job);
    request.set_step(step);
    v1::Checkpoint checkpoint;
    (void)people_->GetCheckpoint(&context, request, &checkpoint);  // there may be no checkpoint yet
    return checkpoint;
  }
  v1::Job GetJob(const std::string& job) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(30));
    v1::GetJobRequest request;
    request.set_job(job);
    v1::Job view;
    EXPECT_TRUE(people_->GetJob(&context, request, &view).ok());
    return view;
  }
  // Waits until the coordinator says that the commit is stalled.
  bool AwaitStalled(const std::string& job, int64_t step) {
    for (int i = 0; i < 3000; ++i) {
      const v1::Checkpoint checkpoint = Get(job, step);
      if (checkpoint.state() == v1::Phase::COMMITTING && checkpoint.has_error()) {
        return HasReason(StatusFromProto(checkpoint.error()), Reason::kStorageStalled);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  TemporaryDirectory directory_;
  std::string root_, hang_, log_, address_, token_;
  Process coordinator_;
  std::unique_ptr<v1::CheckpointService::Stub> people_;
  std::vector<std::unique_ptr<FakeAgent>> agents_;
};

TEST_F(StalledStorageTest, Commit_StorageHangs_IsNamedAndHoldsUpNoOtherJob) {
  Start();
  const auto slow = StartAgents("slow");
  const auto other = StartAgents("other");
  std::ofstream(hang_).flush();
  // These are more than there are workers. Each has a job of its own, because saves of one job would wait for one
  // another.
  std::vector<std::vector<FakeAgent*>> more;
  for (int i = 0; i < 4; ++i) more.push_back(StartAgents(absl::StrCat("slow", i)));
  for (FakeAgent* agent : slow) agent->Save(1);
  for (const auto& agents : more) {
    for (FakeAgent* agent : agents) agent->Save(1);
  }
  ASSERT_TRUE(AwaitStalled("slow", 1));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(AwaitStalled(absl::StrCat("slow", i), 1));
  // Hanging threads are counted by a check of their own, soon after.
  for (int i = 0; i < 3000 && GetJob("slow").stalled_storage_calls() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(GetJob("slow").stalled_storage_calls(), 1u);
  // A person who cancels hears the same, and nobody hears ABORTED.
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(30));
  v1::CancelCheckpointRequest cancel;
  cancel.set_job("slow");
  cancel.set_step(1);
  v1::Checkpoint cancelled;
  ASSERT_TRUE(people_->CancelCheckpoint(&context, cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.state(), v1::Phase::COMMITTING);
  EXPECT_TRUE(HasReason(StatusFromProto(cancelled.error()), Reason::kStorageStalled));
  EXPECT_TRUE(absl::IsDeadlineExceeded(slow[0]->WaitOutcome(1, absl::Seconds(1))));
  // Another job is planned and written meanwhile, up to its own outcome.
  for (FakeAgent* agent : other) agent->Save(1);
  EXPECT_TRUE(other[0]->WaitPhase(1, v1::Phase::WRITTEN));
  // Storage comes back. One of the cancelled save's two records stands, and all ranks hear which.
  std::filesystem::remove(hang_);
  const absl::Status outcome = slow[0]->WaitOutcome(1);
  for (FakeAgent* agent : slow) EXPECT_EQ(agent->WaitOutcome(1).ok(), outcome.ok());
  EXPECT_EQ(Get("slow", 1).state() == v1::Phase::COMMITTED, outcome.ok());
  for (const auto& agents : more) EXPECT_TRUE(agents[0]->WaitOutcome(1).ok());
  EXPECT_TRUE(other[0]->WaitOutcome(1).ok());
}

TEST_F(StalledStorageTest, Sigterm_StorageHangs_EndsTheCoordinator) {
  Start();
  const auto slow = StartAgents("slow");
  std::ofstream(hang_).flush();
  for (FakeAgent* agent : slow) agent->Save(1);
  ASSERT_TRUE(AwaitStalled("slow", 1));
  coordinator_.Signal(SIGTERM);
  EXPECT_EQ(coordinator_.Wait(absl::Seconds(60)), 1) << "it has not drained";
}

TEST_F(StalledStorageTest, Request_CallersDoNotWait_DoesNoHarm) {
  Start("60s");
  // All workers hang, so other requests wait until their callers have gone.
  std::ofstream(hang_).flush();
  for (int i = 0; i < 4; ++i) {
    for (FakeAgent* agent : StartAgents(absl::StrCat("slow", i))) agent->Save(1);
  }
  for (int i = 0; i < 3000 && ReadWhole(hang_ + ".reached").size() < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(ReadWhole(hang_ + ".reached").size(), 4u);
  const auto stub = v1::AgentCoordinationService::NewStub(*AwaitChannel(*CoordinatorAt(address_, token_, 64 << 20)));
  v1::RegisterAgentRequest registration;
  registration.mutable_agent()->set_job("demo");
  registration.mutable_agent()->set_incarnation(7);
  registration.set_world_size(1);
  registration.set_protocol(kProtocolVersion);
  registration.set_root_proof(ReadWhole(root_ + "/.cairn/root-proof"));
  grpc::ClientContext registering;
  PrepareCall(registering, absl::Seconds(30));
  v1::RegisterAgentResponse registered;
  ASSERT_TRUE(stub->RegisterAgent(&registering, registration, &registered).ok());
  v1::PutLayoutRequest put;
  *put.mutable_agent() = registration.agent();
  put.mutable_agent()->set_coordinator_epoch(registered.coordinator_epoch());
  put.set_chunk(std::string(2 << 20, 'x'));
  put.set_digest(Digest(put.chunk()));
  put.set_total_bytes(put.chunk().size() + 1);
  for (int call = 0; call < 40; ++call) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Milliseconds(50));
    v1::PutLayoutResponse response;
    EXPECT_EQ(stub->PutLayout(&context, put, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  std::filesystem::remove(hang_);
  // This call is the last in the queue, so its answer shows that the others have been worked on.
  grpc::ClientContext last;
  PrepareCall(last, absl::Seconds(30));
  v1::PutLayoutResponse response;
  const grpc::Status status = stub->PutLayout(&last, put, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(coordinator_.Wait(absl::ZeroDuration()), -1) << "it is alive";
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(30));
  v1::Capabilities capabilities;
  EXPECT_TRUE(people_->GetCapabilities(&context, v1::GetCapabilitiesRequest(), &capabilities).ok());
}

}  // namespace
}  // namespace cairn::testing
