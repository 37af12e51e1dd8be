#include "corpus/wordpiece/wordpiece_vocab.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

WordPieceVocab Parse(std::string_view text, BertDialect dialect = BertDialect::kFast, uint32_t extra = 0) {
  absl::StatusOr<WordPieceVocab> vocab = ParseWordPieceVocab(text, "v.txt", dialect, extra);
  EXPECT_TRUE(vocab.ok()) << vocab.status();
  return *std::move(vocab);
}

TEST(WordPieceVocabTest, Parse_AnyLines_LineNumbersAreIds) {
  const WordPieceVocab vocab = Parse("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n", BertDialect::kFast, 2);
  EXPECT_EQ(vocab.IdOf("hello"), 5u);
  EXPECT_EQ(vocab.IdOf("##s"), 6u);
  EXPECT_EQ(vocab.IdOf("<extra_id_1>"), 8u);
  EXPECT_EQ(vocab.IdOf("none"), std::nullopt);
  EXPECT_EQ(vocab.unk, 1u);
  EXPECT_EQ(vocab.size, 9u);
  EXPECT_EQ(vocab.id_limit, 9u);
}

TEST(WordPieceVocabTest, Parse_MissingSpecialTokens_AreAdded) {
  const WordPieceVocab vocab = Parse("[UNK]\nx");
  EXPECT_EQ(vocab.IdOf("[SEP]"), 2u);
  EXPECT_EQ(vocab.IdOf("[PAD]"), 3u);
  EXPECT_EQ(vocab.IdOf("[CLS]"), 4u);
  EXPECT_EQ(vocab.IdOf("[MASK]"), 5u);
  EXPECT_EQ(vocab.size, 6u);
}

// Hugging Face does so, as was seen with tokenizers 0.23.3.
TEST(WordPieceVocabTest, Parse_RepeatedLines_CountOnceAndTheLastIdWins) {
  const WordPieceVocab vocab = Parse("x\nx\n[UNK]\nhello \n\n##s\n\tworld\r\nfoo", BertDialect::kFast, 100);
  EXPECT_EQ(vocab.IdOf("x"), 1u);
  EXPECT_EQ(vocab.IdOf("hello"), 3u);
  EXPECT_EQ(vocab.IdOf("\tworld"), 6u);
  EXPECT_EQ(vocab.IdOf("foo"), 7u);
  EXPECT_EQ(vocab.IdOf("[SEP]"), 7u);
  EXPECT_EQ(vocab.IdOf("[MASK]"), 10u);
  EXPECT_EQ(vocab.size, 111u);
  EXPECT_EQ(vocab.id_limit, 111u);
}

TEST(WordPieceVocabTest, Parse_Legacy_TrimsBothEndsAndAddsBosAndEos) {
  const WordPieceVocab vocab = Parse("[UNK]\r\n\u3000x \ry", BertDialect::kLegacy);
  EXPECT_EQ(vocab.IdOf("x"), 1u);
  EXPECT_EQ(vocab.IdOf("y"), 2u);
  EXPECT_EQ(vocab.IdOf("[BOS]"), 3u);
  EXPECT_EQ(vocab.IdOf("[EOS]"), 4u);
  EXPECT_EQ(vocab.size, 5u);
}

TEST(WordPieceVocabTest, Parse_NoVocabulary_IsRefused) {
  for (const std::string_view text : {"", "a\nb\n", "[UNK]\n\xFF\n"}) {
    const absl::Status status = ParseWordPieceVocab(text, "v.txt", BertDialect::kFast, 0).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadTokenizer)) << status;
    EXPECT_NE(status.message().find("v.txt"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace cairn::corpus
