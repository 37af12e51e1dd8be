#include "foreign/write/output_directory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace {

int refused_unlinks = 0;  // of names that an export has given for a time
int failing_syncs = 0;    // of the next ones

}  // namespace

extern "C" int unlinkat(int directory, const char* name, int flags) noexcept {
  if (refused_unlinks > 0 && std::string_view(name).starts_with(".tmp-export-done-")) {
    --refused_unlinks;
    errno = EIO;
    return -1;
  }
  return reinterpret_cast<int (*)(int, const char*, int)>(dlsym(RTLD_NEXT, "unlinkat"))(directory, name, flags);
}

extern "C" int fsync(int fd) {
  if (failing_syncs == 0) return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"))(fd);
  --failing_syncs;
  errno = EIO;
  return -1;
}

namespace cairn {
namespace {

constexpr char kIdentity[] = "0123456789abcdef0123456789abcdef";

bool NoName(std::string_view) { return false; }

uint32_t ChecksumOf(std::string_view bytes) { return Crc32c(bytes.data(), bytes.size()); }

// Returns the temporary name of a finished file.
std::string Finished(std::string_view bytes, const std::string& name) {
  return absl::StrCat(".tmp-export-done-", kIdentity, "-", absl::Hex(ChecksumOf(bytes), absl::kZeroPad8), "-", name);
}

// Takes over a file that is finished.
bool Takes(OutputDirectory& output, const std::string& name, uint64_t bytes = 4) {
  const absl::StatusOr<bool> taken = output.TakeFinished(name, bytes, nullptr);
  EXPECT_TRUE(taken.ok()) << taken.status();
  return taken.ok() && *taken;
}

class OutputDirectoryTest : public testing::Test {
 protected:
  OutputDirectoryTest() : above_(testing::TempDir() + "/output-" + RandomToken(6)), path_(above_ + "/model") {
    std::filesystem::create_directories(above_);
  }
  ~OutputDirectoryTest() override { std::filesystem::remove_all(above_); }

