#include "corpus/punkt/punkt_splitter.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "corpus/punkt/icu_splitter.h"

namespace cairn::corpus {
namespace {

using Sentences = std::vector<std::string>;

PunktModel Model() {
  auto model = ParsePunktModel({.abbrev_types = "dr\ne.g\nno\n",
                                .sent_starters = "however\r\nthis\n",
                                .collocations = "##number##\tjanuary\nj\tbach",
                                .ortho_context = "he\t46\nsaid\t32\nsmith\t4\n"},
                               "model");
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

Sentences SplitOf(std::string_view text) {
  const PunktModel model = Model();
  std::vector<std::string_view> sentences;
  PunktSplitter(model).Split(text, sentences);
  return Sentences(sentences.begin(), sentences.end());
}

TEST(PunktSplitterTest, Split_MarksAndBlanks_EndSentences) {
  EXPECT_EQ(SplitOf("One. Two! Three?  Four"), (Sentences{"One.", "Two!", "Three?", "Four"}));
  EXPECT_EQ(SplitOf(""), Sentences{});
  EXPECT_EQ(SplitOf(" \n"), Sentences{});
  EXPECT_EQ(SplitOf("One.\n\n  Two. \n"), (Sentences{"One.", "Two."}));
  EXPECT_EQ(SplitOf("Version 1.5 it is."), Sentences{"Version 1.5 it is."});
}

TEST(PunktSplitterTest, Split_Abbreviations_EndNoSentence) {
  EXPECT_EQ(SplitOf("Dr. Smith came. He left."), (Sentences{"Dr. Smith came.", "He left."}));
  EXPECT_EQ(SplitOf("He met the dr. However, it rained."), (Sentences{"He met the dr.", "However, it rained."}));
  EXPECT_EQ(SplitOf("Things, e.g. apples. More."), (Sentences{"Things, e.g. apples.", "More."}));
}

TEST(PunktSplitterTest, Split_InitialsNumbersCollocations_EndNoSentence) {
  EXPECT_EQ(SplitOf("It was J. Bach. Yes."), (Sentences{"It was J. Bach.", "Yes."}));
  EXPECT_EQ(SplitOf("On 1. January. Yes."), (Sentences{"On 1. January.", "Yes."}));
}

TEST(PunktSplitterTest, Split_ClosingMarks_BelongToTheSentenceBefore) {
  EXPECT_EQ(SplitOf("(One.) Two."), (Sentences{"(One.)", "Two."}));
  EXPECT_EQ(SplitOf("\u201COne.\u201D Two."), (Sentences{"\u201COne.\u201D", "Two."}));
}

TEST(PunktModelTest, ParsePunktModel_DamagedFiles_AreRefused) {
  const absl::Status status = ParsePunktModel({.ortho_context = "he\t46\nsaid\n"}, "m").status();
  EXPECT_TRUE(HasReason(status, Reason::kBadTokenizer));
  EXPECT_NE(status.message().find("m/ortho_context.tab: line 2"), std::string_view::npos) << status;
  EXPECT_TRUE(HasReason(ParsePunktModel({.collocations = "a"}, "m").status(), Reason::kBadTokenizer));
  EXPECT_TRUE(HasReason(ParsePunktModel({.abbrev_types = "\xFF"}, "m").status(), Reason::kBadTokenizer));
  EXPECT_TRUE(HasReason(LoadPunktModel("/nonexistent").status(), Reason::kInputUnreadable));
}

TEST(IcuSplitterTest, Split_SeveralSentences_AreCut) {
  auto splitter = IcuSplitter::Create();
  ASSERT_TRUE(splitter.ok()) << splitter.status();
  std::vector<std::string_view> sentences;
  (*splitter)->Split(" One is here. Zwei \u00FC\u3002 \u4E2D\u6587\u3002\u4E2D ", sentences);
  EXPECT_EQ(Sentences(sentences.begin(), sentences.end()),
            (Sentences{"One is here.", "Zwei \u00FC\u3002", "\u4E2D\u6587\u3002", "\u4E2D"}));
}

}  // namespace
}  // namespace cairn::corpus
