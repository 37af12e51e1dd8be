#include "store/write/attempt_store.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "common/base/fake_clock.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/fake_root_lock.h"
#include "store/write/attempt_owner.h"

namespace {

// Calls of this process. Tests run one after the other.
std::atomic<int> fsyncs = 0;
std::atomic<int> opens = 0;
// The next call of linkat fails with this errno, and links nothing.
std::atomic<int> link_error = 0;
// A directory that is hidden: the next opens of it find nothing.
std::string hidden_directory;
int hides = 0;  // so many opens of it
// While this file exists, no other one takes a byte.
std::string takes_all_room;

}  // namespace

// This comes before the C library's.
extern "C" int fsync(int fd) {
  static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  ++fsyncs;
  return real(fd);
}
extern "C" int openat(int directory, const char* name, int flags, ...) {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int, ...)>(dlsym(RTLD_NEXT, "openat"));
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  ++opens;
  if (hides > 0 && hidden_directory == name) {
    --hides;
    errno = ENOENT;
    return -1;
  }
  return real(directory, name, flags, mode);
}

extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(int, const char*, int, const char*, int)>(dlsym(RTLD_NEXT, "linkat"));
  const int error = link_error.exchange(0);
  if (error == 0) return real(from_directory, from, to_directory, to, flags);
  errno = error;
  return -1;
}
extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  struct stat info;
  const bool file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!file || takes_all_room.empty() || access(takes_all_room.c_str(), F_OK) != 0) return real(fd, bytes, size);
  errno = ENOSPC;
  return -1;
}

namespace cairn {
namespace {

const absl::Status kLate = MakeError(Reason::kRankLate, "demo@5: rank 1 is late", {{"ranks", "1"}});

// A coordinator's view of a root; several of them stand for several coordinators.
class Coordinator {
 public:
  Coordinator(const std::string& root, const Clock& clock)
      : storage_(*PosixStorage::Open(root, false)),
        checkpoints_(*storage_),
        store_(*storage_, checkpoints_, clock, lock_) {}

  absl::StatusOr<Reserved> Reserve(int64_t step, uint32_t above = 0) { return Reserve({.step = step, .above = above}); }
  absl::StatusOr<Reserved> Reserve(const ReserveAttempt& action) { return store_.Reserve("demo", action); }
  int raised() const { return lock_.raised; }
  PutAnswer Commit(int64_t step, const Reserved& reserved, std::vector<BinFile> bins = {}) {
    Manifest manifest;
    manifest.job = "demo";
    manifest.step = step;
    manifest.attempt = reserved.attempt;
    manifest.world_size = 2;
    return store_.Put(
        "demo", {step, reserved.attempt, reserved.nonce, std::make_shared<const std::string>(EncodeOutcome(manifest)),
                 std::make_shared<const std::vector<BinFile>>(std::move(bins)), absl::OkStatus(), ""});
  }
  PutAnswer Bury(int64_t step, uint32_t attempt, const std::string& request_id = "") {
    return store_.Put("demo", {step, attempt, 0, nullptr, nullptr, kLate, request_id});
  }
  absl::Status Remove(int64_t step, uint32_t attempt) { return store_.Remove("demo", step, attempt); }
  void LoseRoot() { lock_.held = MakeError(Reason::kRootInUse, "another one serves the root"); }

 private:
  std::unique_ptr<PosixStorage> storage_;
  CheckpointStore checkpoints_;
  FakeRootLock lock_;
  AttemptStore store_;
};

class AttemptStoreTest : public testing::Test {
 protected:
  AttemptStoreTest() {
    root_ = testing::TempDir() + "/attempts-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    std::filesystem::create_directory(root_ + "/.cairn");
    first_ = std::make_unique<Coordinator>(root_, clock_);
    second_ = std::make_unique<Coordinator>(root_, clock_);
  }
  ~AttemptStoreTest() override { std::filesystem::remove_all(root_); }

  bool Exists(const std::string& path) { return std::filesystem::exists(root_ + "/" + path); }
  void Write(const std::string& path, const std::string& bytes) { std::ofstream(root_ + "/" + path) << bytes; }

