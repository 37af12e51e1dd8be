#include "corpus/wordpiece/wordpiece.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/status/reason.h"
#include "corpus/wordpiece/word_splitter.h"

namespace cairn::corpus {
namespace {

using Ids = std::vector<uint32_t>;

// The ids are [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4.
constexpr std::string_view kVocab =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n##a\na\nhello\n,\n!\n[\n]\n\u4E2D\n\u00E9\n##"
    "\u00E9\n\u1112\n"
    "##\u1161\n##\u11AB\n##\u1112\nb\n##b\nab\n##ab\n.\n\u2019\n<\n";

std::unique_ptr<WordPieceTokenizer> Make(const WordPieceOptions& options = {}) {
  auto tokenizer = WordPieceTokenizer::FromVocabText(kVocab, "vocab", options);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Ids EncodeWith(const WordPieceTokenizer& tokenizer, std::string_view text) {
  Ids ids;
  const absl::Status status = tokenizer.NewEncoder()->Encode(text, ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

TEST(WordPieceTest, Encode_SeveralPiecesFit_CutsGreedily) {
  const auto tokenizer = Make();
  EXPECT_EQ(EncodeWith(*tokenizer, "unaffable"), (Ids{5, 6, 7}));
  EXPECT_EQ(EncodeWith(*tokenizer, "hello, hello!"), (Ids{10, 11, 10, 12}));
  EXPECT_EQ(EncodeWith(*tokenizer, "helloz unaffable"), (Ids{1, 5, 6, 7}));
  EXPECT_EQ(EncodeWith(*tokenizer, ""), Ids{});
  EXPECT_EQ(EncodeWith(*tokenizer, "a\u4E2Da"), (Ids{9, 15, 9}));
}

TEST(WordPieceTest, Encode_SpecialTokensInTheText_BecomeTheirIds) {
  const auto tokenizer = Make({.extra_ids = 100});
  EXPECT_EQ(EncodeWith(*tokenizer, "a[SEP]a [MASK]"), (Ids{9, 3, 9, 4}));
  EXPECT_EQ(EncodeWith(*tokenizer, "[[SEP]] [sep]"), (Ids{13, 3, 14, 13, 1, 14}));
  const uint32_t first_extra = *tokenizer->IdOf("<extra_id_0>");
  EXPECT_EQ(EncodeWith(*tokenizer, "<extra_id_1><extra_id_10>"), (Ids{first_extra + 1, first_extra + 10}));
  EXPECT_EQ(tokenizer->vocab_size(), first_extra + 100);
  EXPECT_EQ(EncodeWith(*Make({.dialect = BertDialect::kLegacy}), "[SEP]"), (Ids{13, 1, 14}));
}

TEST(WordPieceTest, Encode_WordsBeyondTheLimit_AreUnknown) {
  const auto fast = Make({.lower_case = true});
  EXPECT_EQ(EncodeWith(*fast, std::string(100, 'a')).size(), 100u);
  EXPECT_EQ(EncodeWith(*fast, std::string(101, 'a')), Ids{1});
  const auto repeat = [](std::string_view text, int n) {
    std::string result;
    while (n-- > 0) result += text;
    return result;
  };
  EXPECT_EQ(EncodeWith(*fast, repeat("\uD55C", 33)).size(), 99u);  // the limit counts jamo
  EXPECT_EQ(EncodeWith(*fast, repeat("\uD55C", 34)), Ids{1});
  const auto legacy = Make({.dialect = BertDialect::kLegacy});
  EXPECT_EQ(EncodeWith(*legacy, std::string(200, 'a')).size(), 200u);
  EXPECT_EQ(EncodeWith(*legacy, std::string(201, 'a')), Ids{1});
}

TEST(WordPieceTest, Encode_NotUtf8_IsRefused) {
  const auto tokenizer = Make();
  Ids ids = {42};
  const absl::Status status = tokenizer->NewEncoder()->Encode("a\xFF", ids);
  EXPECT_TRUE(HasReason(status, Reason::kInvalidUtf8));
  EXPECT_EQ(ids, Ids{42});
}

TEST(WordPieceTest, Load_MissingFile_IsNamed) {
  const auto status = WordPieceTokenizer::FromVocabFile("/nonexistent/v.txt", {}).status();
  EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << status;
  EXPECT_TRUE(HasReason(WordPieceTokenizer::FromVocabFile("/tmp", {}).status(), Reason::kInputUnreadable));
}

// Compares the scan and the cache with the complete path for the whole text. Any cut at a wrong place shows.
TEST(WordPieceTest, Encode_ScanAndCache_ChangeNothing) {
  const std::vector<std::string> atoms = {"a",
                                          "b",
                                          "ab",
                                          "un",
                                          "hello",
                                          " ",
                                          "  ",
                                          "\t",
                                          "\n",
                                          ",",
                                          "[",
                                          "]",
                                          "SEP",
                                          ".",
                                          "<",
                                          "\u2019",
                                          "\u00E9",
                                          "\u00C9",
                                          "\v",
                                          std::string(1, 0),
                                          "\u4E2D",
                                          "\uD55C",
                                          "\u0301",
                                          "\U0001D165",
                                          "\u302E",
                                          "\u00A0",
                                          "\u03A3",
                                          "\u0391",
                                          "\u2260",
                                          "\x7F",
                                          "\U0001F600",
                                          "\uFFFD",
                                          "abababababababababababababababababab",
                                          "\u0130"};
  std::mt19937 random(11);
  for (const BertDialect dialect : {BertDialect::kFast, BertDialect::kLegacy}) {
    for (const bool lower : {false, true}) {
      const auto tokenizer = Make({.dialect = dialect, .lower_case = lower});
      const auto encoder = tokenizer->NewEncoder();
      WordSplitter splitter(dialect, lower);
      for (int round = 0; round < 4000; ++round) {
        std::string text;
        for (size_t n = random() % 60; n > 0; --n) text += atoms[random() % atoms.size()];
        if (text.find("[SEP]") != text.npos) continue;
        Ids expected, ids;
        for (const WordSplitter::Word& word : splitter.Split(text)) {
          tokenizer->CutWord(splitter.TextOf(word), word.scalars, expected);
        }
        ASSERT_TRUE(encoder->Encode(text, ids).ok());
        ASSERT_EQ(ids, expected) << "round " << round << ": " << text;
      }
    }
  }
}

}  // namespace
}  // namespace cairn::corpus
