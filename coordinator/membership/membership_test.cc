#include "coordinator/membership/membership.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

v1::RegisterAgentRequest Request(uint32_t rank, uint64_t incarnation, uint32_t world_size = 4) {
  v1::RegisterAgentRequest request;
  request.mutable_agent()->set_job("demo");
  request.mutable_agent()->set_rank(rank);
  request.mutable_agent()->set_incarnation(incarnation);
  request.set_world_size(world_size);
  request.set_node("host");
  return request;
}

TEST(MembershipTest, Register_SameIncarnationAgain_IsNoChange) {
  Membership members("demo", kLease);
  EXPECT_EQ(*members.Register(Request(1, 7), kStart), true);
  EXPECT_EQ(members.epoch(), 1u);
  EXPECT_EQ(*members.Register(Request(1, 7), kStart + absl::Seconds(5)), false);
  EXPECT_EQ(members.epoch(), 1u);
  EXPECT_EQ(members.Find(1)->lease_end, kStart + absl::Seconds(15));
}

TEST(MembershipTest, Register_AnotherIncarnation_OnlyAfterTheLease) {
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(1, 7), kStart).ok());
  const absl::Status early = members.Register(Request(1, 8), kStart + kLease).status();
  EXPECT_TRUE(HasReason(early, Reason::kRankConflict)) << early;
  EXPECT_EQ(MetadataOf(early)["rank"], "1");
  const absl::Time later = kStart + kLease + absl::Milliseconds(1);
  EXPECT_EQ(*members.Register(Request(1, 8), later), true);
  // The old one learns that it is not wanted any more.
  EXPECT_TRUE(HasReason(members.Authenticate(Request(1, 7).agent(), later).status(), Reason::kStaleIncarnation));
  EXPECT_TRUE(members.Authenticate(Request(1, 8).agent(), later).ok());
}

TEST(MembershipTest, Complete_WhatCameBeforeIsNotKnown_IsRefused) {
  Membership members("demo", kLease);
  LayoutTable layouts;
  ASSERT_TRUE(members.Register(Request(1, 7), kStart).ok());
  const Member& member = **members.Authenticate(Request(1, 7).agent(), kStart);
  v1::SynchronizeAgentRequest request;
  EXPECT_TRUE(HasReason(members.Complete(member, request).status(), Reason::kNotRegistered)) << "it has said nothing";
  members.Report(member, v1::AgentState(), 3, layouts, kStart);
  request.set_base_sequence(3);
  EXPECT_TRUE(members.Complete(member, request).ok());
  request.set_base_sequence(4);
  EXPECT_TRUE(HasReason(members.Complete(member, request).status(), Reason::kNotRegistered));
}

TEST(MembershipTest, Report_TrainersProcess_IsHaltedUnlessItRunsAndSinceWhenIsKept) {
  Membership members("demo", kLease);
  LayoutTable layouts;
  ASSERT_TRUE(members.Register(Request(1, 7), kStart).ok());
  const Member& member = **members.Authenticate(Request(1, 7).agent(), kStart);
  v1::AgentState state;
  uint64_t sequence = 0;
  const auto report = [&](v1::JobRank::TrainerProcess process, int second) {
    state.mutable_trainer()->set_process(process);
    members.Report(member, state, ++sequence, layouts, kStart + absl::Seconds(second));
  };
  state.mutable_trainer()->set_attached(true);
  state.mutable_trainer()->set_incarnation(5);
  report(v1::JobRank::TRAINER_PROCESS_UNSPECIFIED, 1);
  EXPECT_FALSE(member.halted()) << "nobody knows";
  report(v1::JobRank::RUNNING, 2);
  EXPECT_FALSE(member.halted());
  for (const auto process : {v1::JobRank::STOPPED, v1::JobRank::UNINTERRUPTIBLE, v1::JobRank::GONE}) {
    report(process, 3 + process);
    EXPECT_TRUE(member.halted()) << process;
    EXPECT_EQ(member.process_since, kStart + absl::Seconds(3 + process));
  }
  state.mutable_trainer()->set_current_step(9);
  report(v1::JobRank::GONE, 20);
  EXPECT_EQ(member.process_since, kStart + absl::Seconds(3 + v1::JobRank::GONE)) << "it stands as before";
  state.mutable_trainer()->set_attached(false);
  report(v1::JobRank::GONE, 21);
  EXPECT_FALSE(member.halted()) << "there is no trainer, and its successor is waited for";
}

TEST(MembershipTest, Register_SuccessorOfTheHolder_TakesItsPlaceAtOnce) {
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(1, 7), kStart).ok());
  v1::RegisterAgentRequest next = Request(1, 8);
  for (const uint64_t another : {0, 6, 8}) {
    next.add_predecessors(another);
    const absl::Status refused = members.Register(next, kStart).status();
    EXPECT_TRUE(HasReason(refused, Reason::kRankConflict)) << refused;
  }
  next.add_predecessors(7);
  EXPECT_TRUE(members.Register(next, kStart).ok());
  EXPECT_EQ(members.Find(1)->incarnation, 8u);
  EXPECT_EQ(members.epoch(), 2u);
  EXPECT_TRUE(HasReason(members.Authenticate(Request(1, 7).agent(), kStart).status(), Reason::kStaleIncarnation));
}