  std::string root_;
  FakeClock clock_;
  std::unique_ptr<Coordinator> first_;
  std::unique_ptr<Coordinator> second_;
};

TEST_F(AttemptStoreTest, Put_AOutcomeStands_KeepsTheFirst) {
  const auto one = first_->Reserve(5);
  ASSERT_EQ(one->attempt, 1u);
  const auto abort_record = second_->Bury(5, 1, "r1");
  ASSERT_TRUE(abort_record.standing.ok()) << abort_record.standing.status();
  EXPECT_FALSE(abort_record.standing->committed);
  // A coordinator that wakes up late finds it, whatever it wanted to write.
  const auto late = first_->Commit(5, *one);
  ASSERT_TRUE(late.standing.ok()) << late.standing.status();
  EXPECT_FALSE(late.standing->committed);
  EXPECT_TRUE(HasReason(late.standing->error, Reason::kRankLate));
  EXPECT_EQ(late.standing->request_id, "r1");
  const auto two = first_->Reserve(5);
  EXPECT_TRUE(first_->Commit(5, *two).standing->committed);
  EXPECT_TRUE(second_->Bury(5, 2).standing->committed);
}

TEST_F(AttemptStoreTest, EndedAttempt_WhoseFilesAreGone_IsObeyedToo) {
  const auto one = first_->Reserve(5);
  ASSERT_TRUE(second_->Bury(5, 1).standing.ok());
  ASSERT_TRUE(second_->Remove(5, 1).ok());
  const auto late = first_->Commit(5, *one, {{"rank00000-bin00.safetensors", 0, 10}});
  ASSERT_TRUE(late.standing.ok()) << late.standing.status();
  EXPECT_FALSE(late.standing->committed);
}

TEST_F(AttemptStoreTest, Reserve_AttemptsStand_NumberIsAboveAll) {
  EXPECT_EQ(first_->Reserve(5)->attempt, 1u);
  // Left without an outcome: it is buried and removed before a later one begins.
  Write("demo/000000000005/0001/rank00000-bin00.safetensors", "half a file");
  EXPECT_EQ(first_->Reserve(5)->attempt, 2u);
  EXPECT_FALSE(Exists(AttemptDirectory("demo", 5, 1)));
  EXPECT_TRUE(Exists(OutcomePath("demo", 5, 1)));
  EXPECT_TRUE(Exists(AttemptDirectory("demo", 5, 2)));
  EXPECT_EQ(first_->Reserve(5, 7)->attempt, 8u) << "agents have heard of attempt 7";
  const auto six = first_->Reserve(6);
  EXPECT_EQ(six->attempt, 1u);
  ASSERT_TRUE(first_->Commit(6, *six).standing.ok());
  EXPECT_TRUE(HasReason(first_->Reserve(6).status(), Reason::kStepCommitted));
  EXPECT_TRUE(Exists(AttemptDirectory("demo", 6, 1)));
}

TEST_F(AttemptStoreTest, Reserve_StepIsCommitted_OnlyWhoMayReplaceItGetsANumber) {
  const Reserved reserved = *first_->Reserve(5);
  ASSERT_TRUE(first_->Commit(5, reserved).standing.ok());
  EXPECT_TRUE(HasReason(first_->Reserve(5).status(), Reason::kStepCommitted));
  EXPECT_TRUE(HasReason(first_->Reserve({.step = 5, .left_behind = {6}}).status(), Reason::kStepCommitted));
  EXPECT_EQ(first_->raised(), 0);
  EXPECT_EQ(first_->Reserve({.step = 5, .overwrite = true})->attempt, 2u);
  EXPECT_EQ(first_->raised(), 0);
  EXPECT_EQ(first_->Reserve({.step = 5, .left_behind = {5}})->attempt, 3u);
  EXPECT_EQ(first_->raised(), 1);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + AttemptDirectory("demo", 5, 1))) << "it is the checkpoint yet";
  std::ofstream(root_ + "/" + PinPath("demo", 5)) << "kept";
  EXPECT_TRUE(HasReason(first_->Reserve({.step = 5, .overwrite = true}).status(), Reason::kCheckpointPinned));
  EXPECT_EQ(first_->Reserve({.step = 5, .overwrite = true, .left_behind = {5}})->attempt, 4u);
}

