#include "corpus/indexed/indexed_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class IndexedWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/indexed-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  size_t Files() const {
    const std::filesystem::directory_iterator files(directory_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  std::string directory_;
};

// Megatron's own builder makes these bytes of these documents.
TEST_F(IndexedWriterTest, Write_FourDocuments_EqualMegatronsBytes) {
  auto writer = IndexedWriter::Create(Path("g"), {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint32_t> one = {1, 2, 3, 4, 5}, three = {6}, four = {7, 8, 9, 10};
  const std::vector<int32_t> lengths_one = {3, 2}, lengths_three = {1}, lengths_four = {4};
  ASSERT_TRUE((*writer)->AddDocument(one, lengths_one).ok());
  ASSERT_TRUE((*writer)->AddDocument({}, {}).ok());
  ASSERT_TRUE((*writer)->AddDocument(three, lengths_three).ok());
  ASSERT_TRUE((*writer)->AddDocument(four, lengths_four).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("g.bin")));
  const absl::Status status = (*writer)->Finish();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(absl::BytesToHexString(ReadAll(Path("g.bin"))), "0100020003000400050006000700080009000a00");
  EXPECT_EQ(absl::BytesToHexString(ReadAll(Path("g.idx"))),
            "4d4d494449445800000100000000000000080400000000000000050000000000000003000000020000000100000004000000"
            "000000000000000006000000000000000a000000000000000c0000000000000000000000000000000200000000000000020000"
            "000000000003000000000000000400000000000000");
  writer->reset();
  EXPECT_EQ(Files(), 2u);
}

TEST_F(IndexedWriterTest, Write_NoDocument_GivesOneIndex) {
  auto writer = IndexedWriter::Create(Path("e"), {IndexedDtype::kInt32, false});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_EQ(ReadAll(Path("e.bin")), "");
  EXPECT_EQ(ReadAll(Path("e.idx")), EncodeIndexHeader({IndexedDtype::kInt32, 0, 1}) + std::string(8, '\0'));
}

TEST_F(IndexedWriterTest, Write_Multimodal_ModesFollow) {
  auto writer = IndexedWriter::Create(Path("m"), {IndexedDtype::kInt64, true});
  ASSERT_TRUE(writer.ok());
  const std::vector<uint32_t> tokens = {4'000'000'000u, 1};
  const std::vector<int32_t> lengths = {1, 1};
  const std::vector<int8_t> modes = {0, 1};
  EXPECT_TRUE(HasReason((*writer)->AddDocument(tokens, lengths), Reason::kBadRequest));
  ASSERT_TRUE((*writer)->AddDocument(tokens, lengths, modes).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const std::string idx = ReadAll(Path("m.idx"));
  ASSERT_EQ(idx.size(), kIndexHeaderBytes + 2 * 12 + 2 * 8 + 2);
  EXPECT_EQ(idx.substr(idx.size() - 2), std::string("\0\1", 2));
}

TEST_F(IndexedWriterTest, Write_Unfinished_LeavesNothing) {
  {
    auto writer = IndexedWriter::Create(Path("u"), {});
    ASSERT_TRUE(writer.ok());
    const std::vector<uint32_t> tokens(3'000'000, 7);
    const std::vector<int32_t> lengths = {3'000'000};
    ASSERT_TRUE((*writer)->AddDocument(tokens, lengths).ok());
  }
  EXPECT_EQ(Files(), 0u);
}

TEST_F(IndexedWriterTest, Write_WrongInput_NamesIt) {
  auto writer = IndexedWriter::Create(Path("w"), {});
  ASSERT_TRUE(writer.ok());
  const std::vector<uint32_t> large = {1, 65536};
  const std::vector<int32_t> two = {2}, three = {3}, negative = {3, -1};
  const absl::Status status = (*writer)->AddDocument(large, two);
  EXPECT_TRUE(HasReason(status, Reason::kBadRequest));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("65536"));
  const std::vector<uint32_t> small = {1, 2};
  EXPECT_TRUE(HasReason((*writer)->AddDocument(small, three), Reason::kBadRequest));
  EXPECT_TRUE(HasReason((*writer)->AddDocument(small, negative), Reason::kBadRequest));
  EXPECT_EQ((*writer)->documents(), 0u);
  std::ofstream(Path("file")) << "";
  EXPECT_TRUE(HasReason(IndexedWriter::Create(Path("file/such/p"), {}).status(), Reason::kStorageError));
}

// This is more than the spools and buffers hold in memory.
TEST_F(IndexedWriterTest, Write_ManyDocuments_EqualAnOracle) {
  auto writer = IndexedWriter::Create(Path("many"), {IndexedDtype::kInt32, false});
  ASSERT_TRUE(writer.ok());
  std::string bin, lengths_bytes, pointers, documents(8, '\0');
  int64_t sequences = 0;
  const auto append = [](std::string& to, auto value) { to.append(reinterpret_cast<char*>(&value), sizeof value); };
  uint32_t state = 1;
  for (int document = 0; document < 150'000; ++document) {
    std::vector<uint32_t> tokens;
    std::vector<int32_t> lengths;
    for (uint32_t s = 0; s < state % 3; ++s) {
      lengths.push_back(static_cast<int32_t>(1 + (state >> 8) % 20));
      append(lengths_bytes, lengths.back());
      append(pointers, static_cast<int64_t>(bin.size()));
      for (int32_t t = 0; t < lengths.back(); ++t) {
        tokens.push_back(state >> 2);
        append(bin, state >> 2);
      }
      ++sequences;
    }
    append(documents, sequences);
    state = state * 1664525 + 1013904223;
    ASSERT_TRUE((*writer)->AddDocument(tokens, lengths).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(ReadAll(Path("many.bin")) == bin);
  EXPECT_TRUE(ReadAll(Path("many.idx")) ==
              EncodeIndexHeader({IndexedDtype::kInt32, static_cast<uint64_t>(sequences), 150'001}) + lengths_bytes +
                  pointers + documents);
}

}  // namespace
}  // namespace cairn::corpus
