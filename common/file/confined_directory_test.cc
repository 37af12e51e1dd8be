#include "common/file/confined_directory.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/resources/testing/address_space.h"
#include "common/status/reason.h"

namespace {

// Calls of this process. Tests run one after the other.
std::atomic<int> fsyncs = 0;
std::atomic<int> at_once = 0;
std::atomic<int> most_at_once = 0;
std::string not_removed;
std::string goes_while_listed;  // if set, directory entries have no type

}  // namespace

// Replaces the C library's.
extern "C" int fsync(int fd) {
  static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  ++fsyncs;
  return real(fd);
}
extern "C" int unlinkat(int directory, const char* name, int flags) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int)>(dlsym(RTLD_NEXT, "unlinkat"));
  if (!not_removed.empty() && name[0] == not_removed[0] && name >= not_removed) {
    errno = EIO;
    return -1;
  }
  const int now = ++at_once;
  for (int most = most_at_once; now > most && !most_at_once.compare_exchange_weak(most, now);) continue;
  const int result = real(directory, name, flags);
  --at_once;
  return result;
}

extern "C" dirent* readdir(DIR* directory) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  dirent* const entry = real(directory);
  if (entry == nullptr || goes_while_listed.empty()) return entry;
  entry->d_type = DT_UNKNOWN;
  if (goes_while_listed == entry->d_name) unlinkat(dirfd(directory), entry->d_name, 0);
  return entry;
}

