#include "store/read/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/file/testing/failing_calls.h"
#include "common/file/testing/watched_pread.h"
#include "common/format/checkpoint_path.h"
#include "common/format/testing/newer_outcome.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/read/listed_checkpoint.h"

namespace cairn {
namespace {

class CheckpointStoreTest : public testing::Test {
 protected:
  CheckpointStoreTest() {
    std::string pattern = testing::TempDir() + "/store_XXXXXX";
    root_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(root_, true);
  }
  ~CheckpointStoreTest() override { std::filesystem::remove_all(root_); }

  void Put(int64_t step, uint32_t attempt, const std::string& bytes) {
    ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory("a/b", step, attempt)).ok());
    ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("a/b", step, attempt), bytes).ok());
  }
  static std::string Commit(int64_t step, uint32_t attempt) {
    Manifest manifest;
    manifest.job = "a/b";
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.world_size = 1;
    manifest.layout_digests = {std::string(32, 'd')};
    manifest.rank_layout = {0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0};
    return EncodeOutcome(manifest);
  }
  static std::string Abort(int64_t step, uint32_t attempt) {
    return EncodeOutcome(AbortRecord{
        .job = "a/b", .step = step, .attempt = attempt, .request_id = "r", .reason = "RANK_LATE", .message = "m"});
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
};

std::vector<int64_t> Steps(const absl::StatusOr<std::vector<StepRecord>>& records) {
  std::vector<int64_t> steps;
  for (const StepRecord& record : records.value()) steps.push_back(record.step);
  return steps;
}

TEST_F(CheckpointStoreTest, ReadCheckpoints_ManifestsAndAbortRecords_CountsManifestsOnly) {
  Put(10, 1, Commit(10, 1));
  Put(20, 1, Abort(20, 1));
  Put(20, 2, Commit(20, 2));
  Put(30, 1, Abort(30, 1));
  ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory("a/b", 40, 1)).ok());
  ASSERT_TRUE(storage_->MakeDirectories("a/b/other/000000000050").ok());
  CheckpointStore store(*storage_);
  const auto committed = store.ReadCheckpoints("a/b");
  EXPECT_EQ(Steps(committed), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(committed->back().deciding()->attempt, 2u);
  EXPECT_EQ(committed->back().deciding()->world_size, 1u);
  EXPECT_EQ(Steps(store.ReadJob("a/b")), (std::vector<int64_t>{10, 20, 30, 40}));
  EXPECT_EQ(store.ReadManifest("a/b", std::nullopt)->step, 20);
  EXPECT_EQ(store.ReadManifest("a/b", 10)->step, 10);
  const StepRecord twenty = store.ReadStep("a/b", 20);
  ASSERT_EQ(twenty.attempts.size(), 2u);
  EXPECT_TRUE(twenty.attempts[0].aborted());
  EXPECT_TRUE(HasReason(twenty.attempts[0].error, Reason::kRankLate));
  EXPECT_EQ(store.ReadStep("a/b", 40).state(), StepRecord::State::kNothing);
}

// The next opens of a name fail with an errno.
void FailOpens(const std::string& name, int error, int count = 1) {
  failing_calls.missing_file = name;
  failing_calls.open_error = error;
  failing_calls.opens_that_miss_it = count;
}

// As a client of a network file system does that keeps an old answer.
TEST_F(CheckpointStoreTest, ReadJob_StorageHidesWhatItLists_IsUnread) {
  for (int64_t step : {10, 20}) Put(step, 1, Commit(step, 1));
  CheckpointStore store(*storage_);
  FailOpens("0001.verdict", ENOENT, 2);
  const auto hidden = store.ReadCheckpoints("a/b");
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  ASSERT_EQ(hidden->size(), 2u);
  for (const StepRecord& step : *hidden) {
    EXPECT_TRUE(HasReason(step.unread(), Reason::kStorageError)) << step.unread();
  }
  FailOpens("0001.verdict", ENOENT, 1);
  EXPECT_TRUE(HasReason(store.ReadManifest("a/b", 10).status(), Reason::kStorageError));
  FailOpens("000000000020", ENOENT, 1);
  const auto job = store.ReadJob("a/b");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->size(), 2u);
  EXPECT_TRUE(HasReason((*job)[1].unlisted, Reason::kStorageError)) << (*job)[1].unlisted;
  EXPECT_EQ(store.ReadStep("a/b", 10).state(), StepRecord::State::kCommitted);
}

