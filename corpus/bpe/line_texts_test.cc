#include "corpus/bpe/line_texts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/special_matcher.h"

namespace cairn::corpus {
namespace {

constexpr size_t kPage = 4096;

class LineTextsTest : public testing::Test {
 protected:
  // Reads `content` in blocks of a page. Each text is followed by "|"; bad lines go to `bad_` if `skip`.
  absl::StatusOr<std::string> Read(const std::string& content, const LineTextOptions& options, bool skip = false) {
    const std::string path = testing::TempDir() + "/line-texts-" + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << content;
    BlockReader::Options reading = BlocksOfLines(options, {path});
    reading.block_bytes = kPage;
    reading.most_bytes = std::max(kPage, options.max_line + 1);
    BlockReader reader(reading, *Pretokenizer::Named("gpt2"), SpecialMatcher());
    LineTexts texts(options);
    std::string found;
    for (TextBlock block;;) {
      CAIRN_ASSIGN_OR_RETURN(block, reader.Next(std::move(block)));
      if (block.at_end()) return found;
      const absl::Status status = texts.ForEach(block, "FILE", skip ? &bad_ : nullptr, [&](std::string_view text) {
        found += std::string(text) + "|";
        return absl::OkStatus();
      });
      CAIRN_RETURN_IF_ERROR(status);
    }
  }

  BadLines bad_;
};

TEST_F(LineTextsTest, ForEach_PlainLines_KeepTheirNewlines) {
  EXPECT_EQ(Read("a\n\nb", {}).value(), "a\n|\n|b|");
  EXPECT_EQ(Read("", {}).value(), "");
}

TEST_F(LineTextsTest, ForEach_JsonLines_GiveTheTextUnderTheKey) {
  const LineTextOptions json = {.unit = TextUnit::kJson, .json_key = "t"};
  EXPECT_EQ(Read("{\"t\": \"a\\nb\"}\n \r\n{\"x\": 1, \"t\": \"\"}", json).value(), "a\nb|||");
  for (const char* line : {"{\"t\": 1}", "{\"u\": \"a\"}", "[]", "{"}) {
    const absl::Status status = Read(std::string("{\"t\": \"a\"}\n") + line + "\n", json).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadJsonLine)) << line;
    EXPECT_EQ(std::string(status.message()).rfind("FILE: line 2: ", 0), 0u) << status;
  }
}

// The long line begins at each place of a block, and the lines behind it keep their numbers.
TEST_F(LineTextsTest, ForEach_ALineIsTooLong_IsNamedOrLeftOut) {
  for (size_t most : {20, 64, 100}) {
    for (size_t length = most - 12; length < most + 150; ++length) {
      if (length > most + 3) length += 20;
      for (size_t before = 0; before < 70; before += 7) {
        const std::string begin = "{\"t\":\"" + std::string(before % 10, 'b') + "\"}\n";
        const std::string line = "{\"t\":\"" + std::string(length, 'x') + "\"}";
        const LineTextOptions json = {.unit = TextUnit::kJson, .json_key = "t", .max_line = most};
        std::string content;
        for (size_t i = 0; i < before / 10 + 1; ++i) content += begin;
        const uint64_t number = before / 10 + 2;
        content += line + "\n{\"t\":\"end\"}\n";
        const auto read = Read(content, json);
        ASSERT_EQ(read.ok(), line.size() <= most) << line.size() << " of " << most;
        if (read.ok()) continue;
        EXPECT_TRUE(HasReason(read.status(), Reason::kBadJsonLine)) << read.status();
        EXPECT_EQ(MetadataOf(read.status()).at("line"), std::to_string(number));
        bad_ = BadLines();
        const auto rest = Read(content, json, true);
        ASSERT_TRUE(rest.ok()) << rest.status();
        EXPECT_EQ(rest->substr(rest->size() - 5), "|end|");
        EXPECT_EQ(rest->find('x'), std::string::npos);
        EXPECT_EQ(bad_.size(), 1u);
      }
    }
  }
}

// Such lines are not held: what is read of them is dropped, up to the byte behind their end.
TEST_F(LineTextsTest, ForEach_ALineIsLongerThanABlock_IsNamedOrLeftOut) {
  const LineTextOptions json = {.unit = TextUnit::kJson, .json_key = "t", .max_line = 5000};
  for (size_t length = 4 * kPage; length < 5 * kPage; length += 511) {
    const std::string line = "{\"t\":\"" + std::string(length, 'x') + "\"}\n";
    const std::string content = "{\"t\":\"a\"}\n" + line + "{\"t\":\"b\"}\n" + line + line + "{\"t\":\"c\"}";
    EXPECT_EQ(MetadataOf(Read(content, json).status()).at("line"), "2");
    bad_ = BadLines();
    const auto rest = Read(content, json, true);
    ASSERT_TRUE(rest.ok()) << rest.status();
    EXPECT_EQ(*rest, "a|b|c|") << length;
    EXPECT_EQ(bad_.size(), 3u);
    EXPECT_EQ(Read(line.substr(0, length), json, true).value(), "") << "it ends with the file";
  }
}

TEST_F(LineTextsTest, ForEach_APlainLineIsTooLong_IsALimitOfMemory) {
  const absl::Status status = Read("a\n" + std::string(500, 'b') + "\nc\n", {.max_line = 100}).status();
  EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
  EXPECT_EQ(MetadataOf(status).at("line"), "2");
}

}  // namespace
}  // namespace cairn::corpus
