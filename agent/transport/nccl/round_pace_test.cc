#include "agent/transport/nccl/round_pace.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "agent/transport/testing/far_gate.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::FarGate;

// It cannot be told anything.
class LostGate final : public FarGate {
 public:
  using FarGate::FarGate;
  void Release(uint32_t, Failed failed) override {
    failed(MakeError(Reason::kTransportFailed, "rank 0 cannot be reached"));
  }
};

class RoundPaceTest : public ::testing::Test {
 protected:
  const std::shared_ptr<RoundGate> gate_ = std::make_shared<RoundGate>(std::vector<uint32_t>{0, 1});
  RoundPace own_{0, gate_};
  RoundPace far_{1, std::make_unique<FarGate>(1, gate_)};
};

TEST_F(RoundPaceTest, Await_BothGoOn_PassRoundByRound) {
  auto other = std::async(std::launch::async, [&] {
    for (uint32_t round = 0; round < 100; ++round) {
      if (const absl::Status passed = far_.Await(round); !passed.ok()) return passed;
    }
    far_.Pass(UINT32_MAX);
    return absl::OkStatus();
  });
  for (uint32_t round = 0; round < 150; ++round) ASSERT_TRUE(own_.Await(round).ok());
  EXPECT_TRUE(other.get().ok());
}

TEST_F(RoundPaceTest, Cancel_WhileItWaits_EndsIt) {
  uint32_t round = 0;
  for (RoundPace* pace : {&own_, &far_}) {
    ++round;  // to which the other rank has not come, so the gate is shut
    auto waiting = std::async(std::launch::async, [&] { return pace->Await(round); });
    pace->Cancel();
    EXPECT_TRUE(HasReason(waiting.get(), Reason::kInterrupted));
    EXPECT_TRUE(HasReason(pace->Await(round), Reason::kInterrupted)) << "and what comes later";
  }
}

TEST_F(RoundPaceTest, Pass_CannotBeTold_EndsTheNextWait) {
  RoundPace lost(1, std::make_unique<LostGate>(1, gate_));
  lost.Pass(1);
  EXPECT_TRUE(HasReason(lost.Await(1), Reason::kTransportFailed));
}

TEST_F(RoundPaceTest, Await_TheGateStops_GivesItsReason) {
  auto waiting = std::async(std::launch::async, [&] { return far_.Await(0); });
  gate_->Stop(MakeError(Reason::kPlanUnknown, "the load has ended"));
  EXPECT_TRUE(HasReason(waiting.get(), Reason::kPlanUnknown));
}

}  // namespace
}  // namespace cairn
