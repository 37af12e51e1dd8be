#include "foreign/read/source/plain_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

class PlainFileTest : public testing::Test {
 protected:
  PlainFileTest() { std::filesystem::create_directories(testing::TempDir()); }
  ~PlainFileTest() override { std::filesystem::remove(path_); }

  absl::StatusOr<PlainFile> ReadBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto file = ForeignFile::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return ReadPlainFile(*file, "the file");
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/plain-", RandomToken(6));
};

TEST_F(PlainFileTest, ReadPlainFile_HeadersOfAnyLength_AreWhatIsInTheFile) {
  for (const size_t count : {size_t{1}, size_t{100}, size_t{5000}}) {
    std::vector<PlainTensor> tensors(count);
    for (size_t i = 0; i < count; ++i) tensors[i] = {absl::StrCat("tensor.", 100000 + i), DType::kInt16, {3}, 0, 0};
    const std::string header = RenderPlainHeader(tensors);
    EXPECT_EQ(header.size() > (128 << 10), count == 5000) << "one of them takes a second read";
    const auto read = ReadBytes(header + std::string(count * 6, 'x'));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->bytes, header);
    ASSERT_EQ(read->header.tensors.size(), count);
    EXPECT_EQ(read->header.tensors.back().name, tensors.back().name);
    EXPECT_EQ(read->header.tensors.back().end, count * 6);
  }
}

TEST_F(PlainFileTest, ReadPlainFile_NoSuchFile_IsRefusedByItsName) {
  const std::string header = RenderPlainHeader(std::vector<PlainTensor>{{"a", DType::kInt16, {3}, 0, 0}});
  for (const std::string& bytes : {std::string(), std::string("1234"), std::string(8, '\xff') + "{}",
                                   header.substr(0, header.size() - 1), std::string(200 << 10, 'x')}) {
    const absl::Status refused = ReadBytes(bytes).status();
    EXPECT_TRUE(HasReason(refused, Reason::kBadSafetensors)) << bytes.size() << ": " << refused;
    EXPECT_NE(refused.message().find("the file"), std::string::npos) << refused;
    EXPECT_EQ(MetadataOf(refused)["file"], std::filesystem::canonical(path_).string());
  }
  EXPECT_TRUE(HasReason(ReadBytes(header).status(), Reason::kFileTruncated)) << "without the tensor's bytes";
}

}  // namespace
}  // namespace cairn