TEST_F(CheckpointStoreTest, ReadStep_StorageFailsToTell_IsUnreadUntilItTells) {
  Put(10, 1, Commit(10, 1));
  CheckpointStore store(*storage_);
  for (const int error : {EIO, ESTALE, EACCES, EMFILE, ENFILE}) {
    for (const std::string& name : {std::string("0001.deleted"), std::string("0001.verdict")}) {
      FailOpens(name, error);
      const StepRecord step = store.ReadStep("a/b", 10);
      EXPECT_FALSE(step.unread().ok()) << error;
      const v1::Checkpoint listed = ListedCheckpoint("a/b", step, LineageOf({step}));
      EXPECT_EQ(listed.state(), v1::Phase::DAMAGED) << error;
      EXPECT_TRUE(listed.unread()) << error;
      EXPECT_EQ(listed.attempt(), 1u) << "its tags are known";
    }
    FailOpens("000000000010", error);
    const StepRecord unlisted = store.ReadStep("a/b", 10);
    EXPECT_FALSE(unlisted.unread().ok()) << error;
    EXPECT_EQ(ListedCheckpoint("a/b", unlisted, LineageOf({unlisted})).attempt(), 0u);
    const StepRecord again = store.ReadStep("a/b", 10);
    EXPECT_TRUE(again.unread().ok()) << again.unread();
    EXPECT_FALSE(ListedCheckpoint("a/b", again, LineageOf({again})).unread());
    EXPECT_EQ(again.state(), StepRecord::State::kCommitted);
  }
}

TEST_F(CheckpointStoreTest, Unread_WhatIsNoReadableRecord_IsSoForEverybodyWhoLooks) {
  std::string bytes = Commit(20, 1);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  Put(20, 1, bytes);
  std::filesystem::create_directories(std::filesystem::path(root_) / OutcomePath("a/b", 30, 1));
  std::filesystem::create_directory_symlink("elsewhere", std::filesystem::path(root_) / "a/b/000000000040");
  // Opening a pipe must not wait for a writer.
  const std::filesystem::path pipe = std::filesystem::path(root_) / OutcomePath("a/b", 50, 1);
  std::filesystem::create_directories(pipe.parent_path());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  CheckpointStore store(*storage_);
  for (const int64_t step : {20, 30, 40, 50}) {
    const StepRecord record = store.ReadStep("a/b", step);
    EXPECT_FALSE(record.damage().ok()) << step;
    EXPECT_TRUE(record.unread().ok()) << record.unread();
  }
}

TEST_F(CheckpointStoreTest, StepOf_StorageFailsToListAStep_IsNoStepWithoutTheTag) {
  Put(10, 1, Commit(10, 1));
  ASSERT_TRUE(storage_->PutIfAbsent(TagPath("a/b", 10, "paper"), "{}").ok());
  CheckpointStore store(*storage_);
  const CheckpointName name = *ParseCheckpointName("a/b@paper");
  EXPECT_EQ(store.StepOf(name).value(), 10);
  FailOpens("000000000010", EIO);
  const auto unknown = store.StepOf(name);
  EXPECT_TRUE(HasReason(unknown.status(), Reason::kStorageError)) << unknown.status();
}

