#include "corpus/io/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/file/unique_fd.h"
#include "common/resources/testing/address_space.h"
#include "common/status/reason.h"
#include "corpus/io/copied_file.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/output-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  size_t Files() const {
    const fs::directory_iterator files(directory_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }
  static std::string ReadAll(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Checks that neither kind of output takes the place of what stands at `path`.
  void ExpectRefused(const std::string& path, const std::string& kind) const {
    const size_t files = Files();
    for (const absl::Status& status : {OutputFile::Create(path, {}).status(), CopiedFile::Create(path).status()}) {
      EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
      EXPECT_THAT(std::string(status.message()), testing::AllOf(testing::HasSubstr(path), testing::HasSubstr(kind)));
      EXPECT_THAT(NextActionOf(status), testing::HasSubstr("another name"));
    }
    EXPECT_EQ(Files(), files);
  }

  std::string directory_;
};

TEST_F(OutputFileTest, Create_FifoOrLinkToIt_IsRefused) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("fifo", Path("link").c_str()), 0);
  ExpectRefused(Path("fifo"), "a FIFO");
  ExpectRefused(Path("link"), "a FIFO");
  EXPECT_TRUE(fs::is_fifo(Path("fifo")));
  EXPECT_TRUE(fs::is_symlink(Path("link")));
}

