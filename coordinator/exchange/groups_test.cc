#include "coordinator/exchange/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using Kind = ExchangeWay::Kind;
using v1::GroupState;
using v1::NcclSupport;

class GroupsTest : public testing::Test {
 protected:
  static NcclSupport Auto() {
    NcclSupport nccl;
    nccl.set_policy(NcclSupport::AUTO);
    nccl.set_version(22809);
    return nccl;
  }
  // The rank's agent comes; it is alone on its machine if `boot_id` says so.
  void Register(int rank, int ranks, const NcclSupport& nccl, const std::string& boot_id = "one") {
    v1::RegisterAgentRequest request;
    request.mutable_agent()->set_job("demo");
    request.mutable_agent()->set_rank(static_cast<uint32_t>(rank));
    incarnation_[rank] = ++last_incarnation_;
    request.mutable_agent()->set_incarnation(incarnation_[rank]);
    request.set_world_size(static_cast<uint32_t>(ranks));
    request.set_node(absl::StrCat("n", rank));
    request.set_boot_id(boot_id);
    *request.mutable_nccl() = nccl;
    members_->Remove(rank);
    ASSERT_TRUE(members_->Register(request, now_).ok());
  }
  void RegisterAll(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) Register(rank, ranks, Auto());
  }
  bool Report(int rank, uint64_t number, GroupState::Phase phase, const std::string& id = "",
              const std::string& error = "", const std::vector<uint32_t>& faulty_ranks = {}) {
    v1::AgentState state;
    if (number != 0) {
      GroupState& group = *state.add_groups();
      group.set_number(number);
      group.set_phase(phase);
      group.set_unique_id(id);
      group.set_error(error);
      group.mutable_faulty_ranks()->Assign(faulty_ranks.begin(), faulty_ranks.end());
    }
    v1::AgentIdentity agent;
    agent.set_job("demo");
    agent.set_rank(static_cast<uint32_t>(rank));
    agent.set_incarnation(incarnation_[rank]);
    const Member& member = **members_->Authenticate(agent, now_);
    members_->Report(member, state, 0, layouts_, now_);
    return !groups_->Apply(member, now_).empty();
  }
  v1::SynchronizeAgentResponse Orders(int rank) {
    v1::SynchronizeAgentResponse response;
    groups_->AddTo(*members_->Find(rank), response);
    return response;
  }
  uint64_t Build(int ranks) {
    const uint64_t number = groups_->Want(*members_, false, now_).group;
    Report(0, number, GroupState::BUILDING, std::string(128, 'i'));
    for (int rank = 0; rank < ranks; ++rank) Report(rank, number, GroupState::READY);
    return number;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  LayoutTable layouts_;
  std::optional<Membership> members_{std::in_place, "demo", absl::Hours(10)};
  std::optional<Groups> groups_{std::in_place, uint64_t{7}};
  std::map<int, uint64_t> incarnation_;
  uint64_t last_incarnation_ = 0;
};

TEST_F(GroupsTest, Want_AllAgree_BuildsByTheFirstRanksId) {
  RegisterAll(3);
  const ExchangeWay way = groups_->Want(*members_, false, now_);
  EXPECT_EQ(way.kind, Kind::kUndecided);
  EXPECT_EQ(way.group, (uint64_t{7} << 32) + 1);
  EXPECT_EQ(Orders(2).groups(0).ranks_size(), 3);
  EXPECT_EQ(Orders(2).groups(0).unique_id(), "");
  EXPECT_FALSE(Report(1, way.group, GroupState::BUILDING, std::string(128, 'x'))) << "only the first rank makes it";
  EXPECT_TRUE(Report(0, way.group, GroupState::BUILDING, std::string(128, 'i')));
  EXPECT_EQ(Orders(2).groups(0).unique_id(), std::string(128, 'i'));
  EXPECT_FALSE(Report(0, way.group, GroupState::READY));
  EXPECT_FALSE(Report(1, way.group, GroupState::READY));
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kUndecided);
  EXPECT_TRUE(Report(2, way.group, GroupState::READY));
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kGroup);
}

TEST_F(GroupsTest, Want_NobodyWantsNccl_DoesNotComeIntoQuestion) {
  for (int rank = 0; rank < 2; ++rank) Register(rank, 2, NcclSupport());
  EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kNone);
}