TEST_F(CheckpointStoreTest, ReadManifest_StepIsNotCommitted_NamesTheLatest) {
  CheckpointStore store(*storage_);
  EXPECT_TRUE(HasReason(store.ReadManifest("a/b", std::nullopt).status(), Reason::kNotCommitted));
  EXPECT_TRUE(store.ReadCheckpoints("no/such")->empty());
  Put(10, 1, Commit(10, 1));
  Put(30, 1, Abort(30, 1));
  const auto manifest = store.ReadManifest("a/b", 30);
  EXPECT_TRUE(HasReason(manifest.status(), Reason::kNotCommitted));
  const std::string latest = "a/b@30 has no committed checkpoint; the latest committed step is 10";
  EXPECT_TRUE(std::string(manifest.status().message()).starts_with(latest + "; attempt 1 was aborted: "))
      << manifest.status();
  EXPECT_EQ(NextActionOf(manifest.status()), "`cairn list a/b` shows the committed steps; take one of these.");
  // Files without an outcome may belong to a save that goes on, or to a commit whose record is lost.
  EXPECT_TRUE(storage_->MakeDirectories("a/b/000000000030/0002").ok());
  EXPECT_NE(std::string(store.ReadManifest("a/b", 30).status().message())
                .find("; the files of attempt 2 stand there without an outcome"),
            std::string::npos)
      << store.ReadManifest("a/b", 30).status();
  // The next coordinator removes such files, so the message must say it before.
  const std::string next = NextActionOf(store.ReadManifest("a/b", 30).status());
  EXPECT_NE(next.find("`cairn status a/b`"), std::string::npos) << next;
  EXPECT_NE(next.find("copy " + storage_->root() + "/a/b/000000000030 away"), std::string::npos) << next;
  EXPECT_TRUE(HasReason(store.ReadManifest("../x", 1).status(), Reason::kBadJobName));
  EXPECT_TRUE(HasReason(store.ReadManifest("a/b", -1).status(), Reason::kBadStep));
}

TEST_F(CheckpointStoreTest, ReadManifest_LatestOutcomeIsCorrupt_IsAnError) {
  Put(10, 1, Commit(10, 1));
  std::string bytes = Commit(20, 1);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  Put(20, 1, bytes);
  CheckpointStore store(*storage_);
  EXPECT_TRUE(HasReason(store.ReadManifest("a/b", std::nullopt).status(), Reason::kManifestCorrupt));
  const StepRecord twenty = store.ReadStep("a/b", 20);
  EXPECT_EQ(twenty.state(), StepRecord::State::kDamaged);
  EXPECT_TRUE(IsProvenDamage(twenty.damage()));
  EXPECT_NE(std::string(twenty.damage().message()).find("000000000020/0001.verdict"), std::string::npos);
  EXPECT_EQ(MetadataOf(twenty.damage())["step"], "20");
  EXPECT_EQ(Steps(store.ReadCheckpoints("a/b")), (std::vector<int64_t>{10, 20}));
}

TEST_F(CheckpointStoreTest, ReadStep_LaterAttemptCommitted_OverrulesADamagedOutcome) {
  Put(20, 1, "rubbish");
  Put(20, 2, Commit(20, 2));
  Put(20, 3, "rubbish");
  std::filesystem::remove(root_ + "/" + AttemptDirectory("a/b", 20, 3));
  CheckpointStore store(*storage_);
  EXPECT_EQ(store.ReadStep("a/b", 20).state(), StepRecord::State::kCommitted);
  EXPECT_EQ(store.ReadManifest("a/b", 20)->attempt, 2u);
  Put(30, 1, "rubbish");
  Put(30, 2, "more rubbish");
  Put(30, 3, Abort(30, 3));
  EXPECT_EQ(store.ReadStep("a/b", 30).deciding()->attempt, 2u);
}

TEST_F(CheckpointStoreTest, ReadStep_DamagedOutcomeAboveAManifest_HidesItWhileItsFilesStand) {
  Put(20, 1, Commit(20, 1));
  Put(20, 2, "rubbish");
  {
    CheckpointStore store(*storage_);
    EXPECT_EQ(store.ReadStep("a/b", 20).deciding()->attempt, 2U) << "it may be what took the place of the first";
    EXPECT_TRUE(HasReason(store.ReadManifest("a/b", 20).status(), Reason::kManifestCorrupt));
  }
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 20, 2), Commit(20, 2)).ok());
  EXPECT_EQ(CheckpointStore(*storage_).ReadManifest("a/b", 20)->attempt, 2U);
  std::filesystem::remove(root_ + "/" + RepairedPath("a/b", 20, 2));
  std::filesystem::remove(root_ + "/" + AttemptDirectory("a/b", 20, 2));
  EXPECT_EQ(CheckpointStore(*storage_).ReadManifest("a/b", 20)->attempt, 1U) << "it was an abort: its files are gone";
}

