#include "store/mirror/mirror_step.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>

#include "common/status/reason.h"

namespace cairn {
namespace {

using Copy = MirrorStep::Copy;

// Its commit is that of the request, so two attempts of one number may be of two commits.
StoredAttempt Committed(uint32_t attempt, const std::string& request = "r") {
  StoredAttempt made = {.step = 7, .attempt = attempt, .committed = true, .directory = true};
  made.request_id = request;
  made.time = absl::FromUnixSeconds(1000 + attempt);
  return made;
}
StoredAttempt Deleted(uint32_t attempt, bool by_rules) {
  StoredAttempt made = Committed(attempt);
  made.deleted = true;
  made.deleted_by_rules = by_rules;
  return made;
}
StoredAttempt Damaged(uint32_t attempt) {
  StoredAttempt made = {.step = 7, .attempt = attempt, .damaged = true, .directory = true};
  made.error = absl::DataLossError("damaged");
  return made;
}
StepRecord Step(std::vector<StoredAttempt> attempts, int64_t step = 7) {
  StepRecord record;
  record.step = step;
  for (StoredAttempt& attempt : attempts) attempt.step = step;
  record.attempts = std::move(attempts);
  return record;
}
Copy CopyOf(const StepRecord& root, const StepRecord& mirror) { return MirrorStepOf(&root, &mirror).copy; }

TEST(MirrorStepTest, MirrorStepOf_OnePlace_SaysWhatStandsThere) {
  const StepRecord one = Step({Committed(1), Committed(2)});
  MirrorStep step = MirrorStepOf(&one, nullptr);
  EXPECT_EQ(step.attempt, 2u);
  EXPECT_TRUE(step.at_root && step.known);
  EXPECT_EQ(step.copy, Copy::kNone);
  step = MirrorStepOf(nullptr, &one);
  EXPECT_EQ(step.attempt, 0u);
  EXPECT_EQ(step.mirrored, 2u);
  EXPECT_FALSE(step.at_root || step.known);
  EXPECT_EQ(step.copy, Copy::kOnlyThere);
  const StepRecord half = Step({{.step = 7, .attempt = 2, .unfinished = true, .directory = true}});
  step = MirrorStepOf(&one, &half);
  EXPECT_EQ(step.half, std::set<uint32_t>{2});
  EXPECT_FALSE(step.closed);
}

TEST(MirrorStepTest, Copy_OfWhatStandsAtTheRoot) {
  EXPECT_EQ(CopyOf(Step({Committed(2)}), Step({Committed(2)})), Copy::kSame);
  EXPECT_EQ(CopyOf(Step({Committed(2)}), Step({Committed(1)})), Copy::kReplaced);
  EXPECT_EQ(CopyOf(Step({Committed(2)}), Step({Committed(2, "another")})), Copy::kOther);
  EXPECT_EQ(CopyOf(Step({Committed(1)}), Step({Committed(2)})), Copy::kOther) << "it would hide the root's";
  EXPECT_EQ(CopyOf(Step({Damaged(2)}), Step({Committed(2)})), Copy::kSame);
  EXPECT_EQ(CopyOf(Step({Committed(1), Damaged(2)}), Step({Committed(1)})), Copy::kReplaced)
      << "older bytes do not stand in for a later commit";
  StoredAttempt repaired = Committed(2, "repair");
  repaired.repaired = true;
  EXPECT_EQ(CopyOf(Step({repaired}), Step({Committed(2)})), Copy::kSame);
}

TEST(MirrorStepTest, Copy_OfWhatTheRootHasNoMore) {
  EXPECT_EQ(CopyOf(Step({Deleted(2, true)}), Step({Committed(2)})), Copy::kOnlyThere);
  EXPECT_EQ(CopyOf(Step({Deleted(2, false)}), Step({Committed(2)})), Copy::kDeleted);
  EXPECT_EQ(CopyOf(Step({Deleted(1, false), Committed(2)}), Step({Committed(1)})), Copy::kDeleted);
  EXPECT_EQ(CopyOf(Step({Deleted(1, false), Deleted(2, true)}), Step({Committed(1)})), Copy::kDeleted)
      << "a person has deleted it, whatever became of the later one";
  EXPECT_EQ(CopyOf(Step({Deleted(1, true), Deleted(2, false)}), Step({Committed(1)})), Copy::kDeleted);
  EXPECT_EQ(CopyOf(Step({Deleted(1, true), Deleted(2, true)}), Step({Committed(1)})), Copy::kReplaced);
  EXPECT_EQ(CopyOf(Step({Deleted(1, false), Deleted(2, true)}), Step({Committed(2)})), Copy::kOnlyThere);
  EXPECT_EQ(CopyOf(Step({Deleted(1, false)}), Step({Committed(2)})), Copy::kOnlyThere) << "of a root that was lost";
}

// Neither a damaged record nor one that a repair has made says of which commit it is.
TEST(MirrorStepTest, Copy_OnlyTheNumberIsKnown_IsNeverDeletedForThat) {
  const StepRecord there = Step({Committed(1)});
  StoredAttempt repaired = Committed(1, "");
  repaired.repaired = true;
  const StoredAttempt deleted_damaged = {.step = 7, .attempt = 1, .deleted = true};
  for (const StoredAttempt& one : {Damaged(1), repaired, deleted_damaged}) {
    const StepRecord root = Step({one});
    EXPECT_TRUE(MirrorStepOf(&root, &there).by_number);
    EXPECT_FALSE(MirrorStepOf(&root, &there).unwanted());
    EXPECT_EQ(CopyOf(Step({one, Committed(2)}), there), Copy::kReplaced) << "the later one is copied";
  }
  const StepRecord root = Step({deleted_damaged});
  EXPECT_TRUE(MirrorStepOf(&root, &there).other_there) << "a person may delete it there";
  const StepRecord copy_of_repaired = Step({repaired});
  const auto by_number = [](const StepRecord& at_root, const StepRecord& mirror) {
    return MirrorStepOf(&at_root, &mirror).by_number;
  };
  EXPECT_FALSE(by_number(copy_of_repaired, copy_of_repaired)) << "it was copied after the repair";
  EXPECT_TRUE(by_number(Step({Committed(1)}), copy_of_repaired)) << "the mirror's was repaired";
  // The records of saves that nobody asked for by a command have no request.
  EXPECT_EQ(CopyOf(Step({Committed(1, "")}), Step({Committed(1, "")})), Copy::kSame);
  StoredAttempt later = Committed(1, "");
  later.time += absl::Seconds(3);
  EXPECT_EQ(CopyOf(Step({later}), Step({Committed(1, "")})), Copy::kOther);
  for (const StepRecord& one : {Step({Committed(1)}), Step({Committed(2)}), Step({Deleted(1, false)})}) {
    EXPECT_FALSE(by_number(one, there));
  }
}

TEST(MirrorStepTest, Copy_OfARootThatWasLost_IsNeitherDeletedNorReplaced) {
  const StepRecord there = Step({Committed(1, "of the lost root")});
  const auto other_there = [&](const StepRecord& root) { return MirrorStepOf(&root, &there).other_there; };
  for (const StepRecord& root :
       {Step({Deleted(1, false)}), Step({Deleted(1, true)}), Step({Deleted(1, true), Deleted(2, false)}),
        Step({Deleted(1, true), Deleted(2, true)})}) {
    EXPECT_EQ(CopyOf(root, there), Copy::kOther);
    EXPECT_TRUE(other_there(root));
  }
  const StoredAttempt aborted = {.step = 7, .attempt = 1};
  for (const StepRecord& root :
       {Step({Committed(1), Committed(2)}), Step({Deleted(1, true), Committed(2)}), Step({aborted, Committed(2)})}) {
    EXPECT_EQ(CopyOf(root, there), Copy::kOther);
    EXPECT_TRUE(MirrorStepOf(&root, &there).closed) << "both stay";
    EXPECT_FALSE(other_there(root));
  }
  EXPECT_EQ(CopyOf(Step({Committed(2)}), there), Copy::kReplaced) << "it was made above the mirror's";
}

TEST(MirrorStepTest, MirrorStepOf_OnlyADamagedRecordIsThere_IsKnown) {
  StepRecord there = Step({Damaged(1)});
  EXPECT_FALSE(MirrorStepOf(nullptr, &there).damaged_there) << "it may be read the next time";
  there.attempts[0].error = MakeError(Reason::kManifestCorrupt, "damaged");
  EXPECT_TRUE(MirrorStepOf(nullptr, &there).damaged_there) << "the root was lost";
  const auto is_there = [&](const StepRecord& root) { return MirrorStepOf(&root, &there).damaged_there; };
  EXPECT_TRUE(is_there(Step({Deleted(1, true)}))) << "rules have deleted it";
  EXPECT_FALSE(is_there(Step({Deleted(1, false)}))) << "a person has deleted it";
  EXPECT_FALSE(is_there(Step({Deleted(2, true)}))) << "an earlier commit";
  EXPECT_FALSE(is_there(Step({Committed(1)})));
}

TEST(MirrorStepTest, MirrorStepOf_AnotherRecordInThePlace_ClosesTheStep) {
  const StepRecord root = Step({Committed(1)});
  for (const StoredAttempt& other :
       {Committed(1, "another"), Deleted(1, false), StoredAttempt{.step = 7, .attempt = 1}, Committed(2), Damaged(1)}) {
    const StepRecord mirror = Step({other});
    EXPECT_TRUE(MirrorStepOf(&root, &mirror).closed) << other.attempt;
  }
  const StepRecord pruned = Step({Deleted(1, true)});
  EXPECT_FALSE(MirrorStepOf(&root, &pruned).closed) << "another rule may want it";
}

StepRecord At(int64_t step, uint64_t line, uint64_t sequence, std::optional<int64_t> continues = std::nullopt,
              uint64_t parent = 0) {
  StoredAttempt made = Committed(1);
  made.time = absl::FromUnixSeconds(1000 + static_cast<int64_t>(sequence));
  made.lineage = {.line = line, .continues_step = continues, .parent_line = parent, .sequence = sequence};
  return Step({made}, step);
}
std::vector<int64_t> Superseded(const std::vector<StepRecord>& root, const std::vector<StepRecord>& mirror) {
  std::vector<int64_t> steps;
  for (const MirrorStep& step : JoinSteps(root, mirror)) {
    if (step.superseded) steps.push_back(step.step);
  }
  return steps;
}

TEST(MirrorStepTest, JoinSteps_TheLineageIsThatOfBoth) {
  using Steps = std::vector<int64_t>;
  const std::vector<StepRecord> mirror = {At(10, 0, 1), At(20, 0, 2), At(30, 0, 3)};
  EXPECT_EQ(Superseded({}, mirror), Steps{});
  // The root was lost; the training went on from step 10 of the mirror.
  EXPECT_EQ(Superseded({At(15, 7, 4, 10, 0)}, mirror), (Steps{20, 30}));
  // A root from a backup.
  EXPECT_EQ(Superseded({At(10, 0, 1)}, mirror), Steps{});
  // The root was lost, and a training began anew: with a line of its own, or while nobody knew the mirror.
  EXPECT_EQ(Superseded({At(1, 9, 4)}, mirror), (Steps{10, 20, 30}));
  EXPECT_EQ(Superseded({At(1, 9, 1), At(2, 9, 2)}, mirror), (Steps{10, 20, 30}));
  EXPECT_EQ(Superseded({At(2, 9, 2)}, mirror), (Steps{10, 20, 30})) << "its first commit was pruned";
  EXPECT_EQ(Superseded({At(35, 11, 4, 32, 9)}, mirror), (Steps{})) << "nobody knows where line 9 came from";
  // A root from a backup of before the training went back to 10, which the mirror knows.
  const std::vector<StepRecord> went_on = {At(10, 0, 1), At(17, 7, 5, 10, 0), At(20, 0, 2)};
  EXPECT_EQ(Superseded({At(10, 0, 1), At(20, 0, 2), At(30, 0, 3)}, went_on), (Steps{20, 30}));
}

TEST(MirrorStepTest, JoinSteps_AnySteps_EachIsThereOnceAndAscending) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<StepRecord> root, mirror;
    std::vector<int64_t> all;
    for (int64_t step = 0; step < 12; ++step) {
      const uint64_t where = random() % 4;
      if (where & 1) root.push_back(Step({Committed(1)}, step));
      if (where & 2) mirror.push_back(Step({Committed(1)}, step));
      if (where != 0) all.push_back(step);
    }
    std::vector<int64_t> joined;
    for (const MirrorStep& step : JoinSteps(root, mirror)) {
      joined.push_back(step.step);
      EXPECT_EQ(step.at_root, FindStep(root, step.step) != nullptr);
      EXPECT_EQ(step.mirrored != 0, FindStep(mirror, step.step) != nullptr);
    }
    EXPECT_EQ(joined, all);
  }
}

}  // namespace
}  // namespace cairn
