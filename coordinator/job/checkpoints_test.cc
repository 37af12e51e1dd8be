#include "coordinator/job/checkpoints.h"

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class CheckpointsTest : public PartTest {
 protected:
  CheckpointsTest() {
    options_.coordinator_epoch = 7;
    RegisterAll(2);
  }

  void Recover() { (void)recovery_.OnRead(absl::OkStatus(), context_); }
  void Ask(const std::string& id) {
    v1::CreateCheckpointRequest request;
    request.set_request_id(id);
    ASSERT_TRUE(requests_.Add(request, saves_, context_).ok());
  }
  static CheckpointKey OfRequest(const std::string& id) { return {std::nullopt, id}; }

  Recovery recovery_;
  OutcomeBook outcomes_;
  Saves saves_;
  SaveRequests requests_;
  const Checkpoints checkpoints_{recovery_, outcomes_, saves_, requests_};
};

TEST_F(CheckpointsTest, Find_StorageHasNotAnswered_WaitsOrTellsWhy) {
  EXPECT_FALSE(checkpoints_.Find(CheckpointKey{4, ""}, 0, context_).has_value());
  (void)recovery_.OnRead(MakeError(Reason::kStorageError, "I/O error"), context_);
  EXPECT_TRUE(HasReason(checkpoints_.Find(CheckpointKey{4, ""}, 0, context_)->status(), Reason::kStorageError));
  saves_.Begin(4, context_);
  EXPECT_TRUE(checkpoints_.Find(CheckpointKey{4, ""}, 0, context_)->ok()) << "a save needs no storage to be shown";
}

TEST_F(CheckpointsTest, Find_ByRequest_GoesFromRequestToSaveToOutcome) {
  Recover();
  EXPECT_FALSE(checkpoints_.Knows("r"));
  EXPECT_TRUE(HasReason(checkpoints_.Find(OfRequest("r"), 0, context_)->status(), Reason::kNotCommitted));
  Ask("r");
  EXPECT_TRUE(checkpoints_.Knows("r"));
  EXPECT_EQ((*checkpoints_.Find(OfRequest("r"), 0, context_))->state(), v1::Phase::PREPARING);
  saves_.Begin(4, context_).AddRequest("other", absl::InfiniteFuture());
  saves_.Active(4)->AddRequest("r", absl::InfiniteFuture());
  const v1::Checkpoint saved = **checkpoints_.Find(OfRequest("r"), 0, context_);
  EXPECT_EQ(saved.state(), v1::Phase::COLLECTING);
  EXPECT_EQ(saved.request_id(), "r") << "the one that was asked for, of the two that the save answers";
  StoredAttempt outcome = Outcome(5, 1, true);
  outcome.request_id = "s";
  outcomes_.Keep(outcome);
  EXPECT_TRUE(checkpoints_.Knows("s"));
  EXPECT_EQ((*checkpoints_.Find(OfRequest("s"), 0, context_))->state(), v1::Phase::COMMITTED);
  EXPECT_EQ((*checkpoints_.Find(CheckpointKey{}, 0, context_))->step(), 5) << "the latest that is committed";
}

TEST_F(CheckpointsTest, Find_DamagedOutcome_IsShownAsSuch) {
  Recover();
  StoredAttempt damaged = Outcome(5, 1, false);
  damaged.damaged = true;
  damaged.error = MakeError(Reason::kManifestCorrupt, "checksum");
  outcomes_.Keep(damaged);
  const v1::Checkpoint view = **checkpoints_.Find(CheckpointKey{5, ""}, 0, context_);
  EXPECT_EQ(view.state(), v1::Phase::DAMAGED);
  EXPECT_TRUE(HasReason(StatusFromProto(view.error()), Reason::kManifestCorrupt));
}

TEST_F(CheckpointsTest, Find_RequestOfAnEarlierCoordinator_MayComeBackForAWhile) {
  Recover();
  const v1::Checkpoint unsure = **checkpoints_.Find(OfRequest("r"), 6, context_);
  EXPECT_EQ(unsure.state(), v1::Phase::PREPARING);
  EXPECT_EQ(unsure.coordinator_epoch(), 6u) << "so the caller asks with that epoch again";
  Pass(2 * options_.lease_ttl);
  const v1::Checkpoint lost = **checkpoints_.Find(OfRequest("r"), 6, context_);
  EXPECT_EQ(lost.state(), v1::Phase::ABORTED);
  EXPECT_EQ(lost.coordinator_epoch(), 7u);
  EXPECT_TRUE(HasReason(StatusFromProto(lost.error()), Reason::kCoordinatorRestarted));
  EXPECT_FALSE(checkpoints_.Find(OfRequest("r"), 7, context_)->ok()) << "this coordinator never took it";
}

TEST_F(CheckpointsTest, Shown_SaveUnderWay_ThenRequest_ThenTheLastSave) {
  EXPECT_FALSE(checkpoints_.Shown(context_, ShownRanks::All()).has_value());
  saves_.Begin(4, context_);
  Ask("r");
  EXPECT_EQ(checkpoints_.Shown(context_, ShownRanks::All())->step(), 4);
  saves_.Cancel(CheckpointKey{4, ""}, context_);
  (void)saves_.Advance(context_);
  EXPECT_EQ(checkpoints_.Shown(context_, ShownRanks::All())->request_id(), "r");
  requests_.Cancel(OfRequest("r"), context_);
  EXPECT_EQ(checkpoints_.Shown(context_, ShownRanks::All())->request_id(), "r")
      << "it failed after the last save had begun";
  (void)requests_.OnSaveBegun(saves_.Begin(5, context_), context_);
  saves_.Cancel(CheckpointKey{5, ""}, context_);
  (void)saves_.Advance(context_);
  EXPECT_EQ(checkpoints_.Shown(context_, ShownRanks::All())->step(), 5);
}

}  // namespace
}  // namespace cairn