  void Put(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/" + name) << bytes;
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  // Gives a finished file its final name, as an export does that is killed before it removes the temporary one.
  void GiveName(std::string_view bytes, const std::string& name) const {
    std::filesystem::create_hard_link(path_ + "/" + Finished(bytes, name), path_ + "/" + name);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  const std::string above_;
  const std::string path_;
};

TEST_F(OutputDirectoryTest, Open_NothingThere_OneDirectoryIsMade) {
  OutputDirectory output(path_, kIdentity);
  EXPECT_TRUE(output.Open(NoName).ok());
  EXPECT_TRUE(std::filesystem::is_directory(path_));
  OutputDirectory deeper(above_ + "/none/model", kIdentity);
  EXPECT_EQ(ReasonOf(deeper.Open(NoName)), Reason::kBadRequest);
  EXPECT_FALSE(std::filesystem::exists(above_ + "/none"));
}

// Whoever opened a directory of two checkpoints would read one of them, and could not know which.
TEST_F(OutputDirectoryTest, Open_CheckpointOfAnyLibraryThere_IsRefusedByName) {
  for (const std::string name :
       {"model.safetensors", "model.safetensors.index.json", "__0_0.distcp", ".metadata", ".snapshot_metadata"}) {
    Put(name, "of another");
    const absl::Status status = OutputDirectory(path_, kIdentity).Open(NoName);
    EXPECT_EQ(ReasonOf(status), Reason::kOutputExists) << name;
    EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
    EXPECT_EQ(Get(name), "of another");
    std::filesystem::remove(path_ + "/" + name);
  }
}

TEST_F(OutputDirectoryTest, Open_OtherFilesThere_OnlyThoseOfTheExportAreInItsWay) {
  Put("README.md", "mine");
  Put("config.json", "mine");
  EXPECT_TRUE(OutputDirectory(path_, kIdentity).Open(NoName).ok());
  const absl::Status status =
      OutputDirectory(path_, kIdentity).Open([](std::string_view name) { return name == "config.json"; });
  EXPECT_EQ(ReasonOf(status), Reason::kOutputExists) << status;
}

TEST_F(OutputDirectoryTest, Open_AnotherExportFillsIt_IsRefused) {
  OutputDirectory first(path_, kIdentity);
  ASSERT_TRUE(first.Open(NoName).ok());
  ASSERT_TRUE(first.Add("a.safetensors", "1").ok());
  EXPECT_EQ(ReasonOf(OutputDirectory(path_, kIdentity).Open(NoName)), Reason::kOutputExists);
  ASSERT_TRUE(first.Publish().ok());
  EXPECT_EQ(Get("a.safetensors"), "1") << "the second one removed files of the first";
}

TEST_F(OutputDirectoryTest, Open_FilesOfAKilledExport_AreRemoved) {
  Put(".tmp-export-0123456789abcdef-model.safetensors", "half");
  OutputDirectory output(path_, kIdentity);
  ASSERT_TRUE(output.Open(NoName).ok());
  EXPECT_TRUE(Names().empty());
}

TEST_F(OutputDirectoryTest, Publish_ASecondNameCannotBeRemoved_SaysSoAndTheNextExportRemovesIt) {
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    ASSERT_TRUE(output.Add("a.safetensors", "1").ok());
    ASSERT_TRUE(output.Add("b.safetensors", "2").ok());
    refused_unlinks = 1;
    EXPECT_TRUE(output.Publish().ok()) << "it is tried again";
  }
  EXPECT_EQ(Names().size(), 2u);
  std::filesystem::remove_all(path_);
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    ASSERT_TRUE(output.Add("a.safetensors", "1").ok());
    ASSERT_TRUE(output.Add("b.safetensors", "2").ok());
    refused_unlinks = 2;
    const absl::Status left = output.Publish();
    EXPECT_TRUE(HasReason(left, Reason::kStorageError)) << left;
    EXPECT_NE(left.message().find("the export is complete"), std::string::npos) << left;
    EXPECT_NE(left.message().find(Finished("1", "a.safetensors")), std::string::npos) << left;
    EXPECT_EQ(output.Abandon(left), left);
  }
  EXPECT_EQ(Names().size(), 3u);
  EXPECT_EQ(Get("a.safetensors") + Get("b.safetensors"), "12");
  EXPECT_EQ(ReasonOf(OutputDirectory(path_, kIdentity).Open(NoName)), Reason::kOutputExists);
  EXPECT_EQ(Names(), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
}

TEST_F(OutputDirectoryTest, Files_BeforePublish_HaveNoNames) {
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    const auto fd = output.Create("a.safetensors", 4);
    ASSERT_TRUE(fd.ok()) << fd.status();
    ASSERT_TRUE(output.Write(fd->get(), "a.safetensors", 0, "1234").ok());
    ASSERT_TRUE(output.Finish(fd->get(), "a.safetensors", ChecksumOf("1234")).ok());
    ASSERT_TRUE(output.Add("index", "{}").ok());
    for (const std::string& name : Names()) EXPECT_TRUE(name.starts_with(".tmp-export-")) << name;
    ASSERT_TRUE(output.Publish().ok());
  }
  EXPECT_EQ(Names(), (std::vector<std::string>{"a.safetensors", "index"}));
  EXPECT_EQ(Get("a.safetensors"), "1234");
  EXPECT_EQ(Get("index"), "{}");
}

TEST_F(OutputDirectoryTest, Finish_FileCannotBeSynced_Fails) {
  OutputDirectory output(path_, kIdentity);
  ASSERT_TRUE(output.Open(NoName).ok());
  const auto fd = output.Create("a.safetensors", 4);
  ASSERT_TRUE(fd.ok()) << fd.status();
  ASSERT_TRUE(output.Write(fd->get(), "a.safetensors", 0, "1234").ok());
  failing_syncs = 1;
  EXPECT_EQ(ReasonOf(output.Finish(fd->get(), "a.safetensors", ChecksumOf("1234"))), Reason::kFsyncFailed);
}

TEST_F(OutputDirectoryTest, Object_GoneWithoutPublish_LeavesNothing) {
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    ASSERT_TRUE(output.Add("a", "1").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it had made the directory";
  Put("README.md", "mine");
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    ASSERT_TRUE(output.Add("a", "1").ok());
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"README.md"});
}

TEST_F(OutputDirectoryTest, Publish_NameTakenMeanwhile_ReplacesNothingAndLeavesNothing) {
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    ASSERT_TRUE(output.Add("a", "new").ok());
    ASSERT_TRUE(output.Add("b", "new").ok());
    Put("b", "of another");
    EXPECT_EQ(ReasonOf(output.Publish()), Reason::kOutputExists);
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"b"});
  EXPECT_EQ(Get("b"), "of another");
}

// Leaves a finished file, one that is not, and a small one, as an export does that fails with `error`.
absl::Status Fail(const std::string& path, const std::string& identity, const absl::Status& error) {
  OutputDirectory output(path, identity);
  EXPECT_TRUE(output.Open(NoName).ok());
  const auto finished = output.Create("a.safetensors", 4);
  EXPECT_TRUE(output.Write(finished->get(), "a.safetensors", 0, "1234").ok());
  EXPECT_TRUE(output.Finish(finished->get(), "a.safetensors", ChecksumOf("1234")).ok());
  EXPECT_TRUE(output.Create("b.safetensors", 4).ok());
  EXPECT_TRUE(output.Add("config.json", "{}").ok());
  return output.Abandon(error);
}

