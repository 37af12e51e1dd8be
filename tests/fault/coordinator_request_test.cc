// Tests what the real coordinator answers to requests that are bad, have no token, are cancelled or time out.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "common/status/status_proto.h"
#include "tests/fault/coordinator_fixture.h"

namespace cairn::testing {
namespace {

class CoordinatorRequestTest : public CoordinatorFixture {};

TEST_F(CoordinatorRequestTest, Request_BadValues_IsRefusedByReason) {
  Start({"--phase-timeout=20s", "--lease-ttl=1s"});
  v1::Checkpoint checkpoint;
  v1::CreateCheckpointRequest request;
  request.set_job("Bad Name");
  request.set_request_id("r");
  EXPECT_TRUE(
      HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kBadJobName));
  request.set_job("demo");
  request.set_step(-1);
  EXPECT_TRUE(HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kBadStep));
  request.clear_step();
  request.set_request_id("");
  EXPECT_TRUE(
      HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(Create().status(), Reason::kJobNotFound));
  request.set_request_id(std::string(5 << 20, 'x'));
  EXPECT_TRUE(
      HasReason(Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, checkpoint), Reason::kMessageTooLarge));
  v1::ListCheckpointsRequest list;
  list.set_job("demo");
  list.set_page_token("not mine");
  v1::ListCheckpointsResponse page;
  EXPECT_TRUE(HasReason(Call(&v1::CheckpointService::Stub::ListCheckpoints, list, page), Reason::kBadRequest));
  StartAgents();
  // One agent claims a rank that is taken, the other has another world size.
  FakeAgent twin(AgentOptions(1));
  FakeAgentOptions other = AgentOptions(3);
  other.world_size = 4;
  FakeAgent stranger(other);
  for (auto [agent, reason] : {std::pair(&twin, Reason::kRankConflict), {&stranger, Reason::kWorldSizeMismatch}}) {
    while (agent->registration_errors().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(HasReason(agent->registration_errors()[0], reason)) << agent->registration_errors()[0];
  }
  SaveAll(1);
  ASSERT_TRUE(Outcome(1).ok());
  EXPECT_TRUE(HasReason(Create(1).status(), Reason::kStepCommitted));
  for (auto& agent : agents_) agent->ReportStep(9);
  for (int i = 0; i < 100; ++i) {
    const auto passed = Create(9, absl::StrCat("p", i), absl::Seconds(1));
    if (!passed.ok()) {
      EXPECT_TRUE(HasReason(passed.status(), Reason::kStepPassed)) << passed.status();
      break;
    }
  }
}

TEST_F(CoordinatorRequestTest, Request_WithoutTheToken_IsRefused) {
  token_ = "a token of more than sixteen characters";
  const std::string file = directory_.path() + "/token";
  std::ofstream(file) << token_ << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  Start({"--phase-timeout=20s", "--lease-ttl=4s", "--token-file=" + file});
  StartAgents();
  SaveAll(1);
  EXPECT_TRUE(Outcome(1).ok());
  const std::string right = token_;
  for (const char* wrong : {"", "another token, just as long as that"}) {
    token_ = wrong;
    EXPECT_TRUE(HasReason(Create().status(), Reason::kBadToken));
    FakeAgent stranger(AgentOptions(0));
    while (stranger.registration_errors().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(HasReason(stranger.registration_errors()[0], Reason::kBadToken));
  }
  token_ = right;
}

TEST_F(CoordinatorRequestTest, Request_CancelledOrTimedOut_EndsByName) {
  Start();
  StartAgents();
  for (auto& agent : agents_) agent->ReportStep(1);
  // The step is far away, so the ranks agree on it and the save waits for it.
  auto created = Create(1000, "far", absl::Seconds(2));
  ASSERT_TRUE(created.ok()) << created.status();
  v1::Checkpoint ended = Follow(*created, "far");
  EXPECT_TRUE(HasReason(StatusFromProto(ended.error()), Reason::kRankLate)) << ended.ShortDebugString();
  EXPECT_EQ(MetadataOf(StatusFromProto(ended.error()))["ranks"], "0, 1, 2");
  created = Create(2000, "cancelled");
  ASSERT_TRUE(created.ok()) << created.status();
  v1::CancelCheckpointRequest cancel;
  cancel.set_job("demo");
  cancel.set_request_id("cancelled");
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(Call(&v1::CheckpointService::Stub::CancelCheckpoint, cancel, checkpoint).ok());
  ended = Follow(*created, "cancelled");
  EXPECT_TRUE(HasReason(StatusFromProto(ended.error()), Reason::kSaveCancelled)) << ended.ShortDebugString();
  SaveAll(3);
  EXPECT_TRUE(Outcome(3).ok());
}

}  // namespace
}  // namespace cairn::testing