TEST_F(AttemptStoreTest, Reserve_TwoCoordinatorsAtOnce_NeverShareADirectory) {
  for (int64_t step = 0; step < 30; ++step) {
    absl::StatusOr<Reserved> one, two;
    std::thread other([&] { two = second_->Reserve(step); });
    one = first_->Reserve(step);
    other.join();
    // One may bury what the other has just made; then that one cannot commit.
    int committed = 0;
    for (auto* reserved : {&one, &two}) {
      if (!reserved->ok()) continue;
      const auto put = first_->Commit(step, **reserved);
      committed += put.standing.ok() && put.standing->committed;
    }
    EXPECT_LE(committed, 2);
    if (one.ok() && two.ok()) {
      EXPECT_NE(one->attempt, two->attempt);
      EXPECT_NE(one->nonce, two->nonce);
    }
  }
}

// The first put may have come to stand on the server of a file system, whatever the second one is told.
TEST_F(AttemptStoreTest, Put_RefusedAfterOneInDoubt_IsInDoubt) {
  const auto one = first_->Reserve(5);
  link_error = EIO;
  PutAnswer put = first_->Commit(5, *one);
  EXPECT_FALSE(put.standing.ok());
  EXPECT_TRUE(put.in_doubt);
  link_error = ENOSPC;
  put = first_->Commit(5, *one);
  EXPECT_TRUE(HasReason(put.standing.status(), Reason::kNoSpace)) << put.standing.status();
  EXPECT_TRUE(put.in_doubt);
  EXPECT_TRUE(first_->Commit(5, *one).standing->committed);
}

TEST_F(AttemptStoreTest, Bury_DiskIsFull_TakesTheRoomThatWasKeptForIt) {
  ASSERT_TRUE(first_->Reserve(5).ok());
  takes_all_room = root_ + "/.cairn/tombstone-room";
  ASSERT_TRUE(std::filesystem::exists(takes_all_room));
  const PutAnswer buried = first_->Bury(5, 1);
  takes_all_room.clear();
  EXPECT_TRUE(buried.standing.ok()) << buried.standing.status();
}

// Storage that hides what stands there, as a client of a network file system may.
TEST_F(AttemptStoreTest, Reserve_ListDoesNotTellOfACommit_ItIsNotReplaced) {
  ASSERT_TRUE(first_->Commit(5, *first_->Reserve(5)).standing->committed);
  hidden_directory = "000000000005";
  hides = 1;
  const auto reserved = first_->Reserve(5);
  hidden_directory.clear();
  EXPECT_EQ(hides, 0);
  EXPECT_TRUE(HasReason(reserved.status(), Reason::kStepCommitted)) << reserved.status();
}

TEST_F(AttemptStoreTest, Put_DirectoryOfAnother_IsNotCommitted) {
  const auto reserved = first_->Reserve(5);
  Reserved forged = *reserved;
  forged.nonce ^= 1;
  const auto put = first_->Commit(5, forged);
  EXPECT_TRUE(HasReason(put.standing.status(), Reason::kRootMismatch)) << put.standing.status();
  EXPECT_FALSE(put.in_doubt);
  EXPECT_FALSE(Exists(OutcomePath("demo", 5, 1)));
  EXPECT_TRUE(first_->Commit(5, *reserved).standing->committed);
}

TEST_F(AttemptStoreTest, Put_FileIsMissingOrShort_PutsNoManifest) {
  const auto reserved = first_->Reserve(5);
  const std::vector<BinFile> bins = {{"rank00000-bin00.safetensors", 0, 4}, {"rank00001-bin00.safetensors", 1, 6}};
  const std::string directory = AttemptDirectory("demo", 5, 1) + "/";
  Write(directory + bins[0].name, "four");
  for (const std::string what : {"is missing", "has 5 of 6 bytes"}) {
    const auto put = first_->Commit(5, *reserved, bins);
    EXPECT_TRUE(HasReason(put.standing.status(), Reason::kRootMismatch)) << put.standing.status();
    EXPECT_FALSE(put.in_doubt);
    EXPECT_NE(put.standing.status().message().find("rank00001-bin00.safetensors of rank 1 " + what), std::string::npos)
        << put.standing.status();
    EXPECT_EQ(MetadataOf(put.standing.status())["ranks"], "1");
    EXPECT_FALSE(Exists(OutcomePath("demo", 5, 1)));
    Write(directory + bins[1].name, "five!");
  }
  Write(directory + bins[1].name, "six...");
  EXPECT_TRUE(first_->Commit(5, *reserved, bins).standing->committed);
}

