#include "corpus/bpe/merge_veto.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

TEST(MergeVeto, MakeVeto_SeveralPatterns_RefusesWhatAnyOneFinds) {
  const auto veto = MakeVeto({"[0-9]$", "\uFFFD"});
  ASSERT_TRUE(veto.ok()) << veto.status();
  EXPECT_TRUE(*(*veto)("a1"));
  EXPECT_FALSE(*(*veto)("1a"));
  EXPECT_TRUE(*(*veto)("\xE4\xB8"));  // a part of a character
  EXPECT_FALSE(*(*veto)("\xE4\xB8\xAD"));
  EXPECT_FALSE(*(*veto)(""));
}

TEST(MergeVeto, MakeVeto_NoPatterns_IsNull) {
  const auto veto = MakeVeto({});
  ASSERT_TRUE(veto.ok());
  EXPECT_FALSE(*veto);
}

TEST(MergeVeto, MakeVeto_BadPattern_IsRefused) {
  EXPECT_TRUE(HasReason(MakeVeto({"a", "("}).status(), Reason::kBadPattern));
}

TEST(MergeVeto, SuperwordVetoes_CountWordsAndFindColons) {
  const auto veto = MakeVeto(SuperwordVetoes());
  ASSERT_TRUE(veto.ok()) << veto.status();
  for (const char* kept : {" of the", " one two three four", "a:b", ":", " :", "  one  two  three  four  ", "\none"}) {
    EXPECT_FALSE(*(*veto)(kept)) << kept;
  }
  for (const char* refused : {" one two three four five", "1 2 3 4 5", ": ", "that is: a"}) {
    EXPECT_TRUE(*(*veto)(refused)) << refused;
  }
}

}  // namespace
}  // namespace cairn::corpus
