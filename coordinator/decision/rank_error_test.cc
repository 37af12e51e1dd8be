#include "coordinator/decision/rank_error.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/rpc/exchange_fault.h"
#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class RankErrorTest : public PartTest {
 protected:
  static RankError ErrorOf(int rank, Reason reason, const std::string& message, const std::string& ranks = "") {
    ErrorMetadata metadata;
    if (!ranks.empty()) metadata.emplace_back("ranks", ranks);
    return {rank, v1::Phase::READING, MakeError(reason, message, metadata)};
  }
  std::string RanksIn(const std::vector<RankError>& errors) {
    return MetadataOf(ErrorFromRanks(context_, {"load", 7, 0}, errors)).at("ranks");
  }
};

TEST_F(RankErrorTest, MemberFaults_OthersAreSilentToo_AreNamedAsWell) {
  RegisterAll(4);
  Pass(context_.options.lease_ttl * 0.8);
  PartTest::Report(3, v1::AgentState());
  MemberFaults faults;
  faults.Add(1, v1::Phase::WRITING, {false, "its agent is gone"});
  const absl::Status error = std::move(faults).ToError(context_, {"save", 7, 1});
  EXPECT_TRUE(HasReason(error, Reason::kRankLost)) << error;
  EXPECT_EQ(MetadataOf(error).at("ranks"), "0, 1, 2") << "rank 3 has just been heard";
  EXPECT_NE(error.message().find("ranks 0, 1, 2 lost or silent in phase writing"), std::string::npos) << error;
  EXPECT_NE(error.message().find("rank 2: its agent was last heard 8s ago"), std::string::npos) << error;
}

TEST_F(RankErrorTest, WithOperation_AMessageThatNamesAStepOfTheJob_NamesTheJobOnce) {
  const std::string job(context_.job);
  const absl::Status lacks = MakeError(Reason::kMissingNames, job + "@6 lacks 1 name");
  EXPECT_EQ(WithOperation(lacks, context_, job + " (load)", {}).message(), job + "@6 lacks 1 name");
  const absl::Status mapped = MakeError(Reason::kMappingSyntax, "step 6: no name");
  const absl::Status named = WithOperation(mapped, context_, job + " (load)", {{"phase", "planning"}});
  EXPECT_EQ(named.message(), job + " (load): step 6: no name");
  EXPECT_EQ(MetadataOf(named)["phase"], "planning");
}

TEST_F(RankErrorTest, WithRoot_ACommandNamesTheRoot_IsThatOfTheCoordinator) {
  options_.root = "/my ckpt";
  const absl::Status full = WithRoot(MakeError(Reason::kNoSpace, "full"), context_);
  EXPECT_NE(NextActionOf(full).find("`cairn doctor --root '/my ckpt'`"), std::string::npos) << NextActionOf(full);
  const absl::Status late = WithRoot(MakeError(Reason::kRankLate, "late"), context_);
  EXPECT_FALSE(MetadataOf(late).contains("root"));
}

TEST_F(RankErrorTest, BytesText_AnyNumbers_AreNeverNegative) {
  EXPECT_EQ(BytesText(3 << 20, 8 << 20), "3.00 MiB of 8.00 MiB");
  EXPECT_EQ(BytesText(~uint64_t{0}, uint64_t{1} << 63).find('-'), std::string::npos);
}

TEST_F(RankErrorTest, SilenceOf_EachTime_SaysOnlyWhatIsKnown) {
  RegisterAll(1);
  const Member& member = *context_.members.Find(0);
  EXPECT_EQ(SilenceOf(member, context_), "");
  Pass(absl::Seconds(3));
  EXPECT_FALSE(IsSilent(member, context_)) << "an agent speaks three times in a lease";
  EXPECT_EQ(SilenceOf(member, context_), ", agent last heard 3s ago");
  Pass(absl::Seconds(4));
  EXPECT_TRUE(IsSilent(member, context_));
  EXPECT_EQ(SilenceOf(member, context_), ", its agent has not answered for 7s");
}

TEST_F(RankErrorTest, HoldingUp_ATrainerIsStopped_LeavesOutThoseThatMayWaitForIt) {
  RegisterAll(5, 4);
  for (int rank = 0; rank < 3; ++rank) PartTest::Report(rank, Trainer(50));
  EXPECT_EQ(HoldingUp(std::vector<int>{0, 1, 2, 3, 4}, context_), (std::vector<int>{0, 1, 2, 3, 4})) << "all run";
  v1::AgentState stopped = Trainer(50);
  stopped.mutable_trainer()->set_process(v1::JobRank::STOPPED);
  PartTest::Report(1, stopped);
  EXPECT_EQ(HoldingUp(std::vector<int>{0, 1, 2, 3, 4}, context_), (std::vector<int>{1, 3, 4}))
      << "rank 3 has no trainer, and rank 4 no agent";
  EXPECT_EQ(HoldingUp(std::vector<int>{0, 2}, context_), (std::vector<int>{0, 2})) << "nobody waits for rank 1";
  EXPECT_FALSE(AnyHalted({0, 2, 3, 4}, context_));
}

