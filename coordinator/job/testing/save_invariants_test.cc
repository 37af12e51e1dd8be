// Each invariant notices what it is there for.
#include "coordinator/job/testing/save_invariants.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

class SaveInvariantsTest : public testing::Test {
 protected:
  // Both ranks have written, and the manifest is put.
  std::string Commit(int64_t step, uint32_t attempt) {
    for (int rank = 0; rank < 2; ++rank) storage_.Write({step, attempt}, rank);
    return Put(step, attempt);
  }
  std::string Put(int64_t step, uint32_t attempt) {
    const PutOutcome put = {.step = step, .attempt = attempt, .manifest = std::make_shared<std::string>("manifest")};
    return invariants_.AfterPut(storage_.PutIfAbsent(put).standing);
  }
  void Bury(int64_t step, uint32_t attempt) {
    const PutOutcome put = {.step = step, .attempt = attempt, .error = MakeError(Reason::kRankLost, "lost")};
    EXPECT_EQ(invariants_.AfterPut(storage_.PutIfAbsent(put).standing), "");
  }
  static v1::SaveOrder Order(int64_t step, uint32_t attempt, v1::Phase::Value action, const absl::Status& error) {
    v1::SaveOrder order;
    order.set_step(step);
    order.set_attempt(attempt);
    order.set_phase(action);
    if (!error.ok()) *order.mutable_error() = StatusToProto(error);
    return order;
  }
  std::string ToldCommitted(int64_t step, uint32_t attempt) {
    return invariants_.Told(0, Order(step, attempt, v1::Phase::COMMITTED, absl::OkStatus()));
  }
  std::string ToldAborted(int64_t step, uint32_t attempt, const absl::Status& error) {
    return invariants_.Told(0, Order(step, attempt, v1::Phase::ABORTED, error));
  }

  const absl::Status lost_ = MakeError(Reason::kRankLost, "rank 1 is lost", {{"ranks", "1"}});
  SimulatedStorage storage_{2};
  SaveInvariants invariants_{storage_, 2};
};

TEST_F(SaveInvariantsTest, Commit_WithAllFiles_IsValid) {
  EXPECT_EQ(Commit(4, 1), "");
  EXPECT_EQ(invariants_.Readable(), "");
  EXPECT_EQ(invariants_.commits(), 1);
}

TEST_F(SaveInvariantsTest, Commit_WithoutARanksFile_IsNoticed) {
  storage_.Write({4, 1}, 0);
  EXPECT_NE(Put(4, 1), "");
}

TEST_F(SaveInvariantsTest, Commit_OfACommittedStep_IsNoticedUnlessItMayReplace) {
  EXPECT_EQ(Commit(4, 1), "");
  ASSERT_TRUE(storage_.Reserve({.step = 4, .overwrite = true}).ok());
  EXPECT_EQ(Commit(4, 2), "");
  EXPECT_EQ(invariants_.replaced(), 1);
  EXPECT_NE(Commit(4, 3), "");
}

TEST_F(SaveInvariantsTest, Commit_AfterARankWasToldOfAnAbort_IsNoticed) {
  EXPECT_EQ(ToldAborted(4, 1, lost_), "");
  EXPECT_NE(Commit(4, 1), "");
}

TEST_F(SaveInvariantsTest, Told_WhatIsNotTrue_IsNoticed) {
  EXPECT_NE(ToldCommitted(4, 1), "");
  EXPECT_EQ(Commit(4, 1), "");
  EXPECT_EQ(ToldCommitted(4, 1), "");
  EXPECT_NE(ToldAborted(4, 1, lost_), "");
}

TEST_F(SaveInvariantsTest, Told_AnAbortThatSaysTooLittle_IsNoticed) {
  EXPECT_NE(ToldAborted(4, 1, absl::OkStatus()), "") << "no reason";
  EXPECT_NE(ToldAborted(4, 1, MakeError(Reason::kRankLate, "somebody is late")), "") << "nobody is named";
  EXPECT_EQ(ToldAborted(4, 1, lost_), "");
}

TEST_F(SaveInvariantsTest, BeforeRemove_ACommitOrAnOpenAttempt_IsNoticed) {
  EXPECT_EQ(Commit(4, 1), "");
  EXPECT_NE(invariants_.BeforeRemove({.step = 4, .attempt = 1}), "");
  EXPECT_NE(invariants_.BeforeRemove({.step = 5, .attempt = 1}), "");
  Bury(5, 1);
  EXPECT_EQ(invariants_.BeforeRemove({.step = 5, .attempt = 1}), "");
  EXPECT_NE(invariants_.BeforeRemove({.step = 5, .attempt = 1, .deleted = true}), "") << "nobody deleted it";
}

TEST_F(SaveInvariantsTest, Readable_FilesOfACommitAreGone_IsNoticed) {
  EXPECT_EQ(Commit(4, 1), "");
  storage_.Remove({4, 1});
  EXPECT_NE(invariants_.Readable(), "");
}

TEST_F(SaveInvariantsTest, Tidy_ALeftoverThatALivingCoordinatorKnows_IsNoticed) {
  ASSERT_TRUE(storage_.Reserve({.step = 4}).ok());
  EXPECT_NE(invariants_.Tidy(), "");
  invariants_.Orphan({4, 1});
  EXPECT_EQ(invariants_.Tidy(), "");
}

}  // namespace
}  // namespace cairn
