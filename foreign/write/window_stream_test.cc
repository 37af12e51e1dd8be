#include "foreign/write/window_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "foreign/write/export_output.h"
#include "foreign/write/output_directory.h"

namespace cairn {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string Noise(uint64_t size, std::mt19937_64& chance) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(chance());
  return bytes;
}

class WindowStreamTest : public testing::Test {
 protected:
  WindowStreamTest() {
    EXPECT_TRUE(output_.Open([](std::string_view) { return false; }).ok());
  }
  ~WindowStreamTest() override { std::filesystem::remove_all(path_); }

  // Writes the bytes of a file in pieces of these sizes, in turns, and returns what then stands in the file.
  std::string Written(WindowStream& stream, const std::string& name, const std::string& bytes,
                      const std::vector<uint64_t>& sizes, uint64_t step) {
    const auto written = output_.Begin(name, bytes.size());
    EXPECT_TRUE(written.ok());
    stream.Begin(**written);
    uint64_t at = 0;
    for (size_t i = 0; at < bytes.size(); ++i) {
      for (uint64_t rest = std::min(sizes[i % sizes.size()], bytes.size() - at); rest > 0;) {
        if (stream.room() == 0) {
          EXPECT_TRUE(stream.Flush().ok());
        }
        EXPECT_EQ(stream.origin() % step, 0);
        EXPECT_EQ(stream.origin() + stream.filled(), at);
        const uint64_t size = std::min(rest, stream.room());
        std::copy_n(bytes.data() + at, size, stream.data() + stream.filled());
        stream.Grow(size);
        at += size;
        rest -= size;
      }
    }
    EXPECT_TRUE(stream.End().ok());
    EXPECT_EQ(stream.crc32c(), Crc32c(bytes.data(), bytes.size())) << name;
    EXPECT_TRUE((*written)->Finish(stream.crc32c()).ok());
    const std::string checksum = absl::StrCat(absl::Hex(stream.crc32c(), absl::kZeroPad8));
    std::ifstream file(absl::StrCat(path_, "/.tmp-export-done-1234-", checksum, "-", name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  const std::string path_ = testing::TempDir() + "/stream-" + RandomToken(8);
  OutputDirectory output_{path_, "1234"};
};

TEST_F(WindowStreamTest, Files_OfAnySizesInAnyPieces_AreWhatWasPutIn) {
  const auto seed = absl::Uniform<uint64_t>(absl::BitGen());
  SCOPED_TRACE(seed);
  std::mt19937_64 chance(seed);
  for (const uint64_t step : {kIoAlignment, 4 * kIoAlignment}) {
    WindowStream stream;
    ASSERT_TRUE(stream.Allocate(3 * kIoAlignment, step).ok());
    for (const uint64_t size : {1, 4095, 4096, 4097, 16384, 16385, 500'000}) {
      const std::string bytes = Noise(size, chance);
      const std::vector<uint64_t> pieces = {1 + chance() % 20'000, 1 + chance() % 100, 4096};
      EXPECT_EQ(Written(stream, absl::StrCat("file-", step, "-", size), bytes, pieces, step), bytes) << size;
    }
  }
}

// The thread that writes takes several pieces of a window.
TEST_F(WindowStreamTest, File_OfLargeWindows_IsWhatWasPutIn) {
  std::mt19937_64 chance(5);
  WindowStream stream;
  ASSERT_TRUE(stream.Allocate(20 * kMiB, kOutputPieceBytes).ok());
  const std::string bytes = Noise(50 * kMiB + 77, chance);
  EXPECT_TRUE(Written(stream, "large", bytes, {7 * kMiB + 3}, kOutputPieceBytes) == bytes);
}

TEST_F(WindowStreamTest, Flush_DiskIsFull_AnErrorComesByTheEnd) {
  class Full : public OutputFile {
    absl::Status Write(uint64_t, std::string_view) override { return MakeError(Reason::kNoSpace, "full"); }
    absl::Status Finish(uint32_t) override { return absl::OkStatus(); }
  };
  WindowStream stream;
  ASSERT_TRUE(stream.Allocate(kIoAlignment, kIoAlignment).ok());
  Full full;
  stream.Begin(full);
  stream.Grow(stream.room());
  absl::Status status = stream.Flush();
  status.Update(stream.End());
  EXPECT_EQ(ReasonOf(status), Reason::kNoSpace);
}

}  // namespace
}  // namespace cairn