TEST_F(RankErrorTest, HaltOf_EachProcess_SaysWhatItIsAndForHowLong) {
  RegisterAll(1);
  const auto halt = [&](v1::JobRank::TrainerProcess process) {
    v1::AgentState state = Trainer(50);
    state.mutable_trainer()->set_process(process);
    const Member& member = PartTest::Report(0, state);
    Pass(absl::Seconds(12));
    return HaltOf(member, context_);
  };
  EXPECT_EQ(halt(v1::JobRank::RUNNING), "");
  EXPECT_EQ(halt(v1::JobRank::STOPPED), "its trainer's process has been stopped for 12s (SIGSTOP or a debugger)");
  EXPECT_EQ(halt(v1::JobRank::UNINTERRUPTIBLE),
            "its trainer's process has waited in the kernel for 12s (for storage or a device)");
  EXPECT_EQ(halt(v1::JobRank::GONE), "the main thread of its trainer's process ended 12s ago");
}

TEST_F(RankErrorTest, MemberFaults_ATrainerIsLost_NamesNobodyElse) {
  RegisterAll(4);
  Pass(context_.options.lease_ttl * 0.8);
  MemberFaults faults;
  faults.Add(1, v1::Phase::WRITING, {true, "its trainer ended"});
  EXPECT_EQ(MetadataOf(std::move(faults).ToError(context_, {"save", 7, 1})).at("ranks"), "1");
}

TEST_F(RankErrorTest, ErrorFromRanks_AnErrorIsAboutAPeer_ThePeerIsNamed) {
  const absl::Status error = ErrorFromRanks(
      context_, {"load", 7, 0}, {ErrorOf(0, Reason::kAgentUnreachable, "from rank 1: it did not answer", "1")});
  EXPECT_EQ(MetadataOf(error).at("ranks"), "1");
  EXPECT_EQ(MetadataOf(error).at("phase"), "reading");
  EXPECT_TRUE(HasReason(error, Reason::kAgentUnreachable));
  EXPECT_NE(error.message().find("rank 0: from rank 1: it did not answer"), std::string::npos) << error;
}

TEST_F(RankErrorTest, ErrorFromRanks_ErrorsAreAboutTheirOwnRanks_TheseAreNamed) {
  EXPECT_EQ(RanksIn({ErrorOf(3, Reason::kStorageError, "I/O error"), ErrorOf(5, Reason::kNoSpace, "full")}), "3, 5");
}

TEST_F(RankErrorTest, ErrorFromRanks_SeveralBlameTheSame_ItIsNamedOnce) {
  EXPECT_EQ(RanksIn({ErrorOf(0, Reason::kTransportFailed, "a", "2"), ErrorOf(1, Reason::kTransportFailed, "b", "0, 2"),
                     ErrorOf(2, Reason::kTransportFailed, "c")}),
            "0, 2");
}

TEST_F(RankErrorTest, ErrorFromRanks_ExchangeInWhichAllWait_WhoSaysNothingIsNamed) {
  const auto stalled = [](int rank, const std::string& ranks) {
    return RankError{
        rank, v1::Phase::READING,
        MakeError(Reason::kTransportFailed, "no progress", {{"ranks", ranks}, {std::string(kStepStalled), "yes"}})};
  };
  EXPECT_EQ(RanksIn({stalled(0, "1, 2"), stalled(1, "0, 2")}), "2");
  EXPECT_EQ(RanksIn({stalled(0, "1, 2"), stalled(1, "0, 2"), stalled(2, "0, 1")}), "0, 1, 2")
      << "it may be any of them";
  const RankError reached = ErrorOf(1, Reason::kTransportFailed, "from rank 0: it did not answer", "0");
  EXPECT_EQ(RanksIn({stalled(0, "1, 2"), reached}), "0, 1, 2");
}

TEST_F(RankErrorTest, ErrorFromRanks_WorkerOfARankIsAtFault_ItAloneIsNamed) {
  const RankError waits = ErrorOf(0, Reason::kTransportFailed, "no progress", "1, 2");
  const RankError dead = {2, v1::Phase::READING,
                          MakeError(Reason::kTransportFailed, "cairn-gpu-worker does not answer any more",
                                    {{"ranks", "2"}, {std::string(kWorkerAtFault), "yes"}})};
  EXPECT_EQ(RanksIn({waits, dead}), "2");
}

TEST_F(RankErrorTest, ErrorFromRanks_WhatIsNoRank_IsNotBelieved) {
  for (const std::string& said :
       std::vector<std::string>{"everyone", "-1", "1e9", "99999999999", std::string(10'000, '1')}) {
    EXPECT_EQ(RanksIn({ErrorOf(4, Reason::kTransportFailed, "a", said)}), "4") << said;
  }
  EXPECT_EQ(RanksIn({ErrorOf(4, Reason::kTransportFailed, "a", "1, 2 and 3 more")}), "1");
}

}  // namespace
}  // namespace cairn
