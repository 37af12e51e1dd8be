#include "coordinator/job/outcome_book.h"

#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class OutcomeBookTest : public PartTest {
 protected:
  // Storage says this of step 4 to the read that is under way.
  bool Answer(const absl::StatusOr<StoredAttempts>& recovered) {
    const auto read = Take<ReadStep>();
    return read.has_value() && book_.OnRead(4, read->ticket, recovered, context_);
  }
  static StoredAttempts Holding(const StoredAttempt& outcome) { return {outcome}; }
  static StoredAttempt Damaged(Reason reason) {
    StoredAttempt outcome = Outcome(4, 1, false);
    outcome.damaged = true;
    outcome.error = MakeError(reason, "cannot be read");
    return outcome;
  }

  OutcomeBook book_;
};

TEST_F(OutcomeBookTest, Find_ByStepRequestOrNeither_IsTheNewest) {
  book_.Keep(Outcome(4, 1, false));
  StoredAttempt asked_for = Outcome(4, 2, true);
  asked_for.request_id = "r";
  book_.Keep(asked_for);
  book_.Keep(Outcome(6, 1, false));
  EXPECT_EQ(book_.Find(CheckpointKey{4, ""})->attempt, 2u);
  EXPECT_EQ(book_.Find(CheckpointKey{std::nullopt, "r"})->attempt, 2u);
  EXPECT_EQ(book_.Find(CheckpointKey{})->step, 4) << "the latest that is committed";
  EXPECT_EQ(book_.Find(CheckpointKey{std::nullopt, "s"}), nullptr);
  EXPECT_EQ(book_.last_committed(), 4);
  EXPECT_TRUE(book_.Committed(4));
  EXPECT_FALSE(book_.Committed(6));
  EXPECT_TRUE(book_.HasLater(4, 1));
  EXPECT_FALSE(book_.HasLater(4, 2));
}

TEST_F(OutcomeBookTest, Find_LaterAttemptFailedToReplaceTheCommit_IsTheCommit) {
  book_.Keep(Outcome(4, 1, true));
  book_.Keep(Outcome(4, 2, false));
  EXPECT_EQ(book_.Find(CheckpointKey{4, ""})->attempt, 1u);
  EXPECT_EQ(book_.Replaced(), std::vector<int64_t>());
  book_.Keep(Outcome(4, 3, true));
  book_.Keep(Outcome(6, 1, true));
  EXPECT_EQ(book_.Find(CheckpointKey{4, ""})->attempt, 3u);
  EXPECT_EQ(book_.Replaced(), std::vector<int64_t>{4});
  StoredAttempt deleted = Outcome(4, 1, true);
  deleted.deleted = true;
  book_.Keep(deleted);
  EXPECT_EQ(book_.Replaced(), std::vector<int64_t>());
}

TEST_F(OutcomeBookTest, LastCommitted_TrainingWentBack_IsTheLatestOfItsLine) {
  book_.Keep(Outcome(40, 1, true));
  book_.Keep(Outcome(60, 1, true));
  EXPECT_EQ(book_.last_committed(), 60);
  StoredAttempt back = Outcome(45, 1, true);
  back.lineage = {7, 40, 0, 1};
  book_.Keep(back);
  EXPECT_EQ(book_.last_committed(), 45);
  EXPECT_EQ(book_.Find(CheckpointKey{})->step, 45);
  EXPECT_TRUE(book_.Committed(60)) << "it may be loaded by number";
}

TEST_F(OutcomeBookTest, FindSettled_OutcomeThatCouldNotBeRead_IsLeftOut) {
  book_.Keep(Damaged(Reason::kStorageError));
  EXPECT_NE(book_.Find(4, 1), nullptr);
  EXPECT_EQ(book_.FindSettled(4, 1), nullptr);
  book_.Keep(Damaged(Reason::kManifestCorrupt));
  EXPECT_NE(book_.FindSettled(4, 1), nullptr) << "it stands, and is corrupt";
}

