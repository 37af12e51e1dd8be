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