namespace cairn {
namespace {

class ConfinedDirectoryTest : public testing::Test {
 protected:
  ConfinedDirectoryTest() {
    std::string pattern = testing::TempDir() + "/posix_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    storage_ = *ConfinedDirectory::Open(directory_ + "/root", true);
  }
  ~ConfinedDirectoryTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  std::unique_ptr<ConfinedDirectory> storage_;
};

TEST_F(ConfinedDirectoryTest, PutIfAbsent_ManyWriters_OneWins) {
  ASSERT_TRUE(storage_->MakeDirectories("a/b").ok());
  std::vector<int> created(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto put = storage_->PutIfAbsent("a/b/outcome", std::string(1000, static_cast<char>('0' + i)));
      ASSERT_TRUE(put.ok()) << put.status();
      created[static_cast<size_t>(i)] = *put == Put::kCreated;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::count(created.begin(), created.end(), 1), 1);
  const std::string content = *storage_->ReadFile("a/b/outcome", 5000);
  const auto winner = std::find(created.begin(), created.end(), 1) - created.begin();
  EXPECT_EQ(content, std::string(1000, static_cast<char>('0' + winner)));
  EXPECT_EQ(storage_->List("a/b")->size(), 1u) << "temporary files are left";
}

TEST_F(ConfinedDirectoryTest, RemoveTemporaries_FilesOfManyKinds_RemovesOnlyOwnOldOnes) {
  ASSERT_TRUE(storage_->MakeDirectories("job").ok());
  const std::string job = directory_ + "/root/job/";
  const auto make = [&](const std::string& name) { std::ofstream(job + name) << "x"; };
  make("marker");
  const std::string old = ".tmp-0123456789abcdef";
  const std::string other_user = ".tmp-00000000000000aa";
  const std::string later = ".tmp-00000000000000bb";
  std::vector<std::string> kept = {other_user,  later,          ".tmp-0123456789ABCDEF", ".tmp-notes-of-a-user",
                                   ".tmp-0123", "0001.verdict", "tmp-0123456789abcdef",  ".tmp-0123456789abcdef0"};
  make(old);
  make(".tmp-0123456789abcde0");
  std::filesystem::create_hard_link(job + old, job + ".tmp-0123456789abcde1");
  for (const std::string& name : kept) make(name);
  std::filesystem::create_directory(job + ".tmp-00000000000000cc");
  std::filesystem::create_symlink("marker", job + ".tmp-00000000000000dd");
  kept.insert(kept.end(), {"marker", ".tmp-00000000000000cc", ".tmp-00000000000000dd"});
  // Only root can give a file away.
  const bool given = chown((job + other_user).c_str(), 12345, static_cast<gid_t>(-1)) == 0;
  if (!given) kept.erase(kept.begin());
  struct stat info;
  // Two changes may get the same time, so `later` is made again until the storage's clock has advanced.
  absl::Time before;
  do {
    make(later);
    ASSERT_EQ(stat((job + later).c_str(), &info), 0);
    const absl::Time changed = absl::TimeFromTimespec(info.st_ctim);
    ASSERT_EQ(stat((job + other_user).c_str(), &info), 0);
    before = changed > absl::TimeFromTimespec(info.st_ctim) ? changed : absl::InfinitePast();
  } while (before == absl::InfinitePast());
  EXPECT_EQ(storage_->RemoveTemporaries("job", absl::InfinitePast()).value(), 0);
  EXPECT_EQ(storage_->RemoveTemporaries("job", before).value(), given ? 3 : 4);
  std::vector<std::string> left;
  const auto entries = storage_->List("job");
  for (const ConfinedDirectory::Entry& entry : *entries) left.push_back(entry.name);
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(left, kept);
  EXPECT_EQ(storage_->RemoveTemporaries("", before).value(), 0);
  EXPECT_TRUE(HasReason(storage_->RemoveTemporaries("none", before).status(), Reason::kFileMissing));
}

TEST_F(ConfinedDirectoryTest, ReadFile_FileIsLargerThanMemory_IsAMemoryLimit) {
  if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "a sanitizer's memory cannot be limited";
  std::ofstream(directory_ + "/root/large").flush();
  std::filesystem::resize_file(directory_ + "/root/large", 256 << 20);  // sparse
  {
    const LimitedAddressSpace limited(16 << 20);
    const auto read = storage_->ReadFile("large", 1 << 30);
    EXPECT_TRUE(HasReason(read.status(), Reason::kMemoryLimit)) << read.status();
    EXPECT_NE(read.status().message().find("large"), std::string::npos) << read.status();
  }
  EXPECT_EQ(storage_->ReadFile("large", 1 << 30)->size(), 256u << 20);
}

TEST_F(ConfinedDirectoryTest, ConfinedDirectory_PathLeavesTheRoot_IsRefused) {
  ASSERT_TRUE(storage_->MakeDirectories("in").ok());
  std::filesystem::create_directory(directory_ + "/outside");
  std::filesystem::create_symlink(directory_ + "/outside", directory_ + "/root/link");
  std::filesystem::create_symlink(directory_ + "/outside", directory_ + "/root/in/leaf");
  for (const char* path : {"../outside/x", "/etc/passwd", "in/../../outside/x", "in//x", "./x", "link/x", ""}) {
    EXPECT_TRUE(HasReason(storage_->PutIfAbsent(path, "x").status(), Reason::kPathEscape)) << path;
  }
  EXPECT_FALSE(storage_->OpenFile("in/leaf", O_RDONLY).ok());
  EXPECT_TRUE(HasReason(storage_->MakeDirectories("link/sub"), Reason::kPathEscape));
  ASSERT_TRUE(storage_->RemoveAll("in").ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/outside")) << "a link was followed";
}

TEST_F(ConfinedDirectoryTest, Rename_NameIsTaken_DoesNotReplace) {
  ASSERT_TRUE(storage_->PutIfAbsent("a", "1").ok());
  ASSERT_TRUE(storage_->PutIfAbsent("b", "2").ok());
  EXPECT_EQ(*storage_->Rename("a", "b").put, Put::kExists);
  EXPECT_EQ(*storage_->ReadFile("b", 10), "2");
  EXPECT_EQ(*storage_->ReadFile("a", 10), "1");
  EXPECT_EQ(*storage_->Rename("a", "c").put, Put::kCreated);
  EXPECT_FALSE(storage_->Exists("a"));
  EXPECT_EQ(*storage_->ReadFile("c", 10), "1");
  ASSERT_TRUE(storage_->MakeDirectories("d").ok());
  const auto elsewhere = storage_->Rename("c", "d/c");
  EXPECT_FALSE(elsewhere.put.ok());
  EXPECT_FALSE(elsewhere.in_doubt);
}

TEST_F(ConfinedDirectoryTest, TryPutIfAbsent_NameIsRefused_LeavesNoDoubt) {
  const auto no_directory = storage_->TryPutIfAbsent("none/x", "1");
  EXPECT_TRUE(HasReason(no_directory.put.status(), Reason::kFileMissing));
  EXPECT_FALSE(no_directory.in_doubt);
  const auto too_long = storage_->TryPutIfAbsent(std::string(300, 'x'), "1");  // refused by the link
  EXPECT_FALSE(too_long.put.ok());
  EXPECT_FALSE(too_long.in_doubt);
  EXPECT_TRUE(storage_->List("")->empty());
  struct stat info;
  ASSERT_TRUE(storage_->PutIfAbsent("secret", "1", 0600).ok());
  ASSERT_EQ(stat((directory_ + "/root/secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ConfinedDirectoryTest, MakeDirectoryExclusive_ManyMakers_OneMakesIt) {
  std::atomic<int> created = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto made = storage_->MakeDirectoryExclusive("all/ours/mine", "file", std::to_string(i));
      ASSERT_TRUE(made.ok()) << made.status();
      if (*made == Put::kCreated) ++created;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(created, 1);
  EXPECT_EQ(storage_->List("all/ours")->size(), 1u);
  EXPECT_EQ(storage_->ReadFile("all/ours/mine/file", 10)->size(), 1u);
  ASSERT_TRUE(storage_->PutIfAbsent("file", "1").ok());
  EXPECT_EQ(*storage_->MakeDirectoryExclusive("file", "x", ""), Put::kExists);
  EXPECT_FALSE(storage_->MakeDirectoryExclusive("all/failed", std::string(300, 'x'), "").ok());
  EXPECT_FALSE(storage_->Exists("all/failed"));
}

TEST_F(ConfinedDirectoryTest, SizesOf_ManyFiles_TellsThoseThatAreMissing) {
  ASSERT_TRUE(storage_->MakeDirectories("d/sub").ok());
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) {
    names.push_back("f" + std::to_string(i));
    if (i % 7 != 0) std::ofstream(directory_ + "/root/d/" + names.back()) << std::string(static_cast<size_t>(i), 'x');
  }
  const auto sizes = storage_->SizesOf("d", names);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  ASSERT_EQ(sizes->size(), names.size());
  for (size_t i = 0; i < 3000; ++i) {
    EXPECT_EQ((*sizes)[i], i % 7 != 0 ? std::optional<uint64_t>(i) : std::nullopt) << names[i];
  }
  EXPECT_TRUE(HasReason(storage_->SizesOf("d", {"f1", "sub"}).status(), Reason::kStorageError)) << "a directory";
  EXPECT_TRUE(storage_->SizesOf("d", {})->empty());
  EXPECT_TRUE(HasReason(storage_->SizesOf("none", names).status(), Reason::kFileMissing));
}

// As on a network file system, where the kinds of entries are asked for one by one.
TEST_F(ConfinedDirectoryTest, List_AnEntryGoesMeanwhile_ListsTheOthers) {
  ASSERT_TRUE(storage_->MakeDirectories("d/sub").ok());
  ASSERT_TRUE(storage_->PutIfAbsent("d/a", "x").ok());
  ASSERT_TRUE(storage_->PutIfAbsent("d/.tmp-1", "x").ok());
  goes_while_listed = ".tmp-1";
  const auto entries = storage_->List("d");
  goes_while_listed.clear();
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_FALSE((*entries)[0].directory);
  EXPECT_EQ((*entries)[1].name, "sub");
  EXPECT_TRUE((*entries)[1].directory);
}

TEST_F(ConfinedDirectoryTest, Refresh_AnotherDirectoryStandsThere_FollowsIt) {
  EXPECT_EQ(*storage_->Refresh(), 0u);
  ASSERT_TRUE(storage_->PutIfAbsent("a", "first").ok());
  const auto held = storage_->OpenFile("a", O_RDONLY);
  std::filesystem::rename(directory_ + "/root", directory_ + "/away");
  EXPECT_TRUE(HasReason(storage_->Refresh().status(), Reason::kRootMissing));
  EXPECT_TRUE(storage_->Exists("a")) << "the held one is kept";
  std::filesystem::create_directory(directory_ + "/root");
  EXPECT_EQ(*storage_->Refresh(), 1u);
  EXPECT_FALSE(storage_->Exists("a"));
  EXPECT_EQ(*storage_->Refresh(), 1u) << "told to each who asks, not only to the first";
  char byte = 0;
  EXPECT_EQ(pread(held->get(), &byte, 1, 0), 1);
}

TEST_F(ConfinedDirectoryTest, SettleDirectory_LeavesNothing) {
  ASSERT_TRUE(storage_->PutIfAbsent("a", "1").ok());
  EXPECT_TRUE(storage_->SettleDirectory("").ok());
  EXPECT_EQ(storage_->List("")->size(), 1u);
  EXPECT_TRUE(HasReason(storage_->SettleDirectory("none"), Reason::kFileMissing));
}

TEST_F(ConfinedDirectoryTest, RemoveAll_TreeOrNothing_Succeeds) {
  ASSERT_TRUE(storage_->MakeDirectories("t/u/v").ok());
  ASSERT_TRUE(storage_->PutIfAbsent("t/u/f", "1").ok());
  EXPECT_TRUE(storage_->RemoveAll("t").ok());
  EXPECT_TRUE(storage_->List("")->empty());
  EXPECT_TRUE(storage_->RemoveAll("t").ok());
  EXPECT_TRUE(storage_->RemoveAll("t/u/v").ok());
}

TEST_F(ConfinedDirectoryTest, RemoveAll_ManyFiles_SyncsOnceAndIsBounded) {
  for (const int files : {10, 400}) {
    ASSERT_TRUE(storage_->MakeDirectories("t/0001/sub").ok());
    for (int i = 0; i < files; ++i) std::ofstream(directory_ + "/root/t/0001/f" + std::to_string(i)).flush();
    std::ofstream(directory_ + "/root/t/0001/sub/f").flush();
    fsyncs = most_at_once = 0;
    EXPECT_TRUE(storage_->RemoveAll("t/0001").ok());
    EXPECT_EQ(fsyncs, 1);
    EXPECT_LE(most_at_once, 17);
    EXPECT_TRUE(storage_->List("t")->empty());
  }
}

TEST_F(ConfinedDirectoryTest, RemoveAll_SomeCannotGo_NamesTheFirst) {
  ASSERT_TRUE(storage_->MakeDirectories("t").ok());
  for (int i = 1000; i < 1400; ++i) std::ofstream(directory_ + "/root/t/" + std::to_string(i)).flush();
  not_removed = "1150";
  const absl::Status status = storage_->RemoveAll("t");
  not_removed.clear();
  EXPECT_TRUE(HasReason(status, Reason::kStorageError)) << status;
  EXPECT_EQ(MetadataOf(status)["file"], directory_ + "/root/t/1150");
  EXPECT_EQ(storage_->List("t")->size(), 250u);
  EXPECT_TRUE(storage_->RemoveAll("t").ok());
  EXPECT_FALSE(storage_->Exists("t"));
}

TEST_F(ConfinedDirectoryTest, RemoveAll_DeepTreesAndLinks_StayBoundedAndInside) {
  std::filesystem::create_directories(directory_ + "/outside/kept");
  std::string path = "t";
  for (int i = 0; i < 20; ++i) path += "/d";
  std::filesystem::create_directories(directory_ + "/root/" + path);
  std::filesystem::create_directory_symlink(directory_ + "/outside", directory_ + "/root/t/link");
  EXPECT_TRUE(storage_->RemoveAll("t").ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/outside/kept"));
  for (int i = 0; i < 100; ++i) path += "/d";
  std::filesystem::create_directories(directory_ + "/root/" + path);
  EXPECT_TRUE(HasReason(storage_->RemoveAll("t"), Reason::kStorageError));
}

TEST_F(ConfinedDirectoryTest, RemoveAllOf_TakesWhatIsNamed) {
  ASSERT_TRUE(storage_->MakeDirectories("t/a").ok());
  for (const char* file : {"a/x", "b", "c"}) ASSERT_TRUE(storage_->PutIfAbsent("t/" + std::string(file), "1").ok());
  fsyncs = 0;
  EXPECT_TRUE(storage_->RemoveAllOf("t", {"a", "b", "none"}).ok());
  EXPECT_EQ(fsyncs, 1);
  EXPECT_EQ(storage_->List("t")->size(), 1u);
  for (const char* name : {"..", "../t", ".", "", "a/b"}) {
    EXPECT_FALSE(storage_->RemoveAllOf("t", {"c", name}).ok()) << name;
  }
  EXPECT_TRUE(storage_->Exists("t/c"));
  EXPECT_TRUE(HasReason(storage_->RemoveAllOf("none", {"a"}), Reason::kFileMissing));
}

TEST_F(ConfinedDirectoryTest, SizesOf_SeveralAreNoFiles_TellsTheFirst) {
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) {
    names.push_back("f" + std::to_string(i));
    if (i % 500 == 499) std::filesystem::create_directory(directory_ + "/root/" + names.back());
  }
  EXPECT_EQ(MetadataOf(storage_->SizesOf("", names).status())["file"], directory_ + "/root//f499");
}

TEST_F(ConfinedDirectoryTest, ConfinedDirectory_AnyFailure_HasItsReason) {
  EXPECT_TRUE(HasReason(storage_->ReadFile("none", 10).status(), Reason::kFileMissing));
  ASSERT_TRUE(storage_->PutIfAbsent("big", std::string(100, 'x')).ok());
  EXPECT_TRUE(HasReason(storage_->ReadFile("big", 99).status(), Reason::kMessageTooLarge));
  EXPECT_TRUE(HasReason(ConfinedDirectory::Open(directory_ + "/no/where", true).status(), Reason::kRootMissing));
  EXPECT_TRUE(HasReason(ConfinedDirectory::Open("/dev/null", false).status(), Reason::kRootMissing));
  EXPECT_FALSE(storage_->ReadFile("", 10).ok());
}

TEST_F(ConfinedDirectoryTest, ConfinedDirectory_APipeInThePlaceOfAFile_IsNoRegularFile) {
  ASSERT_EQ(mkfifo((directory_ + "/root/pipe").c_str(), 0600), 0);
  for (const absl::Status& status :
       {storage_->ReadFile("pipe", 10).status(), storage_->SizesOf("", {"pipe"}).status()}) {
    EXPECT_TRUE(HasReason(status, Reason::kStorageError)) << status;
    EXPECT_NE(status.message().find("pipe is no regular file"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace cairn
