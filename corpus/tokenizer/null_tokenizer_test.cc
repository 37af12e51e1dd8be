#include "corpus/tokenizer/null_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NullTokenizerTest, Encode_NumbersBelowTheSize_AreTheirIds) {
  const NullTokenizer tokenizer(7);
  std::vector<uint32_t> ids = {9};
  EXPECT_TRUE(tokenizer.NewEncoder()->Encode("0 6 3", ids).ok());
  EXPECT_THAT(ids, ElementsAre(9, 0, 6, 3));
  EXPECT_EQ(tokenizer.end_of_document(), 7u);
  EXPECT_EQ(tokenizer.vocab_size(), 8u);
}

TEST(NullTokenizerTest, Encode_MostNumbers_TheSizeStillCountsTheEndOfADocument) {
  const NullTokenizer tokenizer(NullTokenizer::kMostNumbers);
  EXPECT_GT(tokenizer.vocab_size(), tokenizer.end_of_document());
}

TEST(NullTokenizerTest, Encode_NotNumbers_AreRefusedAndNoIdIsAdded) {
  const NullTokenizer tokenizer(7);
  for (const std::string text : {"7", "1  2", " 1", "1 ", "-1", "0x1", "1.0", "99999999999", "a"}) {
    std::vector<uint32_t> ids = {9};
    const absl::Status refused = tokenizer.NewEncoder()->Encode(text, ids);
    EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << "'" << text << "': " << refused;
    EXPECT_THAT(ids, ElementsAre(9));
  }
}

TEST(NullTokenizerTest, Encode_HostileWord_IsShownPrintableAndCutBetweenCharacters) {
  const NullTokenizer tokenizer(7);
  std::vector<uint32_t> ids;
  const std::string escape = std::string("\x1b[2J") + "\xff";
  const std::string hostile(tokenizer.NewEncoder()->Encode(escape, ids).message());
  EXPECT_TRUE(IsPrintable(hostile)) << Printable(hostile);
  EXPECT_THAT(hostile, HasSubstr("'\\x1b[2J\\xff' is no number below 7"));
  std::string wide = "x";
  for (int i = 0; i < 100; ++i) wide += "\u20ac";  // of three bytes, so that byte 100 is within one
  const std::string cut(tokenizer.NewEncoder()->Encode(wide, ids).message());
  EXPECT_THAT(cut, HasSubstr("\u20ac' is no number"));
}

}  // namespace
}  // namespace cairn::corpus
