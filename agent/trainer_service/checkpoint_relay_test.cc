#include "agent/trainer_service/checkpoint_relay.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "agent/testing/fake_trainer.h"
#include "agent/testing/running_agent.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/base/random_id.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/testing/loopback_server.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// Answers the calls that these tests look into, and knows no other.
class Coordinator final : public v1::CheckpointService::Service {
 public:
  grpc::Status CreateCheckpoint(grpc::ServerContext*, const v1::CreateCheckpointRequest* request,
                                v1::Checkpoint* response) override {
    created = *request;
    response->set_request_id(request->request_id());
    return grpc::Status::OK;
  }
  grpc::Status WaitJob(grpc::ServerContext* context, const v1::WaitJobRequest*, v1::Job*) override {
    waiting.set_value();
    while (!context->IsCancelled()) {
    }
    return grpc::Status::CANCELLED;
  }

  v1::CreateCheckpointRequest created;
  std::promise<void> waiting;
};

class CheckpointRelayTest : public ::testing::Test {
 protected:
  CheckpointRelayTest() { std::filesystem::create_directories(directory_ + "/root"); }
  ~CheckpointRelayTest() override {
    agent_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Start(const std::string& coordinator) {
    AgentOptions options;
    options.coordinator = coordinator;
    options.job = "demo";
    options.world_size = 1;
    options.root = directory_ + "/root";
    options.socket_directory = directory_;
    agent_ = std::make_unique<testing::RunningAgent>(options);
    channel_ = MakeChannel(agent_->address());
    stub_ = v1::CheckpointService::NewStub(channel_);
  }

  static absl::Status ErrorOf(const grpc::Status& status) { return CallError(status, ServerRole::kAgent, "the agent"); }

  // Calls a method with an empty request, but for its job.
  absl::Status Call(const google::protobuf::MethodDescriptor& method, const std::string& job) {
    using google::protobuf::Message;
    const std::unique_ptr<Message> request(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.input_type())->New());
    if (const auto* field = request->GetDescriptor()->FindFieldByName("job")) {
      request->GetReflection()->SetString(request.get(), field, job);
    }
    grpc::ByteBuffer bytes, answer;
    bool own = false;
    EXPECT_TRUE(grpc::SerializationTraits<Message>::Serialize(*request, &bytes, &own).ok());
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(20));
    std::promise<grpc::Status> ended;
    grpc::GenericStub(channel_).UnaryCall(&context, "/cairn.v1.CheckpointService/" + std::string(method.name()), {},
                                          &bytes, &answer,
                                          [&](grpc::Status status) { ended.set_value(std::move(status)); });
    return ErrorOf(ended.get_future().get());
  }

  static const google::protobuf::ServiceDescriptor& Methods() {
    return *v1::Checkpoint::descriptor()->file()->FindServiceByName("CheckpointService");
  }

  // Socket paths are short: not below the test's own long directory.
  const std::string directory_ = "/tmp/cairn-test-" + RandomToken(6);
  Coordinator coordinator_;
  testing::LoopbackServer server_{coordinator_};
  std::unique_ptr<testing::RunningAgent> agent_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

TEST_F(CheckpointRelayTest, Call_EveryMethodOfTheService_ReachesTheCoordinator) {
  Start(server_.address());
  for (int i = 0; i < Methods().method_count(); ++i) {
    const auto& method = *Methods().method(i);
    if (method.name() == "CreateCheckpoint" || method.name() == "WaitJob") continue;  // the tests below call them
    const absl::Status status = Call(method, "demo");
    EXPECT_TRUE(HasReason(status, Reason::kUnsupported)) << method.name() << ": " << status;
    EXPECT_NE(status.message().find("coordinator"), std::string::npos) << status;
  }
}

TEST_F(CheckpointRelayTest, Call_AboutAnotherJob_IsRefused) {
  Start(server_.address());
  for (int i = 0; i < Methods().method_count(); ++i) {
    const auto& method = *Methods().method(i);
    if (method.input_type()->FindFieldByName("job") == nullptr) continue;
    const absl::Status status = Call(method, "other");
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << method.name() << ": " << status;
    EXPECT_EQ(MetadataOf(status).at("agent_job"), "demo");
  }
}

TEST_F(CheckpointRelayTest, CreateCheckpoint_ATrainerIsAttached_AsksForTheTrainer) {
  Start(server_.address());
  const auto create = [&] {
    grpc::ClientContext context;
    v1::CreateCheckpointRequest request;
    request.set_job("demo");
    request.set_request_id("mine");
    v1::Checkpoint checkpoint;
    const absl::Status status = ErrorOf(stub_->CreateCheckpoint(&context, request, &checkpoint));
    if (status.ok()) {
      EXPECT_EQ(checkpoint.request_id(), "mine");
    }
    return status;
  };
  EXPECT_TRUE(HasReason(create(), Reason::kNotRegistered));
  testing::FakeTrainer trainer(agent_->address());
  ASSERT_TRUE(trainer.Attach().ok());
  EXPECT_TRUE(create().ok());
  EXPECT_TRUE(coordinator_.created.for_trainer());
}

TEST_F(CheckpointRelayTest, Call_TheCoordinatorIsNotThere_SaysSo) {
  server_.End();
  Start(server_.address());
  const absl::Status status = Call(*Methods().FindMethodByName("GetJob"), "demo");
  EXPECT_TRUE(HasReason(status, Reason::kCoordinatorUnreachable)) << status;
}

TEST_F(CheckpointRelayTest, Call_TheCoordinatorIsSilent_SaysSoWhileTheCallerListens) {
  Start(server_.address());
  grpc::ClientContext context;
  PrepareCall(context, absl::Seconds(2));
  v1::Job job;
  v1::WaitJobRequest request;
  request.set_job("demo");
  const absl::Status status = ErrorOf(stub_->WaitJob(&context, request, &job));
  EXPECT_TRUE(HasReason(status, Reason::kCoordinatorUnreachable)) << status;
}

TEST_F(CheckpointRelayTest, Call_TheCallerGivesUp_EndsTheCallToTheCoordinator) {
  Start(server_.address());
  grpc::ClientContext context;
  v1::Job job;
  v1::WaitJobRequest request;
  request.set_job("demo");
  std::promise<grpc::Status> ended;
  stub_->async()->WaitJob(&context, &request, &job, [&](grpc::Status status) { ended.set_value(std::move(status)); });
  coordinator_.waiting.get_future().wait();
  context.TryCancel();
  EXPECT_EQ(ended.get_future().get().error_code(), grpc::StatusCode::CANCELLED);
  // The fake's handler ends when its own call is cancelled, and the server's end waits for that.
  server_.End(std::chrono::minutes(1));
}

}  // namespace
}  // namespace cairn