TEST_F(GroupsTest, Want_AllShareMemory_NeedsNoTransport) {
  NcclSupport nccl = Auto();
  nccl.set_shared_memory(true);
  for (int rank = 0; rank < 2; ++rank) Register(rank, 2, nccl);
  EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kNone);
  Register(1, 2, Auto());
  EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, Want_OneRankMayNotOrCannot_SaysWhichAndWhy) {
  struct Case {
    std::function<void(NcclSupport&)> change;
    std::string boot_id;
    std::string reason;
  };
  const Case cases[] = {
      {[](NcclSupport& nccl) { nccl.set_policy(NcclSupport::NEVER); }, "one", "rank 1 on n1 has --nccl=never"},
      {[](NcclSupport& nccl) {
         nccl.set_version(0);
         nccl.set_error("libnccl.so.2: not found");
       },
       "one", "rank 1 on n1: libnccl.so.2: not found"},
      {[](NcclSupport& nccl) { nccl.set_version(23007); }, "one",
       "rank 0 on n0 has NCCL 2.28.9, rank 1 on n1 has 2.30.7"},
      {[](NcclSupport&) {}, "two",
       "the ranks are on several machines, and rank 0 on n0 and 1 other have no --nccl-trusted-network"},
  };
  for (const Case& each : cases) {
    RegisterAll(2);
    NcclSupport nccl = Auto();
    each.change(nccl);
    Register(1, 2, nccl, each.boot_id);
    const ExchangeWay way = groups_->Want(*members_, false, now_);
    EXPECT_EQ(way.kind, Kind::kHost);
    EXPECT_EQ(way.reason, each.reason);
    EXPECT_FALSE(way.refused);
  }
}

TEST_F(GroupsTest, Want_SeveralRanksHaveOneTrouble_CountsThem) {
  NcclSupport never = Auto(), lacking = Auto(), newer = Auto(), newest = Auto();
  never.set_policy(NcclSupport::NEVER);
  lacking.set_version(0);
  lacking.set_error("libnccl.so.2: not found");
  newer.set_version(23007);
  newest.set_version(23100);
  const auto reason = [&](const std::vector<NcclSupport>& ranks) {
    for (int rank = 0; rank < 5; ++rank) Register(rank, 5, ranks[static_cast<size_t>(rank)]);
    return groups_->Want(*members_, false, now_).reason;
  };
  EXPECT_EQ(reason({Auto(), never, lacking, never, never}), "rank 1 on n1 and 2 others have --nccl=never");
  EXPECT_EQ(reason({Auto(), lacking, never, never, lacking}), "rank 1 on n1 and 1 other: libnccl.so.2: not found");
  EXPECT_EQ(reason({Auto(), Auto(), newer, newest, newer}),
            "rank 0 on n0 has NCCL 2.28.9, rank 2 on n2 and 1 other have 2.30.7");
}

TEST_F(GroupsTest, Want_OneOfAMachinesAgentsDoesNotTrustTheNetwork_StaysOnTheHost) {
  NcclSupport trusting = Auto();
  trusting.set_trusted_network(true);
  Register(0, 3, trusting, "one");
  Register(1, 3, Auto(), "one");
  Register(2, 3, trusting, "two");
  EXPECT_EQ(groups_->Want(*members_, false, now_).reason,
            "the ranks are on several machines, and rank 1 on n1 has no --nccl-trusted-network");
}

TEST_F(GroupsTest, Want_SomebodyRequiresIt_IsRefusedInsteadOfGoneAround) {
  Register(0, 2, Auto());
  NcclSupport nccl = Auto();
  nccl.set_policy(NcclSupport::REQUIRE);
  nccl.set_version(0);
  Register(1, 2, nccl);
  EXPECT_TRUE(groups_->Want(*members_, false, now_).refused);
}

TEST_F(GroupsTest, Want_OperationOfAnEarlierCoordinator_StaysOnTheHost) {
  RegisterAll(2);
  const ExchangeWay way = groups_->Want(*members_, true, now_);
  EXPECT_EQ(way.kind, Kind::kHost);
  EXPECT_EQ(way.reason, "the coordinator has restarted");
  EXPECT_TRUE(groups_->empty());
  Register(1, 2, NcclSupport());
  EXPECT_EQ(groups_->Want(*members_, true, now_).reason, "rank 1 on n1 has --nccl=never");
}

TEST_F(GroupsTest, Want_MoreRanksThanAStepCanName_GoesOverTheHost) {
  RegisterAll(1025);
  EXPECT_EQ(groups_->Want(*members_, false, now_).reason, "a group has at most 1024 ranks");
}

TEST_F(GroupsTest, Want_TrustedNetwork_LeavesTheMachine) {
  NcclSupport nccl = Auto();
  nccl.set_trusted_network(true);
  Register(0, 2, nccl, "one");
  Register(1, 2, nccl, "two");
  EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, Want_ReadyGroup_IsUsedAgain) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  EXPECT_EQ(groups_->Want(*members_, false, now_).group, number);
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kGroup);
}