TEST(MembershipTest, Expire_EndedLease_IsNotRegisteredAndNamesTheRank) {
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(0, 7), kStart).ok());
  ASSERT_TRUE(members.Register(Request(2, 8), kStart + absl::Seconds(5)).ok());
  EXPECT_EQ(members.Expire(kStart + kLease), std::vector<int>());
  EXPECT_EQ(members.Expire(kStart + kLease + absl::Nanoseconds(1)), std::vector<int>{0});
  EXPECT_TRUE(HasReason(members.Authenticate(Request(0, 7).agent(), kStart + absl::Seconds(11)).status(),
                        Reason::kNotRegistered));
  EXPECT_EQ(members.Absent(), (std::vector<int>{0, 1, 3}));
  // It comes back by itself.
  EXPECT_TRUE(members.Register(Request(0, 7), kStart + absl::Seconds(11)).ok());
}

TEST(MembershipTest, Register_AnotherWorldSize_OnlyWithoutLiveAgents) {
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(0, 7), kStart).ok());
  EXPECT_TRUE(HasReason(members.Register(Request(1, 8, 2), kStart).status(), Reason::kWorldSizeMismatch));
  // Alone, or after the others have gone, an agent may bring another one.
  EXPECT_TRUE(members.Register(Request(0, 7, 2), kStart).ok());
  EXPECT_EQ(members.world_size(), 2);
  EXPECT_FALSE(members.complete());
  EXPECT_TRUE(members.Register(Request(1, 8, 2), kStart).ok());
  EXPECT_TRUE(members.complete());
  EXPECT_EQ(members.Expire(kStart + absl::Seconds(20)).size(), 2u);
  EXPECT_TRUE(members.Register(Request(5, 9, 8), kStart + absl::Seconds(20)).ok());
  EXPECT_EQ(members.world_size(), 8);
}

TEST(MembershipTest, Register_BadNumbers_AreRefused) {
  Membership members("demo", kLease);
  EXPECT_TRUE(HasReason(members.Register(Request(4, 7), kStart).status(), Reason::kRankOutOfRange));
  EXPECT_TRUE(HasReason(members.Register(Request(0, 7, 0), kStart).status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(members.Register(Request(0, 7, 2'000'000), kStart).status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(members.Register(Request(0, 0), kStart).status(), Reason::kBadRequest));
}

TEST(MembershipTest, Report_Overtaken_ChangesNothing) {
  LayoutTable layouts;
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(0, 7), kStart).ok());
  const Member& member = **members.Authenticate(Request(0, 7).agent(), kStart);
  v1::AgentState state;
  state.mutable_trainer()->set_current_step(5);
  EXPECT_FALSE(members.Report(member, state, 2, layouts, kStart).stale);
  state.mutable_trainer()->set_current_step(4);
  EXPECT_TRUE(members.Report(member, state, 1, layouts, kStart).stale);
  EXPECT_TRUE(members.Report(member, state, 2, layouts, kStart).stale) << "a duplicate";
  EXPECT_EQ(member.current_step(), 5);
}

TEST(MembershipTest, Report_AStepThatIsNone_IsNotReported) {
  LayoutTable layouts;
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(0, 7), kStart).ok());
  const Member& member = **members.Authenticate(Request(0, 7).agent(), kStart);
  v1::AgentState state;
  for (const int64_t step : {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    state.mutable_trainer()->set_current_step(step);
    members.Report(member, state, 0, layouts, kStart);
    EXPECT_EQ(member.current_step(), std::nullopt) << step;
  }
}

TEST(MembershipTest, Report_StepsMove_RateFollowsTheTrainer) {
  LayoutTable layouts;
  Membership members("demo", kLease);
  ASSERT_TRUE(members.Register(Request(0, 7), kStart).ok());
  const Member& member = **members.Authenticate(Request(0, 7).agent(), kStart);
  v1::AgentState state;
  state.mutable_trainer()->set_incarnation(1);
  absl::Time now = kStart;
  for (int64_t step = 0; step < 100; step += 10) {
    now += absl::Seconds(1);
    state.mutable_trainer()->set_current_step(step);
    members.Report(member, state, 0, layouts, now);
  }
  EXPECT_NEAR(member.steps_per_second(), 10, 0.01);
  EXPECT_EQ(member.stepped, now);
  state.mutable_trainer()->set_incarnation(2);
  state.mutable_trainer()->set_current_step(0);
  members.Report(member, state, 0, layouts, now + absl::Seconds(1));
  EXPECT_EQ(member.steps_per_second(), 0) << "another trainer has a pace of its own";
}

// The ranks stand in a list in the order in which they were heard.
TEST(MembershipTest, Expire_AfterAnyCalls_FindsWhomALookAtAllFinds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr uint32_t kRanks = 12;
    Membership members("demo", kLease);
    std::map<int, absl::Time> heard;
    absl::Time now = kStart;
    for (int i = 0; i < 500; ++i) {
      now += absl::Milliseconds(random() % 1500);
      const auto number = static_cast<uint32_t>(random() % kRanks);
      const int rank = static_cast<int>(number);
      switch (random() % 4) {
        case 0:
          members.Remove(rank);
          heard.erase(rank);
          break;
        case 1:
          if (members.Authenticate(Request(number, 7, kRanks).agent(), now).ok()) heard[rank] = now;
          break;
        default:
          ASSERT_TRUE(members.Register(Request(number, 7, kRanks), now).ok());
          heard[rank] = now;
      }
      std::vector<int> silent;
      for (const auto& [each, last] : heard) {
        if (now - last > kLease) silent.push_back(each);
      }
      ASSERT_EQ(members.Expire(now), silent);
      for (const int each : silent) heard.erase(each);
      ASSERT_EQ(members.size(), heard.size());
    }
  }
}

}  // namespace
}  // namespace cairn
