#include "corpus/pipeline/vocabulary_measure.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/tokenizer/null_tokenizer.h"

namespace cairn::corpus {
namespace {

class VocabularyMeasureTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& content) {
    const std::string path = testing::TempDir() + "/measure-" + std::to_string(getpid()) + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  const NullTokenizer numbers_{100};
};

TEST_F(VocabularyMeasureTest, MeasureText_SeveralFiles_CountsWordsTokensAndUse) {
  const NamedText text = {"numbers", {File("a", "1 2 3\n4\n\n"), File("b", "1 99")}};
  for (const int threads : {1, 3}) {
    const auto measure = MeasureText(numbers_, text, {.threads = threads});
    ASSERT_TRUE(measure.ok()) << measure.status();
    EXPECT_EQ(measure->bytes, 10u);
    EXPECT_EQ(measure->words, 6u);
    EXPECT_EQ(measure->tokens, 6u);
    EXPECT_EQ(measure->used.size(), 101u);
    for (size_t id = 0; id < 101; ++id) EXPECT_EQ(measure->used[id], (id >= 1 && id <= 4) || id == 99) << id;
  }
}

TEST_F(VocabularyMeasureTest, MeasureText_EmptyText_HasNoRates) {
  const auto measure = MeasureText(numbers_, {"empty", {File("e", "\n\n")}}, {});
  ASSERT_TRUE(measure.ok()) << measure.status();
  EXPECT_EQ(measure->bytes_per_token(), 0);
  EXPECT_EQ(measure->tokens_per_word(), 0);
}

TEST_F(VocabularyMeasureTest, MeasureText_AnErrorOrAnInterrupt_EndsIt) {
  const NamedText bad = {"bad", {File("c", "1 2\nno number\n")}};
  EXPECT_TRUE(HasReason(MeasureText(numbers_, bad, {.threads = 2}).status(), Reason::kBadRequest));
  const NamedText missing = {"missing", {File("d", "") + "-none"}};
  EXPECT_TRUE(HasReason(MeasureText(numbers_, missing, {}).status(), Reason::kInputUnreadable));
  const MeasureOptions stopped = {.progress = [](uint64_t) { return false; }};
  EXPECT_TRUE(HasReason(MeasureText(numbers_, {"x", {File("f", "1\n")}}, stopped).status(), Reason::kInterrupted));
}

}  // namespace
}  // namespace cairn::corpus
