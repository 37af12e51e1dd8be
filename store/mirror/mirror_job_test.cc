#include "store/mirror/mirror_job.h"

#include <gtest/gtest.h>

#include <utility>

namespace cairn {
namespace {

using Steps = std::vector<int64_t>;

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

StepRecord Committed(int64_t step, const std::string& request = "r") {
  StoredAttempt attempt = {.step = step, .attempt = 1, .committed = true, .directory = true};
  attempt.request_id = request;
  StepRecord record;
  record.step = step;
  record.attempts = {attempt};
  return record;
}

class MirrorJobTest : public testing::Test {
 protected:
  // Reads all at `seconds`: the root has these steps, and the mirror those.
  void ReadAll(int64_t seconds, const Steps& root, const Steps& mirror) {
    MirrorReading reading = {At(seconds), std::nullopt, {}};
    for (const int64_t step : root) reading.records.root.push_back(Committed(step));
    for (const int64_t step : mirror) reading.records.mirror.push_back(Committed(step));
    job_.Note(std::move(reading), At(seconds));
  }
  Steps Waits() const { return job_.work().copy; }

  MirrorJob job_{"demo", "/mirror", MirrorRule()};
};

TEST_F(MirrorJobTest, ToRead_OnlyWhatHasChangedSinceItWasRead) {
  EXPECT_EQ(job_.ToRead(At(0)), std::nullopt) << "nothing was read";
  ReadAll(1, {1, 2, 3}, {1, 2, 3});
  EXPECT_EQ(job_.ToRead(At(2)), Steps{});
  job_.NoteChanged(7, At(2));
  StoredAttempt deleted = Committed(2).attempts[0];
  deleted.deleted = deleted.deleted_by_rules = true;
  job_.NoteDeleted(deleted, At(3));
  EXPECT_EQ(job_.ToRead(At(4)), (Steps{2, 7}));
  job_.Note({At(3), Steps{2, 7}, {{Committed(7)}, {}}}, At(4));
  EXPECT_EQ(job_.ToRead(At(4)), Steps{2}) << "it has changed when the reading had begun";
  EXPECT_EQ(Waits(), Steps{7});
  EXPECT_EQ(job_.ToRead(At(1000)), std::nullopt) << "somebody may have changed the mirror";
  job_.NoteAnyChanged(At(5));
  EXPECT_LE(job_.next_look(), At(5));
  EXPECT_EQ(job_.ToRead(At(5)), std::nullopt);
  ReadAll(6, {1, 7}, {1, 2, 3});
  EXPECT_EQ(job_.ToRead(At(7)), Steps{});
  for (int64_t step = 0; step < 100; ++step) job_.NoteChanged(step, At(8));
  EXPECT_EQ(job_.ToRead(At(8)), std::nullopt) << "all at once takes less";
}

TEST_F(MirrorJobTest, Note_SomeSteps_TakeThePlaceOfWhatWasKnownOfThem) {
  ReadAll(1, {1, 2, 3, 5}, {1, 2, 3});
  EXPECT_EQ(Waits(), Steps{5});
  job_.Note({At(2), Steps{2, 4, 5}, {{Committed(4), Committed(5, "another")}, {Committed(2)}}}, At(2));
  Steps there;
  for (const MirrorStep& step : job_.steps()) there.push_back(step.step);
  EXPECT_EQ(there, (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(Waits(), (Steps{5, 4}));
  EXPECT_TRUE(job_.only_there().contains(2)) << "the root has it no more";
  EXPECT_EQ(job_.Find(1)->copy, MirrorStep::Copy::kSame) << "nobody has read it again";
}

TEST_F(MirrorJobTest, Note_AReadingThatBeganBeforeWhatIsKnown_SaysNothing) {
  ReadAll(5, {1, 2}, {1});
  ReadAll(4, {1, 2}, {});
  EXPECT_EQ(Waits(), Steps{2});
  job_.NoteCopied(2, 1, At(6));
  ReadAll(6, {1, 2}, {1});
  EXPECT_EQ(Waits(), Steps{}) << "the copy ended after the reading had begun";
  ReadAll(7, {1, 2}, {1});
  EXPECT_EQ(Waits(), Steps{2}) << "somebody has taken it away";
}

TEST_F(MirrorJobTest, Note_AStepCannotBeRead_IsReadAgainSoon) {
  MirrorReading reading = {At(1), std::nullopt, {{Committed(1)}, {}}};
  StepRecord unread;
  unread.step = 1;
  unread.unlisted = absl::UnavailableError("EIO");
  reading.records.mirror = {unread};
  job_.Note(std::move(reading), At(1));
  EXPECT_EQ(Waits(), Steps{});
  EXPECT_EQ(job_.next_look(), At(11));
  EXPECT_EQ(job_.ToRead(At(11)), Steps{1});
  job_.Note({At(11), Steps{1}, {{Committed(1)}, {}}}, At(11));
  EXPECT_EQ(Waits(), Steps{1});
  EXPECT_GT(job_.next_look(), At(300));
}

TEST_F(MirrorJobTest, ForgetChecks_DamageWasKnown_IsNotAnyMore) {
  ReadAll(1, {1, 2}, {1, 2});
  EXPECT_TRUE(job_.NoteChecked(1, absl::DataLossError("a file is missing"), At(2)));
  EXPECT_TRUE(job_.NoteChecked(2, absl::OkStatus(), At(2)) == false && job_.NeedsNoCheck(2, true, At(2)));
  EXPECT_FALSE(job_.DamageOf(1).ok());
  job_.ForgetChecks();
  ReadAll(3, {1, 2}, {1, 2});
  EXPECT_TRUE(job_.DamageOf(1).ok());
  EXPECT_FALSE(job_.NeedsNoCheck(2, true, At(3)));
}

}  // namespace
}  // namespace cairn