TEST_F(GroupsTest, Advance_AnAgentIsReplaced_AbortsAndBuildsAnew) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  Register(1, 2, Auto());
  EXPECT_FALSE(groups_->Advance(*members_, now_).empty());
  EXPECT_EQ(Orders(0).groups_size(), 0);
  const ExchangeWay way = groups_->Want(*members_, false, now_);
  EXPECT_EQ(way.kind, Kind::kUndecided);
  EXPECT_NE(way.group, number);
  EXPECT_EQ(Orders(0).groups(0).unique_id(), "") << "an id is never used again";
}

TEST_F(GroupsTest, Apply_OneRankBreaks_TheHostCarriesUntilAnAgentIsReplaced) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  EXPECT_TRUE(Report(1, number, GroupState::BROKEN, "", "ncclRemoteError"));
  EXPECT_FALSE(groups_->IsReady(number));
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kHost);
  EXPECT_EQ(groups_->Want(*members_, false, now_).reason, "rank 1 on n1: ncclRemoteError; tried again after 1m");
  Register(1, 2, Auto());
  EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, Want_BreaksAgainAndAgain_WaitsTwiceAsLongEachTimeUpToAnHour) {
  RegisterAll(2);
  absl::Duration pause = Groups::kFirstPause;
  for (int time = 0; time < 10; ++time) {
    groups_->Break(Build(2), "load 4 failed", now_);
    now_ += pause - absl::Nanoseconds(1);
    const ExchangeWay way = groups_->Want(*members_, false, now_);
    EXPECT_EQ(way.kind, Kind::kHost);
    EXPECT_EQ(way.reason, absl::StrCat("load 4 failed; tried again after ", absl::FormatDuration(pause)));
    now_ += absl::Nanoseconds(1);
    pause = std::min(2 * pause, Groups::kLongestPause);
  }
  EXPECT_EQ(pause, Groups::kLongestPause);
}

TEST_F(GroupsTest, Want_AGroupHasServedSinceTheLastBroke_WaitsShortlyAgain) {
  RegisterAll(2);
  for (int time = 0; time < 3; ++time) {
    groups_->Break(Build(2), "load 4 failed", now_);
    EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kHost);
    EXPECT_EQ(groups_->WhyBroken(*members_), "load 4 failed");
    now_ += Groups::kFirstPause;
    Build(2);
    now_ += Groups::kIdleTimeout;
    (void)groups_->Advance(*members_, now_);
    EXPECT_EQ(groups_->WhyBroken(*members_), "");
  }
}

TEST_F(GroupsTest, End_OfACancelledOperation_LetsTheNextOneHaveAGroupAtOnce) {
  RegisterAll(2);
  groups_->End(Build(2));
  EXPECT_EQ(groups_->WhyBroken(*members_), "");
  EXPECT_EQ(groups_->Want(*members_, false, now_).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, FaultOf_AMemberNamesItsOwnWorkerLater_CountsMoreThanWhoWaited) {
  RegisterAll(3);
  const uint64_t number = Build(3);
  EXPECT_EQ(groups_->FaultOf(number), std::nullopt);
  Report(1, number, GroupState::BROKEN, "", "no progress", {0});
  EXPECT_EQ(groups_->FaultOf(number)->ranks, std::vector<int>{0});
  EXPECT_FALSE(groups_->FaultOf(number)->certain);
  Report(0, number, GroupState::BROKEN, "", "ended with its group");
  EXPECT_EQ(groups_->FaultOf(number)->why, "rank 1 on n1: no progress") << "it says of nobody more than that";
  Report(2, number, GroupState::BROKEN, "", "hangs", {2});
  EXPECT_EQ(groups_->FaultOf(number)->ranks, std::vector<int>{2});
  EXPECT_TRUE(groups_->FaultOf(number)->certain);
  EXPECT_EQ(groups_->WhyBroken(*members_), "rank 2 on n2: hangs");
  Report(1, number, GroupState::BROKEN, "", "hangs as well", {1});
  EXPECT_EQ(groups_->FaultOf(number)->why, "rank 2 on n2: hangs") << "the first one that is certain stays";
  EXPECT_EQ(groups_->FaultOf(number + 1), std::nullopt);
}

TEST_F(GroupsTest, FaultOf_AnOperationGaveTheGroupUp_AMemberMayStillSayWhy) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  groups_->Break(number, "load 4 failed", now_);
  EXPECT_EQ(groups_->FaultOf(number), std::nullopt) << "no member has said anything";
  Report(1, number, GroupState::BROKEN, "", "no progress", {0, 4000000000});
  EXPECT_EQ(groups_->FaultOf(number)->ranks, std::vector<int>{0}) << "the other is no rank";
}

