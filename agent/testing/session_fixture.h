// A session that has registered, with the one trainer that has always been there: what tests of a session begin with.
#ifndef CAIRN_AGENT_TESTING_SESSION_FIXTURE_H_
#define CAIRN_AGENT_TESTING_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "agent/session/session.h"

namespace cairn {
namespace testing {

// What a coordinator of epoch 5 says of these ranks: the agent of rank r has the incarnation 100 + r.
inline v1::GetTransferPeersResponse PeersOf(const std::vector<uint32_t>& ranks, uint64_t membership_epoch = 0) {
  v1::GetTransferPeersResponse response;
  response.set_coordinator_epoch(5);
  response.set_membership_epoch(membership_epoch);
  for (const uint32_t rank : ranks) {
    v1::TransferPeer& peer = *response.add_peers();
    peer.set_rank(rank);
    peer.set_incarnation(100 + rank);
  }
  return response;
}

}  // namespace testing

// Rank 3 of 8 of the job "demo", under the coordinator epoch 5. It knows `layout`.
class SessionFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kTrainer = 77;

  explicit SessionFixture(RankLayoutPtr layout)
      : layout_(std::move(layout)), session_({.job = "demo", .rank = 3, .world_size = 8, .incarnation = 9}) {
    v1::RegisterAgentResponse registered;
    registered.set_coordinator_epoch(5);
    EXPECT_TRUE(session_.OnRegistered(registered).ok());
    session_.Attach(kTrainer);
    session_.AddLayout(layout_);
  }

  // What the session would tell the coordinator now.
  v1::AgentState State() { return session_.BuildRequest(std::nullopt).state(); }

  // `timeout`: in seconds.
  absl::StatusOr<v1::BeginSaveResponse> BeginSave(uint64_t trainer, int64_t step, int timeout) {
    v1::BeginSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.mutable_layout()->set_digest(layout_->digest);
    request.mutable_timeout()->set_seconds(timeout);
    return session_.BeginSave(request, now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  RankLayoutPtr layout_;
  Session session_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TESTING_SESSION_FIXTURE_H_
