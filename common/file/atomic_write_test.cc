#include "common/file/atomic_write.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "common/status/reason.h"

namespace {

// Records synced files, and fails the syncs of `failing`. The fsync below replaces the C library's.
std::vector<std::string> synced;
std::string failing;

// The next call that gives a file a name does its work or not, and then a signal interrupts it.
enum class Interruption { kNone, kBefore, kAfter } interruption = Interruption::kNone;
bool no_links = false;    // as on a file system without hard links
bool only_links = false;  // as on one that cannot rename without replacing
bool no_unlink = false;   // a file's name cannot be removed

template <typename Function, typename... Arguments>
int MakeName(const char* name, Arguments... arguments) {
  const auto when = std::exchange(interruption, Interruption::kNone);
  const int result =
      when == Interruption::kBefore ? -1 : reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name))(arguments...);
  if (when == Interruption::kNone || (when == Interruption::kAfter && result != 0)) return result;
  errno = EINTR;
  return -1;
}

}  // namespace

extern "C" int fsync(int fd) {
  struct stat info = {};
  fstat(fd, &info);
  synced.push_back(S_ISDIR(info.st_mode) ? "directory" : "file");
  if (synced.back() != failing) return 0;
  errno = EIO;
  return -1;
}

extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  using Function = int(int, const char*, int, const char*, int);
  if (!no_links) return MakeName<Function>("linkat", from_directory, from, to_directory, to, flags);
  errno = EPERM;
  return -1;
}

extern "C" int renameat2(int from_directory, const char* from, int to_directory, const char* to,
                         unsigned flags) noexcept {
  if (only_links) {
    errno = EINVAL;
    return -1;
  }
  using Function = int(int, const char*, int, const char*, unsigned);
  return MakeName<Function>("renameat2", from_directory, from, to_directory, to, flags);
}

extern "C" int unlinkat(int directory, const char* name, int flags) noexcept {
  if (!no_unlink)
    return reinterpret_cast<int (*)(int, const char*, int)>(dlsym(RTLD_NEXT, "unlinkat"))(directory, name, flags);
  errno = EIO;
  return -1;
}

extern "C" int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  using Function = int(int, const char*, int, const char*);
  return MakeName<Function>("renameat", from_directory, from, to_directory, to);
}

namespace cairn {
namespace {

using Durable = AtomicWriteOptions::Durable;

class AtomicWriteTest : public testing::Test {
 protected:
  AtomicWriteTest() {
    std::string pattern = testing::TempDir() + "/atomic_write_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    synced.clear();
    failing.clear();
    interruption = Interruption::kNone;
    no_links = only_links = no_unlink = false;
  }
  ~AtomicWriteTest() override { std::filesystem::remove_all(directory_); }