// No privilege helps against these faults, so the test also holds for root.
TEST_F(CheckpointStoreTest, ReadCheckpoints_OneStepIsUnreadable_ReadsTheOthers) {
  Put(10, 1, Commit(10, 1));
  Put(50, 1, Commit(50, 1));
  const std::string step = root_ + "/a/b/0000000000";
  for (const char* name : {"20", "30", "40"}) std::filesystem::create_directory(step + name);
  std::filesystem::create_symlink("../000000000010/0001.verdict", step + "20/0001.verdict");
  {
    std::ofstream(step + "30/0001.verdict").flush();
  }
  std::filesystem::resize_file(step + "30/0001.verdict", kMaxOutcomeBytes + 1);  // sparse
  std::filesystem::create_directory(step + "40/0001.verdict");
  std::filesystem::create_symlink("000000000010", step + "60");
  {
    std::ofstream(step + "70") << "a file";
  }
  CheckpointStore store(*storage_);
  const auto listed = store.ReadCheckpoints("a/b");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(Steps(listed), (std::vector<int64_t>{10, 20, 30, 40, 50, 60, 70}));
  const std::vector<Reason> reasons = {Reason::kPathEscape, Reason::kMessageTooLarge, Reason::kStorageError,
                                       Reason::kPathEscape, Reason::kStorageError};
  size_t i = 0;
  for (const StepRecord& record : *listed) {
    if (record.step == 10 || record.step == 50) {
      EXPECT_EQ(record.state(), StepRecord::State::kCommitted);
      continue;
    }
    EXPECT_EQ(record.state(), StepRecord::State::kDamaged);
    EXPECT_TRUE(HasReason(record.damage(), reasons[i])) << record.step << " " << record.damage();
    EXPECT_FALSE(IsProvenDamage(record.damage())) << record.step;
    EXPECT_NE(std::string(record.damage().message()).find(StepName(record.step)), std::string::npos);
    ++i;
  }
  EXPECT_EQ(store.ReadManifest("a/b", 50)->step, 50);
}

TEST_F(CheckpointStoreTest, ReadStep_OutcomeOfAnotherPlace_IsDamaged) {
  Put(10, 1, Commit(20, 1));
  Put(20, 1, Commit(20, 2));
  Put(30, 1, Abort(20, 1));
  CheckpointStore store(*storage_);
  for (int64_t step : {10, 20, 30}) {
    EXPECT_TRUE(HasReason(store.ReadStep("a/b", step).damage(), Reason::kManifestCorrupt)) << step;
  }
}

TEST_F(CheckpointStoreTest, ReadStep_RepairedManifest_ReplacesOnlyADamagedOutcome) {
  Put(10, 1, "rubbish");
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 10, 1), Commit(10, 1)).ok());
  Put(20, 1, Abort(20, 1));
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 20, 1), Commit(20, 1)).ok());
  Put(30, 1, "rubbish");
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 30, 1), Commit(30, 2)).ok());
  ASSERT_TRUE(storage_->MakeDirectories(StepDirectory("a/b", 40)).ok());
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 40, 1), Commit(40, 1)).ok());
  ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory("a/b", 50, 1)).ok());
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 50, 1), Commit(50, 1)).ok());
  CheckpointStore store(*storage_);
  EXPECT_EQ(store.ReadStep("a/b", 50).state(), StepRecord::State::kCommitted) << "its damaged outcome was removed";
  EXPECT_EQ(store.ReadStep("a/b", 10).state(), StepRecord::State::kCommitted);
  EXPECT_TRUE(store.ReadStep("a/b", 10).deciding()->repaired);
  EXPECT_EQ(store.ReadManifest("a/b", 10)->step, 10);
  EXPECT_EQ(store.ReadStep("a/b", 20).state(), StepRecord::State::kNothing);
  EXPECT_EQ(store.ReadStep("a/b", 30).state(), StepRecord::State::kDamaged);
  EXPECT_EQ(store.ReadStep("a/b", 40).state(), StepRecord::State::kNothing);
}