TEST_F(AttemptStoreTest, Put_LostRoot_IsNotWrittenToAnyMore) {
  const auto reserved = first_->Reserve(5);
  first_->LoseRoot();
  EXPECT_TRUE(HasReason(first_->Reserve(6).status(), Reason::kRootInUse));
  EXPECT_FALSE(Exists(StepDirectory("demo", 6)));
  EXPECT_TRUE(HasReason(first_->Commit(5, *reserved).standing.status(), Reason::kRootInUse));
  EXPECT_TRUE(HasReason(first_->Bury(5, 1).standing.status(), Reason::kRootInUse));
  EXPECT_FALSE(Exists(OutcomePath("demo", 5, 1)));
}

TEST_F(AttemptStoreTest, Remove_NoAbortRecordIsRead_KeepsTheFiles) {
  const auto reserved = first_->Reserve(5);
  const std::string directory = AttemptDirectory("demo", 5, 1);
  EXPECT_FALSE(first_->Remove(5, 1).ok()) << "it has no outcome";
  EXPECT_TRUE(Exists(directory));
  ASSERT_TRUE(first_->Commit(5, *reserved).standing.ok());
  EXPECT_FALSE(first_->Remove(5, 1).ok());
  EXPECT_TRUE(Exists(directory));
  Write(OutcomePath("demo", 5, 1), "rubbish");
  EXPECT_TRUE(HasReason(first_->Remove(5, 1), Reason::kManifestCorrupt));
  EXPECT_TRUE(Exists(directory)) << "what a damaged outcome belongs to may be rescued";
}

TEST_F(AttemptStoreTest, CommitAndRemove_ManyFiles_CostTheSameSyncs) {
  std::vector<int> calls;
  for (const int64_t files : {5, 300}) {
    const auto reserved = first_->Reserve(files);
    const std::string directory = AttemptDirectory("demo", files, reserved->attempt) + "/";
    std::vector<BinFile> bins;
    for (int rank = 0; rank < files; ++rank) {
      bins.push_back({"rank" + std::to_string(rank) + ".safetensors", rank, 1});
      Write(directory + bins.back().name, "x");
    }
    // Many that lack files are told by a few, and how many more.
    std::vector<BinFile> longer = bins;
    for (BinFile& bin : longer) bin.bytes = 2;
    const absl::Status refused = first_->Commit(files, *reserved, longer).standing.status();
    EXPECT_TRUE(HasReason(refused, Reason::kRootMismatch)) << refused;
    EXPECT_LT(MetadataOf(refused)["ranks"].size(), 100u) << refused;
    EXPECT_LT(refused.message().size(), 1000u) << refused;
    fsyncs = opens = 0;
    ASSERT_TRUE(first_->Bury(files, reserved->attempt).standing.ok());
    ASSERT_TRUE(first_->Remove(files, reserved->attempt).ok());
    EXPECT_FALSE(Exists(directory));
    calls.push_back(fsyncs);
    calls.push_back(opens);
    const auto again = first_->Reserve(files);
    const std::string next = AttemptDirectory("demo", files, again->attempt) + "/";
    for (const BinFile& bin : bins) Write(next + bin.name, "x");
    fsyncs = opens = 0;
    EXPECT_TRUE(first_->Commit(files, *again, bins).standing->committed);
    calls.push_back(fsyncs);
    calls.push_back(opens);
  }
  EXPECT_EQ(std::vector<int>(calls.begin(), calls.begin() + 4), std::vector<int>(calls.begin() + 4, calls.end()));
  EXPECT_LE(calls[0], 3) << "the record, its name, and the directory's end";
}

TEST_F(AttemptStoreTest, Reserve_OutcomeThatCannotBeRead_StopsItsStepAlone) {
  ASSERT_TRUE(first_->Reserve(5).ok());
  std::filesystem::create_symlink("/nowhere", root_ + "/" + OutcomePath("demo", 5, 1));
  const absl::Status error = first_->Reserve(5).status();
  EXPECT_TRUE(HasReason(error, Reason::kPathEscape)) << error;
  EXPECT_NE(error.message().find("0001.verdict"), std::string::npos) << error;
  EXPECT_EQ(first_->Reserve(6)->attempt, 1u);
  // One that is proven to be damaged is no commit: its files are kept, and its number is not used again.
  std::filesystem::remove(root_ + "/" + OutcomePath("demo", 5, 1));
  Write(OutcomePath("demo", 5, 1), "rubbish");
  EXPECT_EQ(first_->Reserve(5)->attempt, 2u);
  EXPECT_TRUE(Exists(AttemptDirectory("demo", 5, 1)));
}

}  // namespace
}  // namespace cairn