TEST_F(GroupsTest, Apply_AMemberForgetsTheGroupItJoined_BreaksIt) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  EXPECT_TRUE(Report(1, 0, GroupState::READY));
  EXPECT_FALSE(groups_->IsReady(number));
}

TEST_F(GroupsTest, Advance_OneRankDoesNotJoin_IsNamedAndGivenUp) {
  RegisterAll(3);
  const uint64_t number = groups_->Want(*members_, false, now_).group;
  Report(0, number, GroupState::BUILDING, std::string(128, 'i'));
  Report(0, number, GroupState::READY);
  Report(2, number, GroupState::READY);
  now_ += Groups::kBuildTimeout;
  EXPECT_FALSE(groups_->Advance(*members_, now_).empty());
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").reason,
            "the group was not complete within 30s: rank 1 has not joined; tried again after 1m");
}

TEST_F(GroupsTest, Advance_NothingUsesIt_IsEnded) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  now_ += Groups::kIdleTimeout / 2;
  groups_->Use(number, now_);
  now_ += Groups::kIdleTimeout / 2;
  EXPECT_TRUE(groups_->Advance(*members_, now_).empty());
  now_ += Groups::kIdleTimeout / 2;
  EXPECT_FALSE(groups_->Advance(*members_, now_).empty());
  EXPECT_TRUE(groups_->empty());
}

// Agents that do as they are told, with messages that are late, and agents that are replaced or break.
TEST_F(GroupsTest, Simulation_LateMessagesAndReplacedAgents_NeverMixGroups) {
  size_t ready = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
    groups_.emplace(seed);
    const int ranks = 2 + static_cast<int>(random() % 4);
    members_.emplace("demo", absl::Hours(10));
    for (int rank = 0; rank < ranks; ++rank) Register(rank, ranks, Auto());
    struct Agent {
      uint64_t incarnation = 0;
      GroupState state;
    };
    std::map<int, Agent> agents;
    std::map<std::string, uint64_t> group_of_id;
    uint64_t ids = 0;
    std::set<uint64_t> over;
    for (int turn = 0; turn < 200; ++turn) {
      const bool calm = turn > 120;
      now_ += absl::Milliseconds(100);
      (void)groups_->Advance(*members_, now_);
      if (turn % 10 == 0) groups_->Want(*members_, false, now_);
      const int rank = static_cast<int>(random() % static_cast<uint64_t>(ranks));
      if (!calm && chance(3)) Register(rank, ranks, Auto());
      Agent& agent = agents[rank];
      if (agent.incarnation != incarnation_[rank]) agent = {incarnation_[rank], {}};
      const v1::SynchronizeAgentResponse orders = Orders(rank);
      if (orders.groups_size() == 0) {
        agent.state.Clear();
      } else {
        const v1::GroupOrder& order = orders.groups(0);
        ASSERT_FALSE(over.contains(order.number())) << "a group that was over came back";
        if (agent.state.number() != order.number()) {
          if (agent.state.number() != 0) over.insert(agent.state.number());
          agent.state.Clear();
          agent.state.set_number(order.number());
          agent.state.set_phase(GroupState::BUILDING);
        }
        if (!order.unique_id().empty()) {
          ASSERT_EQ(group_of_id[order.unique_id()], order.number());
          if (agent.state.phase() == GroupState::BUILDING) agent.state.set_phase(GroupState::READY);
        } else if (rank == 0 && agent.state.unique_id().empty()) {
          agent.state.set_unique_id(absl::StrCat(absl::Dec(++ids, absl::kZeroPad16), std::string(112, 'x')));
          group_of_id[agent.state.unique_id()] = order.number();
        }
        if (!calm && chance(2)) agent.state.set_phase(GroupState::BROKEN);
      }
      if (chance(80)) {
        Report(rank, agent.state.number(), agent.state.phase(), agent.state.unique_id(), "broke");
      }
      const ExchangeWay way = groups_->Settle(*members_, now_, "load 1");
      if (way.kind != Kind::kGroup) continue;
      for (int each = 0; each < ranks; ++each) {
        ASSERT_EQ(agents[each].incarnation, incarnation_[each]);
        // Its last word may not have come, but it was in this group.
        ASSERT_EQ(agents[each].state.number(), way.group) << "rank " << each << " is not in the group";
      }
      ++ready;
    }
  }
  EXPECT_GT(ready, 1000u) << "groups become ready";
}