TEST_F(OutputDirectoryTest, Abandon_AnErrorThatMayPass_KeepsFinishedFilesForTheNextExport) {
  const absl::Status told = Fail(path_, kIdentity, MakeError(Reason::kNoSpace, "full"));
  EXPECT_EQ(ReasonOf(told), Reason::kNoSpace);
  EXPECT_NE(told.message().find("2 files are finished and kept in"), absl::string_view::npos) << told;
  EXPECT_NE(NextActionOf(told).find("Run the same command again"), std::string::npos);
  EXPECT_EQ(Names(), (std::vector<std::string>{Finished("{}", "config.json"), Finished("1234", "a.safetensors")}));
  OutputDirectory output(path_, kIdentity);
  ASSERT_TRUE(output.Open(NoName).ok());
  EXPECT_FALSE(Takes(output, "b.safetensors"));
  EXPECT_TRUE(Takes(output, "a.safetensors"));
  EXPECT_FALSE(Takes(output, "a.safetensors")) << "it is taken";
  ASSERT_TRUE(output.Add("index", "{}").ok());
  ASSERT_TRUE(output.Publish().ok());
  EXPECT_EQ(Get("a.safetensors"), "1234");
}

TEST_F(OutputDirectoryTest, Abandon_AnErrorThatStays_LeavesNothing) {
  const absl::Status damaged = MakeError(Reason::kChecksumMismatch, "damaged");
  EXPECT_EQ(Fail(path_, kIdentity, damaged), damaged);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(OutputDirectoryTest, Open_FinishedFilesOfAnotherExport_AreRemoved) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  OutputDirectory output(path_, "fedcba9876543210fedcba9876543210");
  ASSERT_TRUE(output.Open(NoName).ok());
  EXPECT_FALSE(Takes(output, "a.safetensors"));
  EXPECT_TRUE(Names().empty());
}

TEST_F(OutputDirectoryTest, TakeFinished_FileOfAnotherSizeOrOtherBytes_IsRemovedAndWrittenAnew) {
  for (const std::string changed : {"12345", "1x34"}) {
    EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
    Put(Finished("1234", "a.safetensors"), changed);
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    EXPECT_FALSE(Takes(output, "a.safetensors")) << changed;
    EXPECT_EQ(Names(), std::vector<std::string>{Finished("{}", "config.json")});
  }
}

TEST_F(OutputDirectoryTest, TakeFinished_LargeFile_IsReadToItsEnd) {
  std::string bytes((9 << 20) + 77, '\0');
  std::mt19937_64 chance(7);
  for (char& byte : bytes) byte = static_cast<char>(chance());
  for (const size_t changed : {bytes.size(), size_t{0}, size_t{5} << 20, bytes.size() - 1}) {
    {
      OutputDirectory output(path_, kIdentity);
      ASSERT_TRUE(output.Open(NoName).ok());
      const auto fd = output.Create("large", bytes.size());
      ASSERT_TRUE(output.Write(fd->get(), "large", 0, bytes).ok());
      ASSERT_TRUE(output.Finish(fd->get(), "large", ChecksumOf(bytes)).ok());
      EXPECT_FALSE(output.Abandon(MakeError(Reason::kInterrupted, "ended")).ok());
    }
    if (changed < bytes.size()) {
      std::fstream file(path_ + "/" + Names().front(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(changed)).put(static_cast<char>(bytes[changed] ^ 1));
    }
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    EXPECT_EQ(Takes(output, "large", bytes.size()), changed == bytes.size()) << changed;
  }
}

TEST_F(OutputDirectoryTest, TakeFinished_IsInterrupted_KeepsTheFile) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    const absl::StatusOr<bool> taken = output.TakeFinished("a.safetensors", 4, [] { return true; });
    EXPECT_EQ(ReasonOf(taken.status()), Reason::kInterrupted);
    EXPECT_FALSE(output.Abandon(taken.status()).ok());
  }
  EXPECT_EQ(Names().size(), 2u);
}

// Its final name may be one that somebody uses already.
TEST_F(OutputDirectoryTest, TakeFinished_ChangedFileHasItsFinalNameToo_IsRefused) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  GiveName("1234", "a.safetensors");
  Put("a.safetensors", "mine");
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    EXPECT_EQ(ReasonOf(output.TakeFinished("a.safetensors", 4, nullptr).status()), Reason::kOutputExists);
  }
  EXPECT_EQ(Get("a.safetensors"), "mine");
}