  PutResult Write(const std::string& name, std::string_view bytes, const AtomicWriteOptions& options = {}) {
    return WriteAtomically(directory_ + "/" + name, bytes, options);
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  std::string directory_;
};

TEST_F(AtomicWriteTest, WriteAtomically_NameIsTaken_ReplacesOnlyIfAsked) {
  EXPECT_EQ(*Write("a", "first").put, Put::kCreated);
  EXPECT_EQ(*Write("a", "second").put, Put::kExists);
  EXPECT_EQ(Read("a"), "first");
  EXPECT_EQ(*Write("a", "third", {.replace = true}).put, Put::kCreated);
  EXPECT_EQ(Read("a"), "third");
  EXPECT_EQ(Files(), 1u);
}

// As on a network file system: the call may have done its work there, or not.
TEST_F(AtomicWriteTest, WriteAtomically_NamingIsInterrupted_GivesTheNameOnce) {
  for (const bool without_links : {false, true}) {
    for (const auto when : {Interruption::kBefore, Interruption::kAfter}) {
      SCOPED_TRACE(testing::Message() << "links: " << !without_links << ", " << static_cast<int>(when));
      const std::string name = without_links ? "renamed" : "linked";
      std::filesystem::remove(directory_ + "/" + name);
      no_links = without_links;
      interruption = when;
      const PutResult first = Write(name, "first");
      ASSERT_TRUE(first.put.ok()) << first.put.status();
      EXPECT_EQ(*first.put, Put::kCreated);
      interruption = Interruption::kBefore;
      EXPECT_EQ(*Write(name, "second").put, Put::kExists) << "another file stands there";
      EXPECT_EQ(Read(name), "first");
    }
  }
  EXPECT_EQ(Files(), 2u);
}

// The old name must not stay beside the new one, because nothing would remove it.
TEST_F(AtomicWriteTest, RenameNoReplace_NoNameCanBeRemoved_LeavesOneName) {
  std::ofstream(directory_ + "/a.partial") << "x";
  const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY);
  no_unlink = true;
  EXPECT_EQ(RenameNoReplace(directory, "a.partial", "a"), 0);
  no_unlink = false;
  EXPECT_EQ(Read("a"), "x");
  EXPECT_EQ(Files(), 1u);
  close(directory);
}

TEST_F(AtomicWriteTest, RenameNoReplace_InEachFileSystem_RenamesOnce) {
  const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY);
  for (const bool links : {false, true}) {
    only_links = links;
    for (const auto when : {Interruption::kNone, Interruption::kBefore, Interruption::kAfter}) {
      SCOPED_TRACE(testing::Message() << links << ", " << static_cast<int>(when));
      std::ofstream(directory_ + "/from") << "new";
      interruption = when;
      EXPECT_EQ(RenameNoReplace(directory, "from", "to"), 0);
      interruption = Interruption::kNone;
      EXPECT_EQ(Read("to"), "new");
      EXPECT_EQ(Files(), 1u);
      std::ofstream(directory_ + "/from") << "newer";
      EXPECT_EQ(RenameNoReplace(directory, "from", "to"), EEXIST);
      EXPECT_EQ(Read("to") + Read("from"), "newnewer");
      EXPECT_EQ(RenameNoReplace(directory, "none", "other"), ENOENT);
      std::filesystem::remove(directory_ + "/to");
    }
  }
  close(directory);
}

TEST_F(AtomicWriteTest, WriteAtomically_ReplacingIsInterrupted_IsDoneOrInDoubt) {
  interruption = Interruption::kBefore;
  EXPECT_TRUE(Write("a", "first", {.replace = true}).put.ok());
  EXPECT_EQ(Read("a"), "first");
  interruption = Interruption::kAfter;
  const PutResult second = Write("a", "second", {.replace = true});
  EXPECT_FALSE(second.put.ok());
  EXPECT_TRUE(second.in_doubt) << "the file may have been renamed, or removed by somebody";
}

TEST_F(AtomicWriteTest, WriteAtomically_LinkStandsThere_DoesNotFollowIt) {
  std::ofstream(directory_ + "/elsewhere") << "kept";
  std::filesystem::create_symlink("elsewhere", directory_ + "/a");
  EXPECT_EQ(*Write("a", "x").put, Put::kExists);
  EXPECT_TRUE(Write("a", "x", {.replace = true, .mode = 0600}).put.ok());
  EXPECT_EQ(Read("elsewhere"), "kept");
  struct stat info = {};
  ASSERT_EQ(lstat((directory_ + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0600u);
}

TEST_F(AtomicWriteTest, WriteAtomically_EachDurability_SyncsBytesThenName) {
  for (const bool replace : {false, true}) {
    const std::string name = replace ? "replacing" : "new";
    synced.clear();
    EXPECT_TRUE(Write(name, "x", {.replace = replace}).put.ok());
    EXPECT_EQ(synced, (std::vector<std::string>{"file", "directory"}));
    synced.clear();
    EXPECT_TRUE(Write(name + "2", "x", {.replace = replace, .durable = Durable::kBytes}).put.ok());
    EXPECT_EQ(synced, std::vector<std::string>{"file"});
    synced.clear();
    EXPECT_TRUE(Write(name + "3", "x", {.replace = replace, .durable = Durable::kNothing}).put.ok());
    EXPECT_TRUE(synced.empty());
  }
}

TEST_F(AtomicWriteTest, WriteAtomically_FsyncOfTheFileFails_GivesNoName) {
  failing = "file";
  for (const bool replace : {false, true}) {
    const PutResult put = Write("a", "x", {.replace = replace});
    EXPECT_TRUE(HasReason(put.put.status(), Reason::kFsyncFailed)) << put.put.status();
    EXPECT_FALSE(put.in_doubt);
  }
  EXPECT_EQ(Files(), 0u);
}

TEST_F(AtomicWriteTest, WriteAtomically_FsyncOfTheDirectoryFails_IsInDoubtUntilItSucceeds) {
  failing = "directory";
  for (int i = 0; i < 2; ++i) {  // the second time the file exists
    const PutResult put = Write("a", "x");
    EXPECT_TRUE(HasReason(put.put.status(), Reason::kFsyncFailed)) << put.put.status();
    EXPECT_TRUE(put.in_doubt);
  }
  EXPECT_TRUE(Write("a", "x", {.replace = true}).in_doubt);
  failing.clear();
  synced.clear();
  EXPECT_EQ(*Write("a", "x").put, Put::kExists);
  EXPECT_EQ(synced, (std::vector<std::string>{"file", "directory"}));
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicWriteTest, WriteAtomically_NameIsRefused_LeavesNothingAndNoDoubt) {
  std::filesystem::create_directory(directory_ + "/sub");
  for (const bool replace : {false, true}) {
    const PutResult too_long = Write(std::string(300, 'x'), "1", {.replace = replace});
    EXPECT_FALSE(too_long.put.ok());
    EXPECT_FALSE(too_long.in_doubt);
    EXPECT_TRUE(HasReason(Write("none/x", "1", {.replace = replace}).put.status(), Reason::kFileMissing));
  }
  EXPECT_FALSE(Write("sub", "1", {.replace = true}).put.ok());
  EXPECT_EQ(Files(), 1u);
}

TEST(DirectoryOfTest, DirectoryOf_AnyPath_IsWhatStandsBeforeTheLastSlash) {
  EXPECT_EQ(DirectoryOf("/a/b"), "/a");
  EXPECT_EQ(DirectoryOf("/a"), "/");
  EXPECT_EQ(DirectoryOf("a"), ".");
}

TEST_F(AtomicWriteTest, PublishFile_NameIsTaken_ReplacesItAndSyncsTheDirectory) {
  std::ofstream(directory_ + "/to") << "old";
  std::ofstream(directory_ + "/from") << "new";
  ASSERT_TRUE(PublishFile(directory_ + "/from", directory_ + "/to", Durable::kAll).ok());
  EXPECT_EQ(Read("to"), "new");
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(synced, std::vector<std::string>{"directory"});
}

TEST_F(AtomicWriteTest, PublishFile_OfManyWithOneSync_LeavesTheSyncToTheCaller) {
  std::ofstream(directory_ + "/from") << "new";
  ASSERT_TRUE(PublishFile(directory_ + "/from", directory_ + "/to", Durable::kBytes).ok());
  EXPECT_TRUE(synced.empty());
  ASSERT_TRUE(SyncDirectoryOf(directory_ + "/to").ok());
  EXPECT_EQ(synced, std::vector<std::string>{"directory"});
}

TEST_F(AtomicWriteTest, PublishFile_FileHasGone_IsAStorageErrorAndKeepsWhatStands) {
  std::ofstream(directory_ + "/to") << "old";
  const absl::Status status = PublishFile(directory_ + "/from", directory_ + "/to", Durable::kAll);
  EXPECT_TRUE(HasReason(status, Reason::kStorageError)) << status;
  EXPECT_EQ(Read("to"), "old");
}

TEST_F(AtomicWriteTest, PublishFile_DirectoryCannotBeSynced_Fails) {
  std::ofstream(directory_ + "/from") << "new";
  failing = "directory";
  const absl::Status status = PublishFile(directory_ + "/from", directory_ + "/to", Durable::kAll);
  EXPECT_TRUE(HasReason(status, Reason::kFsyncFailed)) << status;
}

}  // namespace
}  // namespace cairn
