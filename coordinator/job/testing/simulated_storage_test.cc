#include "coordinator/job/testing/simulated_storage.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/status/reason.h"

namespace cairn {
namespace {

PutOutcome Manifest(int64_t step, uint32_t attempt) {
  return {.step = step, .attempt = attempt, .manifest = std::make_shared<std::string>("manifest")};
}
PutOutcome AbortRecord(int64_t step, uint32_t attempt) {
  return {.step = step, .attempt = attempt, .error = MakeError(Reason::kRankLost, "lost")};
}

TEST(SimulatedStorageTest, Put_AOutcomeStands_KeepsTheFirst) {
  SimulatedStorage storage(1);
  EXPECT_TRUE(storage.PutIfAbsent(AbortRecord(4, 1)).taken);
  const auto second = storage.PutIfAbsent(Manifest(4, 1));
  EXPECT_FALSE(second.taken);
  EXPECT_FALSE(second.standing.committed);
}

TEST(SimulatedStorageTest, Put_OutcomesAreOverwrittenOnPurpose_KeepsTheLast) {
  SimulatedStorage storage(1);
  storage.PlantOverwrittenOutcomes();
  storage.PutIfAbsent(AbortRecord(4, 1));
  EXPECT_TRUE(storage.PutIfAbsent(Manifest(4, 1)).standing.committed);
}

TEST(SimulatedStorageTest, Reserve_AnAttemptWithoutAOutcome_IsBuriedAndItsFilesGo) {
  SimulatedStorage storage(1);
  ASSERT_EQ(storage.Reserve({.step = 4})->attempt, 1);
  storage.Write({4, 1}, 0);
  EXPECT_EQ(storage.Reserve({.step = 4})->attempt, 2);
  ASSERT_NE(storage.Outcome({4, 1}), nullptr);
  EXPECT_FALSE(storage.Outcome({4, 1})->committed);
  EXPECT_FALSE(storage.HasFile({4, 1}, 0));
  EXPECT_EQ(storage.directories(), (std::set<AttemptKey>{{4, 2}}));
}

TEST(SimulatedStorageTest, Reserve_NumbersThatWereUsed_AreAllBelow) {
  SimulatedStorage storage(1);
  storage.PutIfAbsent(AbortRecord(4, 6));
  EXPECT_EQ(storage.Reserve({.step = 4, .above = 3})->attempt, 7);
  EXPECT_EQ(storage.Reserve({.step = 4, .above = 9})->attempt, 10);
  EXPECT_EQ(storage.Reserve({.step = 5})->attempt, 1) << "another step";
}

TEST(SimulatedStorageTest, Reserve_TheStepIsCommitted_IsRefusedUnlessItOverwrites) {
  SimulatedStorage storage(1);
  storage.PutIfAbsent(Manifest(4, 1));
  EXPECT_TRUE(HasReason(storage.Reserve({.step = 4}).status(), Reason::kStepCommitted));
  EXPECT_EQ(storage.Reserve({.step = 4, .overwrite = true})->attempt, 2);
  EXPECT_TRUE(storage.MayReplace({4, 2}));
}

TEST(SimulatedStorageTest, Reserve_ItFails_MakesNoDirectory) {
  SimulatedStorage storage(1);
  EXPECT_FALSE(storage.Reserve({.step = 4}, MakeError(Reason::kStorageError, "fails")).ok());
  EXPECT_TRUE(storage.directories().empty());
}

TEST(SimulatedStorageTest, Change_AStepIsDeleted_ButNeverTheLastOne) {
  SimulatedStorage storage(1);
  storage.PutIfAbsent(Manifest(4, 1));
  EXPECT_TRUE(storage.Change({DeleteStep{4, "test"}}).deleted.empty()) << "the last one";
  storage.PutIfAbsent(Manifest(5, 1));
  EXPECT_EQ(storage.Change({DeleteStep{4, "test"}}).deleted.size(), 1);
  EXPECT_EQ(storage.Standing(), (std::map<int64_t, uint32_t>{{5, 1}}));
  EXPECT_EQ(storage.deletions(), 1);
}

TEST(SimulatedStorageTest, Change_AReplacedCommit_IsDeletedAndNamedUntilItsFilesAreGone) {
  SimulatedStorage storage(1);
  ASSERT_TRUE(storage.Reserve({.step = 4}).ok());
  storage.PutIfAbsent(Manifest(4, 1));
  storage.PutIfAbsent(Manifest(4, 2));
  EXPECT_EQ(storage.Change({DeleteReplaced{4}}).deleted.size(), 1);
  EXPECT_EQ(storage.Change({DeleteReplaced{4}}).deleted.size(), 1) << "it has a directory still";
  storage.Remove({4, 1});
  EXPECT_TRUE(storage.Change({DeleteReplaced{4}}).deleted.empty());
  EXPECT_EQ(storage.deletions(), 1);
}

TEST(SimulatedStorageTest, ReadAll_DirectoriesOfEveryKind_SaysWhatIsLeftOver) {
  SimulatedStorage storage(1);
  for (int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(storage.Reserve({.step = step}).ok());
  storage.PutIfAbsent(Manifest(1, 1));
  storage.PutIfAbsent(Manifest(2, 1));
  storage.PutIfAbsent(AbortRecord(3, 1));
  storage.Change({DeleteStep{2, "test"}});
  const StoredAttempts recovered = storage.ReadAll();
  ASSERT_EQ(recovered.size(), 4);
  EXPECT_TRUE(recovered[0].stands() && !recovered[0].left_over());
  EXPECT_TRUE(recovered[1].deleted && recovered[1].left_over());
  EXPECT_TRUE(recovered[2].aborted() && recovered[2].left_over());
  EXPECT_TRUE(recovered[3].unfinished && recovered[3].left_over());
}

}  // namespace
}  // namespace cairn
