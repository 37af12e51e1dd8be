#include "common/rpc/endpoint.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/rpc/reactor.h"
#include "common/rpc/testing/loopback_server.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

class Service final : public v1::CheckpointService::CallbackService {
 public:
  // Fails with an error as large as errors may be.
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context, const v1::GetCheckpointRequest*,
                                          v1::Checkpoint*) override {
    return FinishNow(context, MakeError(Reason::kRankLate, std::string(500, 'x'), {{"ranks", std::string(900, '1')}}));
  }
  // Holds the call until Release, its timer, or its cancellation.
  grpc::ServerUnaryReactor* WaitCheckpoint(grpc::CallbackServerContext*, const v1::WaitCheckpointRequest* request,
                                           v1::Checkpoint* response) override {
    auto call = HeldCall::Start(absl::Milliseconds(request->max_wait().nanos() / 1'000'000),
                                [this, response](HeldCall& held, bool timer) {
                                  ++ended;
                                  if (!timer || !held.Claim()) return;
                                  response->set_revision(1);
                                  held.AnswerClaimed(absl::OkStatus());
                                });
    std::lock_guard lock(mutex);
    calls.push_back(call);
    return call->reactor();
  }

  std::mutex mutex;
  std::vector<std::shared_ptr<HeldCall>> calls;
  std::atomic<int> ended = 0;
};

class EndpointTest : public ::testing::Test {
 protected:
  ~EndpointTest() override { server_.End(); }

  Service service_;
  testing::LoopbackServer server_{service_};
  const std::string address_ = server_.address();
  const std::unique_ptr<v1::CheckpointService::Stub> stub_ = v1::CheckpointService::NewStub(MakeChannel(address_));
};

TEST_F(EndpointTest, Call_LargestError_ArrivesWhole) {
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(10));
  v1::Checkpoint response;
  const absl::Status status =
      CallError(stub_->GetCheckpoint(&context, {}, &response), ServerRole::kCoordinator, address_);
  EXPECT_EQ(ReasonOf(status), Reason::kRankLate);
  EXPECT_EQ(status.message(), std::string(500, 'x'));
  EXPECT_EQ(MetadataOf(status).at("ranks"), std::string(900, '1'));
}

TEST_F(EndpointTest, Call_OversizeMessage_IsRefusedWithReason) {
  v1::GetCheckpointRequest request;
  request.set_job(std::string(5 << 20, 'x'));
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(10));
  v1::Checkpoint response;
  auto stub = v1::CheckpointService::NewStub(MakeChannel(address_, 64 << 20));
  EXPECT_EQ(ReasonOf(CallError(stub->GetCheckpoint(&context, request, &response), ServerRole::kCoordinator, address_)),
            Reason::kMessageTooLarge);
}

// What listens here never answers, as a stopped process does not.
TEST_F(EndpointTest, Call_ServerIsFrozen_SaysThatItDoesNotAnswer) {
  v1::WaitCheckpointRequest request;
  request.mutable_max_wait()->set_nanos(900'000'000);
  grpc::ClientContext context;
  PrepareCall(context, absl::Milliseconds(50));
  v1::Checkpoint response;
  const absl::Status error =
      CallError(stub_->WaitCheckpoint(&context, request, &response), ServerRole::kCoordinator, "here");
  EXPECT_EQ(ReasonOf(error), Reason::kCoordinatorUnreachable);
  EXPECT_EQ(error.message(), "coordinator here did not answer in time: it is stopped, frozen or very busy");
}

// A coordinator of an older version lacks a call; at the address of an agent that has ended, another program may
// listen.
TEST_F(EndpointTest, Call_ServerLacksIt_CoordinatorDoesNotSupportItAgentIsGone) {
  for (const auto& [peer, reason] : {std::pair(ServerRole::kCoordinator, Reason::kUnsupported),
                                     std::pair(ServerRole::kAgent, Reason::kAgentUnreachable)}) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(10));
    v1::ListCheckpointsResponse response;
    EXPECT_EQ(ReasonOf(CallError(stub_->ListCheckpoints(&context, {}, &response), peer, address_)), reason);
  }
}

TEST_F(EndpointTest, HeldCall_TimeIsOver_TimerAnswers) {
  v1::WaitCheckpointRequest request;
  request.mutable_max_wait()->set_nanos(20'000'000);
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(10));
  v1::Checkpoint response;
  EXPECT_TRUE(stub_->WaitCheckpoint(&context, request, &response).ok());
  EXPECT_EQ(response.revision(), 1u);
  EXPECT_FALSE(service_.calls[0]->Answer(absl::OkStatus())) << "answered twice";
}

TEST_F(EndpointTest, HeldCall_ServerDrains_IsCancelled) {
  v1::WaitCheckpointRequest request;
  request.mutable_max_wait()->set_nanos(900'000'000);
  grpc::Status status;
  std::thread caller([&] {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(10));
    v1::Checkpoint response;
    status = stub_->WaitCheckpoint(&context, request, &response);
  });
  for (;;) {
    std::lock_guard lock(service_.mutex);
    if (!service_.calls.empty()) break;
  }
  server_.End(std::chrono::milliseconds(0));
  caller.join();
  EXPECT_FALSE(status.ok());
}

// Otherwise what `on_end` holds (a load's source, say) would stay as long as the process.
TEST_F(EndpointTest, HeldCall_AnyEnd_FreesIt) {
  for (const bool by_timer : {false, true}) {
    v1::WaitCheckpointRequest request;
    request.mutable_max_wait()->set_nanos(by_timer ? 20'000'000 : 900'000'000);
    grpc::Status status;
    std::thread caller([&] {
      grpc::ClientContext context;
      PrepareCall(context, absl::Seconds(10));
      v1::Checkpoint response;
      status = stub_->WaitCheckpoint(&context, request, &response);
    });
    std::weak_ptr<HeldCall> held;
    while (held.expired()) {
      std::lock_guard lock(service_.mutex);
      if (service_.calls.empty()) continue;
      held = service_.calls[0];
      if (!by_timer) service_.calls[0]->Answer(absl::OkStatus());
      service_.calls.clear();
      break;
    }
    caller.join();
    EXPECT_TRUE(status.ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!held.expired() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(held.expired()) << (by_timer ? "by its timer" : "by its answer");
  }
}

TEST(CheckListenAddressTest, CheckListenAddress_NotLoopback_NeedsAToken) {
  for (const char* address : {"127.0.0.1:0", "localhost:7420", "[::1]:0"})
    EXPECT_TRUE(CheckListenAddress(address, false).ok());
  for (const char* address : {"0.0.0.0:7420", "10.0.0.1:0", "[::]:0", "12.7.0.1:1", "127.example.org:1"}) {
    EXPECT_TRUE(HasReason(CheckListenAddress(address, false), Reason::kNotLoopback)) << address;
    EXPECT_TRUE(CheckListenAddress(address, true).ok());
  }
}

}  // namespace
}  // namespace cairn