TEST_F(OutputFileTest, Create_Socket_IsRefused) {
  // The address of a socket has little room, less than a test's directory may take.
  const UniqueFd directory(open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "/proc/self/fd/" + std::to_string(directory.get()) + "/s";
  std::memcpy(address.sun_path, name.c_str(), name.size());
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ExpectRefused(Path("s"), "a socket");
  EXPECT_TRUE(fs::is_socket(Path("s")));
}

TEST_F(OutputFileTest, Create_Device_IsRefused) {
  if (mknod(Path("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) GTEST_SKIP() << "only root makes devices";
  ExpectRefused(Path("null"), "a device");
  EXPECT_TRUE(fs::is_character_file(Path("null")));
}

TEST_F(OutputFileTest, Create_Directory_IsRefused) {
  fs::create_directory(Path("d"));
  for (const absl::Status& status :
       {OutputFile::Create(Path("d"), {}).status(), CopiedFile::Create(Path("d")).status()}) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(Path("d") + ": it is a directory"));
    EXPECT_EQ(NextActionOf(status), "Give the file's name too: " + Path("d") + "/NAME");
  }
  EXPECT_EQ(Files(), 1u);
}

TEST_F(OutputFileTest, Create_AKilledRunLeftAHiddenFile_RemovesThatAndNoneOfALivingRun) {
  const pid_t child = fork();
  if (child == 0) {
    const auto file = OutputFile::Create(Path("f"), {});
    _exit(file.ok() && (*file)->Append("half").ok() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(Files(), 1u);
  const auto first = OutputFile::Create(Path("f"), {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Files(), 1u) << "one is left";
  const auto second = CopiedFile::Create(Path("f"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Files(), 2u);
  ASSERT_TRUE((*first)->Append("whole").ok());
  EXPECT_TRUE((*first)->Commit().ok());
  EXPECT_EQ(ReadAll(Path("f")), "whole");
}

TEST_F(OutputFileTest, Append_SystemRefusesThreads_TheCallerWrites) {
  if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "the address space cannot be limited here";
  const std::string text(300'000, 'x');
  const LimitedAddressSpace limited(uint64_t{64} << 20);  // for the stacks of a few threads
  std::vector<std::unique_ptr<OutputFile>> files;
  for (int i = 0; i < 60; ++i) {
    auto file = OutputFile::Create(Path(std::to_string(i)), {.buffer_bytes = 8192});
    ASSERT_TRUE(file.ok()) << file.status();
    files.push_back(*std::move(file));
  }
  for (const auto& file : files) {
    ASSERT_TRUE(file->Append(text).ok());
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_TRUE(ReadAll(file->path()) == text);
  }
}

TEST_F(OutputFileTest, Commit_LinkToAFile_ReplacesTheFileAndKeepsTheLink) {
  fs::create_directory(Path("disk"));
  std::ofstream(Path("disk/old")) << "old";
  ASSERT_EQ(symlink("disk/old", Path("link").c_str()), 0);
  for (const char* const text : {"new", "newer"}) {
    auto file = OutputFile::Create(Path("link"), {});
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(text).ok());
    EXPECT_EQ(fs::path((*file)->partial_path()).parent_path(), fs::path(Path("disk"))) << "the disk may be another one";
    ASSERT_TRUE((*file)->Commit().ok());
    EXPECT_TRUE(fs::is_symlink(Path("link")));
    EXPECT_EQ(ReadAll(Path("disk/old")), text);
  }
}

TEST_F(OutputFileTest, RemoveReplaced_Link_RemovesTheFileAndKeepsTheLink) {
  std::ofstream(Path("old")) << "old";
  ASSERT_EQ(symlink("old", Path("link").c_str()), 0);
  ASSERT_TRUE(RemoveReplaced({{Path("link")}}).ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_FALSE(fs::exists(Path("old")));
}

TEST_F(OutputFileTest, Append_StreamIsADescriptor_WritesBehindWhatItHasAndKeepsTheFile) {
  std::ofstream(Path("file")) << "before ";
  const UniqueFd fd(open(Path("file").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const std::string text(100'000, 'x');
  auto file = OutputFile::Create("/dev/fd/" + std::to_string(fd.get()), {.buffer_bytes = 8192, .stream = true});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(text).ok());
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadAll(Path("file")), "before " + text);
  EXPECT_EQ(Files(), 1u);
}

TEST_F(OutputFileTest, Append_StreamIsAFifo_ItsReaderGetsAll) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += std::to_string(i) + "\n";
  std::string read;
  std::thread reader([&] { read = ReadAll(Path("fifo")); });
  {
    auto file = OutputFile::Create(Path("fifo"), {.buffer_bytes = 8192, .stream = true});
    EXPECT_TRUE(file.ok()) << file.status();
    if (file.ok()) {
      EXPECT_TRUE((*file)->Append(text).ok());
      EXPECT_TRUE((*file)->Commit().ok());
    }
  }
  reader.join();
  EXPECT_TRUE(read == text);
  EXPECT_TRUE(fs::is_fifo(Path("fifo")));
}

TEST_F(OutputFileTest, Append_NobodyReadsTheStream_EndsWhenItIsStopped) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd unread(ends[0]), writing(ends[1]);
  const std::atomic<bool> stop = true;
  auto file = OutputFile::Create("/dev/fd/" + std::to_string(writing.get()),
                                 {.buffer_bytes = 8192, .stream = true, .stop = &stop});
  ASSERT_TRUE(file.ok()) << file.status();
  absl::Status status = (*file)->Append(std::string(1 << 20, 'x'));  // more than a pipe takes
  if (status.ok()) status = (*file)->Commit();
  EXPECT_TRUE(HasReason(status, Reason::kInterrupted)) << status;
}

TEST_F(OutputFileTest, Append_StreamIsFull_FailsAndWritesNothingMore) {
  auto file = OutputFile::Create("/dev/full", {.buffer_bytes = 8192, .stream = true});
  ASSERT_TRUE(file.ok()) << file.status();
  absl::Status status = (*file)->Append(std::string(100'000, 'x'));
  if (status.ok()) status = (*file)->Commit();
  EXPECT_TRUE(HasReason(status, Reason::kNoSpace)) << status;
}

// Neighbours in one page keep their bytes, whatever the sizes and the order of writing are.
TEST_F(OutputFileTest, Append_SharedFile_WritesItsRangeAlone) {
  std::mt19937 random(3);
  for (const bool direct : {true, false}) {
    for (int round = 0; round < 40; ++round) {
      std::string expected;
      std::vector<std::pair<uint64_t, std::string>> ranges;
      const size_t count = 1 + random() % 6;
      for (size_t i = 0; i < count; ++i) {
        std::string bytes(random() % (round % 2 == 0 ? 9000 : 60'000), static_cast<char>('a' + i));
        ranges.emplace_back(expected.size(), bytes);
        expected += bytes;
      }
      std::shuffle(ranges.begin(), ranges.end(), random);
      std::ofstream(Path("shared"), std::ios::binary);
      std::vector<std::unique_ptr<OutputFile>> files;  // open at the same time
      for (const auto& [at, bytes] : ranges) {
        auto file = OutputFile::Create(Path("shared"), {.direct = direct, .buffer_bytes = 8192, .at = at});
        ASSERT_TRUE(file.ok()) << file.status();
        files.push_back(*std::move(file));
      }
      for (size_t i = 0; i < count; ++i) {
        const std::string& bytes = ranges[i].second;
        const size_t half = bytes.size() / 2;
        ASSERT_TRUE(files[i]->Append(std::string_view(bytes).substr(0, half)).ok());
        ASSERT_TRUE(files[i]->Append(std::string_view(bytes).substr(half)).ok());
        ASSERT_TRUE(files[i]->Finish().ok());
        EXPECT_EQ(files[i]->bytes(), bytes.size());
      }
      files.clear();
      EXPECT_TRUE(ReadAll(Path("shared")) == expected) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace cairn::corpus