TEST_F(CheckpointStoreTest, ReadStep_DamagedRecord_IsReadOnceUntilTheFileChanges) {
  std::string bytes = Commit(10, 1) + std::string(1 << 20, 'x');
  Put(10, 1, bytes);
  Put(20, 1, OfVersion(Commit(20, 1), 2));
  CheckpointStore store(*storage_);
  EXPECT_EQ(Steps(store.ReadCheckpoints("a/b")), (std::vector<int64_t>{10, 20}));
  const std::string told(store.ReadStep("a/b", 10).damage().message());
  watched_pread.bytes = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Steps(store.ReadCheckpoints("a/b")), (std::vector<int64_t>{10, 20}));
    EXPECT_TRUE(IsProvenDamage(store.ReadStep("a/b", 10).damage()));
    EXPECT_EQ(store.ReadStep("a/b", 10).damage().message(), told);
    EXPECT_TRUE(HasReason(store.ReadStep("a/b", 20).damage(), Reason::kFormatTooNew));
  }
  EXPECT_EQ(watched_pread.bytes, 0u);
  ASSERT_TRUE(storage_->PutIfAbsent(RepairedPath("a/b", 10, 1), Commit(10, 1)).ok());
  EXPECT_EQ(store.ReadStep("a/b", 10).state(), StepRecord::State::kCommitted) << "a repair is seen at once";
  std::filesystem::remove(root_ + "/" + OutcomePath("a/b", 20, 1));
  Put(20, 1, Commit(20, 1));
  EXPECT_EQ(store.ReadStep("a/b", 20).state(), StepRecord::State::kCommitted) << "and so is another file";
}

TEST_F(CheckpointStoreTest, ReadStep_BitsFlipWhileRead_IsNoProvenDamage) {
  Put(10, 1, Commit(10, 1));
  {
    CheckpointStore store(*storage_);
    watched_pread.to_spoil = 1;
    EXPECT_EQ(store.ReadStep("a/b", 10).state(), StepRecord::State::kCommitted);
    EXPECT_EQ(watched_pread.to_spoil, 0);
    watched_pread.to_spoil = 1;
    EXPECT_EQ(store.ReadManifest("a/b", 10)->step, 10);
    watched_pread.to_spoil = 1;
    EXPECT_EQ(*store.ReadManifestBytes("a/b", 10)->bytes, Commit(10, 1));
    EXPECT_EQ(watched_pread.to_spoil, 0);
  }
  // Both reads are spoiled, each in another way: that is no proof, and the next call reads anew.
  CheckpointStore store(*storage_);
  watched_pread.to_spoil = 2;
  const StepRecord doubtful = store.ReadStep("a/b", 10);
  EXPECT_EQ(watched_pread.to_spoil, 0);
  EXPECT_EQ(doubtful.state(), StepRecord::State::kDamaged);
  EXPECT_TRUE(HasReason(doubtful.damage(), Reason::kStorageError)) << doubtful.damage();
  EXPECT_FALSE(IsProvenDamage(doubtful.damage()));
  EXPECT_EQ(store.ReadStep("a/b", 10).state(), StepRecord::State::kCommitted);
}

TEST_F(CheckpointStoreTest, ReadStep_FlippedBitOfTheVersion_IsProvenDamage) {
  std::string bytes = Commit(10, 1);
  bytes[9] = 1;
  Put(10, 1, bytes);
  CheckpointStore store(*storage_);
  EXPECT_TRUE(IsProvenDamage(store.ReadStep("a/b", 10).damage())) << store.ReadStep("a/b", 10).damage();
}

TEST_F(CheckpointStoreTest, ReadStep_StepWasRemoved_FindsNothing) {
  CheckpointStore store(*storage_);
  for (int round = 0; round < 3; ++round) {
    Put(10, 1, round == 1 ? Abort(10, 1) : Commit(10, 1));
    EXPECT_EQ(store.ReadStep("a/b", 10).state(),
              round == 1 ? StepRecord::State::kNothing : StepRecord::State::kCommitted);
    std::filesystem::remove_all(root_ + "/a/b/000000000010");
    EXPECT_EQ(store.ReadStep("a/b", 10).state(), StepRecord::State::kNothing);
    EXPECT_TRUE(store.ReadJob("a/b")->empty());
    EXPECT_TRUE(HasReason(store.ReadManifest("a/b", 10).status(), Reason::kNotCommitted));
  }
}

}  // namespace
}  // namespace cairn
