// Tests who has the rank: a trainer that is new takes it, one that was replaced does not take it back.
#include <gtest/gtest.h>

#include "agent/session/session.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr uint64_t kAgent = 9;
constexpr uint64_t kAgentBefore = 8;
constexpr uint64_t kFirst = 77;
constexpr uint64_t kSecond = 78;

class SessionAttachTest : public ::testing::Test {
 protected:
  // Attaches as the shell around the session does.
  absl::Status Attach(uint64_t trainer, uint64_t previous_agent = 0) {
    const absl::Status allowed = session_.CheckAttach(trainer, previous_agent);
    if (allowed.ok()) session_.Attach(trainer);
    return allowed;
  }
  static bool Stale(const absl::Status& status) {
    return HasReason(status, Reason::kStaleIncarnation) && MetadataOf(status)["job"] == "demo" &&
           MetadataOf(status)["rank"] == "3";
  }

  Session session_{{.job = "demo", .rank = 3, .world_size = 8, .incarnation = kAgent}};
};

v1::TrainerPlace Place(uint32_t rank, uint32_t world_size, bool may_be_alone = false) {
  v1::TrainerPlace place;
  place.set_rank(rank);
  place.set_world_size(world_size);
  place.set_may_be_alone(may_be_alone);
  return place;
}

TEST_F(SessionAttachTest, CheckPlace_TrainerIsAnotherRank_IsRefusedByBothRanks) {
  EXPECT_TRUE(session_.CheckPlace(Place(3, 8)).ok());
  EXPECT_TRUE(session_.CheckPlace(Place(3, 0)).ok()) << "nobody says how many ranks there are";
  for (const bool alone : {false, true}) {
    const absl::Status other = session_.CheckPlace(Place(5, 8, alone));
    EXPECT_TRUE(HasReason(other, Reason::kRankConflict)) << other;
    EXPECT_NE(other.message().find("rank 3 of 8 of job demo, and the trainer says that it is rank 5 of 8"),
              std::string::npos)
        << other;
    EXPECT_EQ(MetadataOf(other)["agent_rank"], "3");
    EXPECT_EQ(MetadataOf(other)["agent_world_size"], "8");
    EXPECT_TRUE(HasReason(session_.CheckPlace(Place(3, 4, alone)), Reason::kWorldSizeMismatch));
  }
}

TEST_F(SessionAttachTest, CheckPlace_JobOfOneRank_TakesWhomIsGivenItsAddress) {
  Session alone{{.job = "demo", .rank = 0, .world_size = 1, .incarnation = kAgent}};
  EXPECT_TRUE(alone.CheckPlace(Place(5, 8, true)).ok()) << "a launcher may start many jobs of one rank";
  EXPECT_TRUE(HasReason(alone.CheckPlace(Place(5, 8)), Reason::kWorldSizeMismatch)) << "it was found by its rank";
}

TEST_F(SessionAttachTest, OnTrainerProcess_EachChange_IsReportedOnce) {
  const auto reported = [this] { return session_.BuildRequest(std::nullopt).state().trainer().process(); };
  EXPECT_EQ(reported(), v1::JobRank::TRAINER_PROCESS_UNSPECIFIED) << "there was no trainer";
  ASSERT_TRUE(Attach(kFirst).ok());
  EXPECT_EQ(reported(), v1::JobRank::TRAINER_PROCESS_UNSPECIFIED) << "its process cannot be seen yet";
  session_.OnTrainerProcess(kFirst, v1::JobRank::RUNNING);
  const uint64_t running = session_.version();
  session_.OnTrainerProcess(kFirst, v1::JobRank::RUNNING);
  EXPECT_EQ(session_.version(), running) << "nothing has changed";
  session_.OnTrainerProcess(kSecond, v1::JobRank::STOPPED);
  EXPECT_EQ(session_.version(), running) << "another trainer, which has the rank no more";
  session_.OnTrainerProcess(kFirst, v1::JobRank::STOPPED);
  EXPECT_GT(session_.version(), running) << "the coordinator hears of it at once";
  EXPECT_EQ(reported(), v1::JobRank::STOPPED);
  ASSERT_TRUE(Attach(kSecond).ok());
  EXPECT_EQ(reported(), v1::JobRank::TRAINER_PROCESS_UNSPECIFIED) << "that was the one before";
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  EXPECT_EQ(reported(), v1::JobRank::GONE);
}

TEST_F(SessionAttachTest, Attach_NewTrainer_TakesTheRankAndTheOneBeforeStaysReplaced) {
  ASSERT_TRUE(Attach(kFirst).ok());
  ASSERT_TRUE(Attach(kSecond).ok());
  EXPECT_TRUE(Stale(session_.CheckAttached(kFirst)));
  EXPECT_TRUE(Stale(Attach(kFirst, kAgent)));
  EXPECT_TRUE(Stale(Attach(kFirst))) << "an attachment whose answer was lost is not a new trainer's";
  EXPECT_EQ(session_.attached_trainer(), kSecond);
  session_.OnTrainerGone(kSecond, TrainerEnd::kUnmapped);
  EXPECT_TRUE(Stale(Attach(kFirst, kAgent))) << "its successor has ended, but may have trained on";
  EXPECT_TRUE(Stale(session_.CheckAttached(kFirst)));
  EXPECT_TRUE(HasReason(session_.CheckAttached(kSecond), Reason::kNotRegistered));
}

TEST_F(SessionAttachTest, Attach_AttachedAlready_MayBeRepeated) {
  ASSERT_TRUE(Attach(kFirst).ok());
  EXPECT_TRUE(Attach(kFirst).ok());
  EXPECT_TRUE(Attach(kFirst, kAgent).ok());
  EXPECT_TRUE(Attach(kFirst, kAgentBefore).ok()) << "its answer was lost";
  EXPECT_EQ(session_.attached_trainer(), kFirst);
}

TEST_F(SessionAttachTest, Attach_AgentHasRestarted_OneTrainerGoesOnButTakesTheRankFromNobody) {
  EXPECT_TRUE(Attach(kFirst, kAgentBefore).ok());
  EXPECT_TRUE(Stale(Attach(kSecond, kAgentBefore)));
  EXPECT_EQ(session_.attached_trainer(), kFirst);
  EXPECT_TRUE(Attach(kSecond).ok()) << "a new one";
  EXPECT_TRUE(Stale(Attach(kFirst, kAgentBefore)));
  EXPECT_TRUE(Stale(Attach(kFirst, kAgent)));
}

TEST_F(SessionAttachTest, Attach_SuccessorEndedBeforeTheOldTrainerCame_IsInNobodysWay) {
  ASSERT_TRUE(Attach(kSecond).ok());
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  EXPECT_TRUE(Attach(kFirst, kAgentBefore).ok());
}

TEST_F(SessionAttachTest, Attach_TrainerHasDetached_MayComeBackUntilAnotherHadTheRank) {
  ASSERT_TRUE(Attach(kFirst).ok());
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  EXPECT_TRUE(Attach(kFirst, kAgent).ok());
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  ASSERT_TRUE(Attach(kSecond).ok());
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  EXPECT_TRUE(Stale(Attach(kFirst, kAgent)));
}

}  // namespace
}  // namespace cairn
