#include "corpus/io/input_part.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

class InputPartTest : public testing::Test {
 protected:
  InputPartTest() {
    directory_ = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(directory_);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string Read(const InputPiece& piece) {
    auto source = OpenPiece(piece, {});
    EXPECT_TRUE(source.ok()) << source.status();
    AlignedBuffer buffer(4096);
    std::string text;
    while (source.ok()) {
      const auto count = (*source)->Read(buffer.data(), buffer.size());
      EXPECT_TRUE(count.ok()) << count.status();
      if (!count.ok() || *count == 0) break;
      text.append(buffer.data(), *count);
    }
    return text;
  }

  std::string directory_;
};

// As Python's text mode sees lines, written in another way than the code: one step for each byte.
std::vector<std::string> LinesWithEnds(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    line += text[i];
    const bool ends = text[i] == '\n' || (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n'));
    if (ends) lines.push_back(std::exchange(line, ""));
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

TEST_F(InputPartTest, FindPart_AnyNumberOfParts_PartsAreWholeLinesAndTogetherTheInputs) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::string> paths;
    std::vector<std::string> expected;
    const auto files = 1 + random() % 4;
    for (uint32_t i = 0; i < files; ++i) {
      std::string text;
      for (auto size = random() % 40; size > 0; --size) text += "ab\n\r"[random() % 4];
      for (const std::string& line : LinesWithEnds(text)) expected.push_back(line);
      paths.push_back(Write("file" + std::to_string(i), text));
    }
    const auto of = static_cast<uint32_t>(1 + random() % 9);
    std::vector<std::string> lines;
    for (uint32_t number = 1; number <= of; ++number) {
      const auto part = FindPart(paths, {number, of}, [](const RangedInput& input, uint64_t offset) {
        return FirstLineFrom(input, offset, '\n', true);
      });
      ASSERT_TRUE(part.ok()) << part.status();
      for (const InputPiece& piece : part->pieces) {
        for (const std::string& line : LinesWithEnds(Read(piece))) lines.push_back(line);
      }
    }
    EXPECT_EQ(lines, expected);
  }
}

TEST_F(InputPartTest, FindPart_CompressedInputs_EachIsWholeInOnePart) {
  std::vector<std::string> paths;
  for (int i = 0; i < 7; ++i)
    paths.push_back(Write(std::to_string(i) + ".gz", std::string(static_cast<size_t>(i), 'x')));
  std::vector<std::string> found;
  for (uint32_t number = 1; number <= 3; ++number) {
    const auto part = FindPart(paths, {number, 3}, [](const RangedInput&, uint64_t offset) { return offset; });
    ASSERT_TRUE(part.ok()) << part.status();
    for (const InputPiece& piece : part->pieces) {
      EXPECT_TRUE(piece.whole());
      found.push_back(piece.path);
    }
  }
  EXPECT_EQ(found, paths);
}

TEST_F(InputPartTest, FindPart_AnInputGrew_TheDigestDiffers) {
  const std::string path = Write("file", "one\n");
  const auto before = FindPart({path}, {1, 2}, nullptr);
  Write("file", "one\ntwo\n");
  const auto after = FindPart({path}, {2, 2}, nullptr);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_NE(before->all, after->all);
}

TEST_F(InputPartTest, OpenPiece_TheInputBecameShorter_Fails) {
  InputPiece piece(Write("file", "one\ntwo\n"));
  piece.end = 100;
  auto source = OpenPiece(piece, {});
  ASSERT_TRUE(source.ok()) << source.status();
  AlignedBuffer buffer(4096);
  absl::StatusOr<size_t> count = 1;
  while (count.ok() && *count > 0) count = (*source)->Read(buffer.data(), buffer.size());
  EXPECT_TRUE(HasReason(count.status(), Reason::kInputUnreadable)) << count.status();
}

TEST_F(InputPartTest, ParsePart_NoPart_IsRefused) {
  for (const char* text : {"", "3", "0/4", "5/4", "1/0", "a/b", "-1/4", "1/99999", "1/2/3"}) {
    EXPECT_TRUE(HasReason(ParsePart(text).status(), Reason::kBadRequest)) << text;
  }
  ASSERT_TRUE(ParsePart("4/4").ok());
  EXPECT_EQ(ParsePart("4/4")->of, 4u);
}

}  // namespace
}  // namespace cairn::corpus
