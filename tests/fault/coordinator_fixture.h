// A real coordinator process, and fake agents of one job that drive it over gRPC.
#ifndef CAIRN_TESTS_FAULT_COORDINATOR_FIXTURE_H_
#define CAIRN_TESTS_FAULT_COORDINATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/base/random_id.h"
#include "common/format/checkpoint_path.h"
#include "common/format/manifest.h"
#include "common/format/outcome.h"
#include "common/format/safetensors_header.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/testing/proven_peer.h"
#include "common/status/reason.h"
#include "tests/testing/fake_agent.h"
#include "tests/testing/process.h"

namespace cairn::testing {

class CoordinatorFixture : public ::testing::Test {
 protected:
  CoordinatorFixture() {
    root_ = directory_.path() + "/root";
    std::filesystem::create_directory(root_);
    log_ = directory_.path() + "/coordinator.log";
    setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);  // the copies of tokens go there
  }
  ~CoordinatorFixture() override {
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
  // Returns the outcome of all ranks, which must agree, as OK or the error of an abort.
  absl::Status Outcome(int64_t step, const std::vector<int>& except = {}) {
    absl::Status outcome = absl::UnknownError("no agent");
    for (size_t i = 0; i < agents_.size(); ++i) {
      if (std::find(except.begin(), except.end(), static_cast<int>(i)) != except.end()) continue;
      const absl::Status each = agents_[i]->WaitOutcome(step);
      if (outcome.code() == absl::StatusCode::kUnknown) outcome = each;
      EXPECT_EQ(each.ok(), outcome.ok()) << "rank " << i << ": " << each << "; another: " << outcome;
      EXPECT_EQ(ReasonOf(each), ReasonOf(outcome)) << "rank " << i;
    }
    return outcome;
  }

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::CheckpointService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                        Response*),
                    const Request& request, Response& response) {
    const auto channel = AwaitChannel(*CoordinatorAt(address_, token_, 64 << 20));
    if (!channel.ok()) return channel.status();
    const auto stub = v1::CheckpointService::NewStub(*channel);
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(60));
    return CallError((stub.get()->*method)(&context, request, &response), ServerRole::kCoordinator, address_);
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
    while (checkpoint.state() != v1::Phase::COMMITTED && checkpoint.state() != v1::Phase::ABORTED) {
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
    ASSERT_EQ(checkpoint.state(), v1::Phase::COMMITTED);
    const auto outcome =
        DecodeOutcome(ReadWhole(absl::StrCat(root_, "/", OutcomePath("demo", step, checkpoint.attempt()))));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const Manifest& manifest = std::get<Manifest>(*outcome);
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
  std::vector<std::unique_ptr<FakeAgent>> agents_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_FAULT_COORDINATOR_FIXTURE_H_