TEST_F(OutcomeBookTest, StillCommitted_CallerAsksWhileItIsRead_GetsWhatIsReadAfterwards) {
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), false) << "nothing is remembered of it";
  book_.Keep(Outcome(4, 1, true));
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), std::nullopt);
  const auto read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(book_.StillCommitted(4, "second", context_), std::nullopt);
  EXPECT_FALSE(Take<ReadStep>().has_value()) << "one at a time";
  EXPECT_FALSE(book_.OnRead(4, read->ticket + 1, StoredAttempts(), context_)) << "another read's result";
  ASSERT_TRUE(book_.OnRead(4, read->ticket, Holding(Outcome(4, 1, true)), context_));
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), true);
  EXPECT_FALSE(book_.WasRefused(4, "second"));
  ASSERT_TRUE(Answer(StoredAttempts())) << "it is read again for the second caller";
  EXPECT_EQ(book_.StillCommitted(4, "second", context_), false) << "people have removed the step";
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), true) << "it stays told";
  EXPECT_EQ(book_.last_committed(), std::nullopt);
}

TEST_F(OutcomeBookTest, OnRead_StorageFails_WhatIsRememberedCounts) {
  book_.Keep(Outcome(4, 1, true));
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), std::nullopt);
  ASSERT_TRUE(Answer(MakeError(Reason::kStorageError, "I/O error")));
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), true);
}

// These tests are about what a load looks at in storage, and what may be loaded instead.
TEST_F(OutcomeBookTest, KnownSteps_OutcomesOfEveryKind_AreToldApart) {
  book_.Keep(Outcome(2, 1, true));
  book_.Keep(Outcome(3, 1, false));
  book_.Keep(Damaged(Reason::kManifestCorrupt));
  book_.Keep(Outcome(6, 1, true));
  StoredAttempt deleted = Outcome(8, 1, true);
  deleted.deleted = true;
  book_.Keep(deleted);
  const auto known = book_.known_steps();
  EXPECT_EQ(known->all, (std::vector<int64_t>{2, 3, 4, 6, 8}));
  EXPECT_EQ(known->current, (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(known->committed, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(book_.known_steps(), known) << "made once for all loads";
  book_.Keep(Outcome(9, 1, true));
  EXPECT_EQ(book_.known_steps()->committed, (std::vector<int64_t>{2, 6, 9}));
}

TEST_F(OutcomeBookTest, ReadUnsettled_AskedOften_IsReadOnceASecond) {
  book_.Keep(Damaged(Reason::kStorageError));
  book_.ReadUnsettled(4, 2, "rank 0", context_);
  EXPECT_FALSE(Take<ReadStep>().has_value()) << "there is no outcome of attempt 2";
  book_.ReadUnsettled(4, 1, "rank 0", context_);
  ASSERT_TRUE(Answer(Holding(Damaged(Reason::kStorageError))));
  book_.ReadUnsettled(4, 1, "rank 0", context_);
  EXPECT_FALSE(Take<ReadStep>().has_value());
  Pass(absl::Seconds(1));
  book_.ReadUnsettled(4, 1, "rank 0", context_);
  ASSERT_TRUE(Answer(Holding(Outcome(4, 1, true))));
  EXPECT_TRUE(book_.FindSettled(4, 1)->committed);
}

TEST_F(OutcomeBookTest, ReadStalled_StorageDoesNotAnswer_NamesTheStep) {
  book_.Keep(Outcome(4, 1, true));
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), std::nullopt);
  Pass(absl::Seconds(4));
  EXPECT_TRUE(book_.ReadStalled(4, context_).ok());
  Pass(absl::Seconds(1));
  const absl::Status stalled = book_.ReadStalled(4, context_);
  EXPECT_TRUE(HasReason(stalled, Reason::kStorageStalled)) << stalled;
  EXPECT_EQ(MetadataOf(stalled)["step"], "4");
  EXPECT_TRUE(book_.ReadStalled(5, context_).ok());
}

TEST_F(OutcomeBookTest, Forget_LongAfterTheAnswer_AsksStorageAnew) {
  book_.Keep(Outcome(4, 1, true));
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), std::nullopt);
  book_.Forget(context_.now + absl::Hours(1));
  ASSERT_TRUE(Answer(Holding(Outcome(4, 1, true))));
  Pass(absl::Minutes(1));
  book_.Forget(context_.now);
  EXPECT_TRUE(book_.WasRefused(4, "first"));
  Pass(absl::Seconds(1));
  book_.Forget(context_.now);
  EXPECT_EQ(book_.StillCommitted(4, "first", context_), std::nullopt);
}

}  // namespace
}  // namespace cairn