TEST_F(GroupsTest, Want_LittleIsToBeMoved_IsNotWorthAGroupButUsesOneThatIsThere) {
  RegisterAll(2);
  EXPECT_EQ(groups_->Want(*members_, false, now_, 0).kind, Kind::kNone);
  const ExchangeWay way = groups_->Want(*members_, false, now_, Groups::kLeastBytes - 1);
  EXPECT_EQ(way.kind, Kind::kHost);
  EXPECT_FALSE(way.refused);
  EXPECT_TRUE(groups_->empty());
  EXPECT_EQ(groups_->Want(*members_, false, now_, Groups::kLeastBytes).kind, Kind::kUndecided);
  Build(2);
  EXPECT_EQ(groups_->Want(*members_, false, now_, 1).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, Want_LittleIsToBeMovedAndItIsRequired_BuildsAGroup) {
  NcclSupport required = Auto();
  required.set_policy(NcclSupport::REQUIRE);
  Register(0, 2, Auto());
  Register(1, 2, required);
  EXPECT_EQ(groups_->Want(*members_, false, now_, 1).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, Settle_AnotherOperationHasTheGroup_GoesOverTheHostUntilItsEnd) {
  RegisterAll(2);
  const uint64_t number = Build(2);
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kGroup);
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kGroup) << "it has it already";
  const ExchangeWay way = groups_->Settle(*members_, now_, "load 2");
  EXPECT_EQ(way.kind, Kind::kHost);
  EXPECT_EQ(way.reason, "load 1 uses the group");
  groups_->Release(number, "load 2");
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 2").kind, Kind::kHost) << "it was not load 2's to release";
  groups_->Release(number, "load 1");
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 2").kind, Kind::kGroup);
}

TEST_F(GroupsTest, Settle_AnotherOperationHasTheGroupAndNcclIsRequired_Waits) {
  NcclSupport required = Auto();
  required.set_policy(NcclSupport::REQUIRE);
  for (int rank = 0; rank < 2; ++rank) Register(rank, 2, required);
  const uint64_t number = Build(2);
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 1").kind, Kind::kGroup);
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 2").kind, Kind::kUndecided);
  groups_->Release(number, "load 1");
  EXPECT_EQ(groups_->Settle(*members_, now_, "load 2").kind, Kind::kGroup);
}

TEST_F(GroupsTest, Want_ForASave_GoesByThePolicyOfSaves) {
  NcclSupport nccl = Auto();
  nccl.set_saves_policy(NcclSupport::NEVER);
  for (int rank = 0; rank < 2; ++rank) Register(rank, 2, nccl);
  EXPECT_EQ(groups_->Want(*members_, false, now_, uint64_t{1} << 30, ExchangeUse::kSaves).kind, Kind::kNone);
  nccl.set_policy(NcclSupport::NEVER);
  nccl.set_saves_policy(NcclSupport::AUTO);
  Register(0, 2, nccl);
  const ExchangeWay refused = groups_->Want(*members_, false, now_, uint64_t{1} << 30, ExchangeUse::kSaves);
  EXPECT_EQ(refused.kind, Kind::kHost);
  EXPECT_EQ(refused.reason, "rank 1 on n1 has --nccl-saves=never");
  EXPECT_FALSE(refused.refused);
  Register(1, 2, nccl);
  EXPECT_EQ(groups_->Want(*members_, false, now_, uint64_t{1} << 30).kind, Kind::kNone) << "nobody wants it for loads";
  EXPECT_EQ(groups_->Want(*members_, false, now_, uint64_t{1} << 30, ExchangeUse::kSaves).kind, Kind::kUndecided);
}

TEST_F(GroupsTest, MemoryOf_SomeShareMemory_NamesItByRank) {
  NcclSupport sharing = Auto();
  sharing.set_shared_memory(true);
  NcclSupport never = sharing;
  never.set_policy(NcclSupport::NEVER);
  Register(0, 3, never, "one");
  Register(1, 3, never, "one");
  Register(2, 3, never, "two");
  EXPECT_TRUE(Groups::MemoryOf(*members_).empty()) << "nobody wants NCCL";
  Register(2, 3, Auto(), "two");
  EXPECT_EQ(Groups::MemoryOf(*members_), (std::vector<std::string>{"one", "one", ""}));
  Register(2, 3, sharing, "one");
  EXPECT_TRUE(Groups::MemoryOf(*members_).empty()) << "all share one memory";
}

}  // namespace
}  // namespace cairn
