// Whose root and whose attempt: agents that see other storage are not registered, and agents that hold the attempts of
// different coordinators do not commit together.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/test_job.h"

namespace cairn {
namespace {

class OwnershipTest : public testing::Test {
 protected:
  OwnershipTest() {
    options_.root = "/ckpt";
    options_.root_proof = "proof";
  }

  TestJob& core() {
    if (core_ == nullptr) core_ = std::make_unique<TestJob>("demo", options_, now_);
    return *core_;
  }
  Job& job() { return core().job; }
  Moment At() { return Moment{now_, now_}; }

  v1::AgentIdentity Identity(uint32_t rank) {
    v1::AgentIdentity identity;
    identity.set_job("demo");
    identity.set_rank(rank);
    identity.set_incarnation(100 + rank);
    identity.set_coordinator_epoch(1);
    return identity;
  }
  absl::Status Register(uint32_t rank, const std::string& proof) {
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_world_size(2);
    request.set_node(absl::StrCat("node-", rank));
    request.set_root_proof(proof);
    return job().Register(request, At()).status();
  }
  // The rank's save of step 5 is being written, as attempt 3.
  v1::SaveOrder Report(uint32_t rank, uint64_t nonce) {
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_sequence(++sequence_);
    request.mutable_state()->mutable_trainer()->set_incarnation(7);
    request.mutable_state()->mutable_trainer()->set_attached(true);
    v1::SaveState& save = *request.mutable_state()->add_saves();
    save.set_step(5);
    save.set_call(1);
    save.set_trainer_incarnation(7);
    save.set_phase(v1::Phase::WRITING);
    save.set_layout_digest("layout");
    save.set_plan_digest("plan");
    save.set_attempt(3);
    save.set_attempt_nonce(nonce);
    EXPECT_TRUE(job().Synchronize(request, At()).ok());
    const auto orders = job().OrdersFor(static_cast<int>(rank), At());
    return orders.saves_size() > 0 ? orders.saves(0) : v1::SaveOrder();
  }
  // The plan comes out as it was.
  void Plan() {
    for (const CoreAction& action : core().TakeActions()) {
      if (const auto* plan = std::get_if<PlanSave>(&action)) {
        job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
      }
    }
  }
  v1::SaveOrder OrderOf(int rank) { return job().OrdersFor(rank, At()).saves(0); }

  DecisionOptions options_;
  std::unique_ptr<TestJob> core_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint64_t sequence_ = 0;
};

TEST_F(OwnershipTest, AgentThatReadsAnotherProof_IsNotRegistered_AndHearsWhoSeesWhat) {
  ASSERT_TRUE(Register(0, "proof").ok());
  for (const std::string& proof : {std::string("other"), std::string()}) {
    const absl::Status refused = Register(1, proof);
    EXPECT_TRUE(HasReason(refused, Reason::kRootMismatch)) << refused;
    for (const char* part : {"rank 1", "node-1", "/ckpt"}) {
      EXPECT_NE(refused.message().find(part), std::string::npos) << refused;
    }
    EXPECT_EQ(job().members().size(), 1u);
  }
  EXPECT_TRUE(Register(1, "proof").ok());
}

TEST_F(OwnershipTest, Attempt_Adopted_GoesOnUnderItsNonce) {
  ASSERT_TRUE(Register(0, "proof").ok());
  ASSERT_TRUE(Register(1, "proof").ok());
  core().layouts.Add("layout", 1);
  job().OnRecovered(StoredAttempts(), At());
  Report(0, 11);
  Report(1, 11);
  Plan();
  for (int rank : {0, 1}) {
    EXPECT_EQ(OrderOf(rank).phase(), v1::Phase::WRITING) << OrderOf(rank).ShortDebugString();
    EXPECT_EQ(OrderOf(rank).attempt(), 3u);
    EXPECT_EQ(OrderOf(rank).attempt_nonce(), 11u);
  }
}

TEST_F(OwnershipTest, Attempt_ReportedBeforeStorageWasRead_KeepsItsNonce) {
  ASSERT_TRUE(Register(0, "proof").ok());
  EXPECT_EQ(Report(0, 11).attempt_nonce(), 11u) << "the agent takes what it is told";
}

TEST_F(OwnershipTest, AdoptedAttempt_ThatAnotherRankHoldsFromAnotherCoordinator_IsAborted) {
  ASSERT_TRUE(Register(0, "proof").ok());
  ASSERT_TRUE(Register(1, "proof").ok());
  core().layouts.Add("layout", 1);
  job().OnRecovered(StoredAttempts(), At());
  Report(0, 11);
  Report(1, 12);
  Plan();
  for (int rank : {0, 1}) {
    const v1::SaveOrder order = OrderOf(rank);
    EXPECT_EQ(order.phase(), v1::Phase::ABORTING) << order.ShortDebugString();
    const absl::Status error = StatusFromProto(order.error());
    EXPECT_TRUE(HasReason(error, Reason::kCoordinatorRestarted)) << error;
    EXPECT_EQ(MetadataOf(error)["ranks"], "1");
  }
}

}  // namespace
}  // namespace cairn
