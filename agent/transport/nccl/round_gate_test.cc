#include "agent/transport/nccl/round_gate.h"

#include <gtest/gtest.h>

#include <optional>

#include "common/status/reason.h"

namespace cairn {
namespace {

// Returns what a call was answered; nothing while it waits.
using Answer = std::optional<absl::Status>;

class RoundGateTest : public testing::Test {
 protected:
  void Await(uint32_t rank, uint32_t round, Answer& answer) {
    gate_.Await(rank, round, 0, [&answer](const absl::StatusOr<RoundBuffer>& said) {
      EXPECT_FALSE(answer.has_value()) << "answered twice";
      answer = said.status();
    });
  }

  RoundGate gate_{{0, 1, 2}};
  Answer first_, second_, third_;
};

TEST_F(RoundGateTest, Await_AllAreReady_OpensForAllAtOnce) {
  Await(0, 0, first_);
  Await(1, 0, second_);
  EXPECT_FALSE(first_.has_value());
  Await(2, 0, third_);
  for (const Answer& answer : {first_, second_, third_}) EXPECT_EQ(answer, absl::OkStatus());
}

TEST_F(RoundGateTest, Await_OneIsReadyForALaterRound_OpensTheEarlierOnes) {
  Await(2, 5, third_);
  Await(0, 3, first_);
  Await(1, 4, second_);
  EXPECT_EQ(first_, absl::OkStatus());
  EXPECT_FALSE(second_.has_value()) << "rank 0 may be busy with round 3";
  Answer again;
  Await(0, 4, again);
  EXPECT_EQ(second_, absl::OkStatus());
  EXPECT_EQ(again, absl::OkStatus());
  EXPECT_FALSE(third_.has_value());
}

TEST_F(RoundGateTest, Release_ByARankThatTakesNoPart_HoldsUpNobodyBelow) {
  Await(0, 1, first_);
  Await(1, 2, second_);
  gate_.Release(2, 2);
  EXPECT_EQ(first_, absl::OkStatus());
  gate_.Release(0, UINT32_MAX);
  EXPECT_FALSE(second_.has_value()) << "rank 2 is not ready for round 2";
  gate_.Release(2, UINT32_MAX);
  EXPECT_EQ(second_, absl::OkStatus());
}

TEST_F(RoundGateTest, Await_AskedAgain_IsAnsweredByTheSame) {
  Answer lost;
  const uint64_t call = gate_.Await(0, 0, 0, [&](const auto& said) { lost = said.status(); });
  gate_.Forget(call);
  Await(0, 0, first_);
  Await(1, 0, second_);
  Await(2, 0, third_);
  EXPECT_EQ(first_, absl::OkStatus());
  EXPECT_FALSE(lost.has_value());
}

TEST_F(RoundGateTest, Await_ARankOfNoExchange_IsRefusedAndCountsForNothing) {
  Answer stranger;
  Await(9, 7, stranger);
  EXPECT_TRUE(HasReason(*stranger, Reason::kBadRequest));
  gate_.Release(9, 7);
  Await(0, 0, first_);
  EXPECT_FALSE(first_.has_value());
}

TEST_F(RoundGateTest, Stop_SomeWait_TellsThemAndAllThatComeLater) {
  Await(0, 0, first_);
  gate_.Stop(MakeError(Reason::kPlanUnknown, "the load has ended"));
  Await(1, 0, second_);
  EXPECT_TRUE(HasReason(*first_, Reason::kPlanUnknown));
  EXPECT_TRUE(HasReason(*second_, Reason::kPlanUnknown));
}

TEST(RoundGateTokenTest, TokenOf_TwoLoads_DiffersAndIsNotTheLoadsOwn) {
  EXPECT_NE(RoundGate::TokenOf("a"), RoundGate::TokenOf("b"));
  EXPECT_NE(RoundGate::TokenOf("a"), "a");
}

}  // namespace
}  // namespace cairn