TEST_F(OutputDirectoryTest, Abandon_BeforeFilesWereTakenOver_KeepsThemToo) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(NoName).ok());
    EXPECT_FALSE(output.Abandon(MakeError(Reason::kInterrupted, "ended")).ok());
  }
  EXPECT_EQ(Names().size(), 2u);
}

TEST_F(OutputDirectoryTest, Open_ExportWasKilledWhileItGaveNames_GoesOn) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  GiveName("1234", "a.safetensors");
  OutputDirectory output(path_, kIdentity);
  ASSERT_TRUE(output.Open(NoName).ok());
  EXPECT_TRUE(Takes(output, "a.safetensors"));
  ASSERT_TRUE(output.Add("index", "{}").ok());
  ASSERT_TRUE(output.Publish().ok());
}

TEST_F(OutputDirectoryTest, Open_SmallFileHasItsNameAlready_GoesOn) {
  const auto is_output = [](std::string_view name) { return name == "config.json"; };
  std::ofstream(above_ + "/like.json") << "{}";
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  GiveName("1234", "a.safetensors");
  GiveName("{}", "config.json");
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(is_output).ok());
    EXPECT_TRUE(Takes(output, "a.safetensors"));
    EXPECT_EQ(ReasonOf(output.Add("config.json", "[]")), Reason::kOutputExists) << "it is what --like had";
  }
  EXPECT_EQ(Get("config.json"), "{}");
  {
    OutputDirectory output(path_, kIdentity);
    ASSERT_TRUE(output.Open(is_output).ok());
    EXPECT_TRUE(Takes(output, "a.safetensors"));
    ASSERT_TRUE(output.Copy("config.json", above_ + "/like.json").ok());
    ASSERT_TRUE(output.Add("index", "{}").ok());
    ASSERT_TRUE(output.Publish().ok());
  }
  EXPECT_EQ(Names(), (std::vector<std::string>{"a.safetensors", "config.json", "index"}));
}

TEST_F(OutputDirectoryTest, Open_NamesOfAnotherExportThatWasKilled_RefusesAndKeepsWhatItGoesOnWith) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  GiveName("1234", "a.safetensors");
  EXPECT_EQ(ReasonOf(OutputDirectory(path_, "fedcba9876543210fedcba9876543210").Open(NoName)), Reason::kOutputExists);
  OutputDirectory output(path_, kIdentity);
  ASSERT_TRUE(output.Open(NoName).ok());
  EXPECT_TRUE(Takes(output, "a.safetensors"));
}

// It has removed some of its temporary names, so it cannot go on, and need not.
TEST_F(OutputDirectoryTest, Open_ExportWasKilledWhenItWasComplete_RemovesTheOtherTemporaryNames) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  GiveName("1234", "a.safetensors");
  GiveName("{}", "config.json");
  std::filesystem::remove(path_ + "/" + Finished("1234", "a.safetensors"));
  EXPECT_EQ(ReasonOf(OutputDirectory(path_, kIdentity).Open(NoName)), Reason::kOutputExists);
  EXPECT_EQ(Names(), (std::vector<std::string>{"a.safetensors", "config.json"}));
}

TEST_F(OutputDirectoryTest, Open_NameIsTakenByAnotherFile_RefusesAndKeepsWhatIsFinished) {
  EXPECT_FALSE(Fail(path_, kIdentity, MakeError(Reason::kInterrupted, "ended")).ok());
  Put("a.safetensors", "mine");
  EXPECT_EQ(ReasonOf(OutputDirectory(path_, kIdentity).Open(NoName)), Reason::kOutputExists);
  EXPECT_EQ(Names().size(), 3u);
  EXPECT_EQ(Get("a.safetensors"), "mine");
}

TEST_F(OutputDirectoryTest, Copy_OfAFile_HasItsBytes) {
  const std::string bytes(3 << 20, 'x');
  std::ofstream(above_ + "/tokenizer.json") << bytes << "end";
  OutputDirectory output(path_, kIdentity);
  ASSERT_TRUE(output.Open(NoName).ok());
  ASSERT_TRUE(output.Copy("tokenizer.json", above_ + "/tokenizer.json").ok());
  EXPECT_FALSE(output.Copy("other", above_ + "/none").ok());
  ASSERT_TRUE(output.Publish().ok());
  EXPECT_EQ(Get("tokenizer.json"), bytes + "end");
}

}  // namespace
}  // namespace cairn
