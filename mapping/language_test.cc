// Tests tokens, statements and patterns: positions, borders, and texts that nobody would write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mapping/lexer.h"
#include "mapping/name_pattern.h"
#include "mapping/parser.h"
#include "mapping/program.h"
#include "mapping/state_key.h"
#include "mapping/suggestion.h"
#include "mapping/symbol_table.h"

namespace cairn::aoa {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Kinds(std::string_view text) {
  SymbolTable symbols;
  std::vector<Token> tokens;
  EXPECT_FALSE(Lex(text, symbols, tokens).has_value());
  std::vector<std::string> kinds;
  for (const Token& token : tokens) kinds.emplace_back(NameOf(token.kind()));
  return kinds;
}

TEST(Lexer, Lex_EveryToken_IsKnown) {
  EXPECT_THAT(Kinds("a->b:[12],c='x'\n"),
              ElementsAre("IDENTIFIER", "RARROW", "IDENTIFIER", "COLON", "LBRACKET", "NUMBER", "RBRACKET", "COMMA",
                          "IDENTIFIER", "EQUAL", "STRING", "NEWLINE"));
  EXPECT_THAT(Kinds("_a.$LAYER_ID*^T \t # the rest -> is ! a comment"), ElementsAre("IDENTIFIER"));
  EXPECT_THAT(Kinds("\r\n\n"), ElementsAre("NEWLINE"));
  EXPECT_THAT(Kinds(""), IsEmpty());
  // A number ends where a name begins: names do not begin with digits.
  EXPECT_THAT(Kinds("0fused"), ElementsAre("NUMBER", "IDENTIFIER"));
}

TEST(Lexer, Lex_Mistake_SaysWhereItStops) {
  SymbolTable symbols;
  std::vector<Token> tokens;
  const auto fault = Lex("a -> \xc3\xa4", symbols, tokens);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->position, 5u);
  EXPECT_EQ(fault->message, "Unexpected character '\xc3\xa4' at position 5");
  EXPECT_THAT(Lex("a -> 'b", symbols, tokens)->message, HasSubstr("never closed"));
  EXPECT_EQ(Lex("-", symbols, tokens)->position, 0u);
}

TEST(Lexer, Lex_AnyText_KeepsColumnsAndQuotes) {
  SymbolTable symbols;
  std::vector<Token> tokens;
  ASSERT_FALSE(Lex("ab -> c, permute='[1]'", symbols, tokens).has_value());
  EXPECT_EQ(tokens[2].column, 6u);
  std::string text;
  for (const Token& token : tokens) AppendToken(token, symbols, text);
  EXPECT_EQ(text, "ab -> c, permute='[1]'");
}

TEST(Program, Add_SeveralStatements_AreCutAndKeepTheUsersText) {
  Program program;
  EXPECT_FALSE(program.AddText("  a -> b \n").fault.has_value());
  EXPECT_FALSE(program.AddText("# only a comment\n\n  c -> d # why\ne -> f\n").fault.has_value());
  EXPECT_TRUE(program.AddText("g -> !").fault.has_value());
  ASSERT_EQ(program.current().size(), 3u);
  EXPECT_EQ(program.UserText(program.current()[0]), "  a -> b \n");
  EXPECT_EQ(program.UserText(program.current()[1]), "c -> d # why");
  EXPECT_EQ(program.Text(program.current()[2]), "e -> f");
}

TEST(Parser, ParseStatement_NamesAndAttributes_AreRead) {
  Program program;
  Diagnostics diagnostics;
  program.AddText("a, b -> c, axis=1, sizes='[1, 2]'");
  const auto statement = ParseStatement(program, program.current()[0], diagnostics);
  ASSERT_TRUE(statement.has_value());
  EXPECT_EQ(statement->left_count, 2u);
  EXPECT_EQ(statement->right_count, 1u);
  EXPECT_EQ(program.symbols().Text(statement->Left(program, 1)), "b");
  EXPECT_EQ(program.symbols().Text(statement->Right(program, 0)), "c");
  ASSERT_EQ(statement->attributes.size(), 2u);
  EXPECT_EQ(statement->attributes[0].key, kAxis);
  EXPECT_TRUE(statement->attributes[1].is_string);
}

TEST(Parser, ParseStatement_Fault_NamesItsPlace) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"a b", "Expected RARROW ('->'), got IDENTIFIER 'b' at pos 1, column 3"},
           {"a ->", "got NEWLINE (the end of the statement) at pos 2"},
           {"a -> b axis=1", "Expected COMMA (','), got IDENTIFIER 'axis' at pos 3"},
           {"a -> b, axis=,", "Unexpected value"},
           {"-> b", "Expected IDENTIFIER"}}) {
    Program program;
    Diagnostics diagnostics;
    program.AddText(text);
    EXPECT_FALSE(ParseStatement(program, program.current()[0], diagnostics).has_value()) << text;
    const auto errors = diagnostics.Render(program, true);
    ASSERT_EQ(errors.size(), 1u) << text;
    EXPECT_THAT(errors[0].message, HasSubstr(message)) << text;
    EXPECT_EQ(errors[0].statement, text);
  }
}

TEST(ParseList, ParseList_NotIntegers_IsRefused) {
  EXPECT_EQ(ParseList(" [ 2,0 , 1 ] "), (Shape{2, 0, 1}));
  EXPECT_EQ(ParseList("[]"), Shape());
  for (const char* wrong :
       {"", "[", "[1", "[1,]", "[,1]", "[-1]", "[1] x", "(1, 0)", "[1 2]", "[9223372036854775808]"}) {
    EXPECT_FALSE(ParseList(wrong).has_value()) << wrong;
  }
}

bool Matches(std::string_view pattern, std::string_view key, NamePattern::Captures* captures = nullptr) {
  NamePattern::Captures mine;
  uint64_t tries = 1 << 20;
  const bool matches = NamePattern(pattern).Match(key, captures == nullptr ? mine : *captures, tries);
  // A pattern and its matches must have the same skeleton, or the index would miss some.
  std::string skeleton;
  AppendSkeleton(key, skeleton);
  EXPECT_TRUE(!matches || skeleton == NamePattern(pattern).Skeleton()) << pattern << " " << key;
  return matches;
}

TEST(NamePattern, Match_PartOfAName_IsFalse) {
  NamePattern::Captures captures;
  EXPECT_TRUE(Matches("l.$LAYER_ID.e.$EXPERT_ID.w", "l.12.e.7.w", &captures));
  EXPECT_EQ(captures[static_cast<size_t>(Placeholder::kLayerId)], "12");
  EXPECT_EQ(captures[static_cast<size_t>(Placeholder::kExpertId)], "7");
  EXPECT_FALSE(Matches("l.$LAYER_ID.w", "l.1.w.moment"));
  EXPECT_FALSE(Matches("l.$LAYER_ID.w", "xl.1.w"));
  EXPECT_FALSE(Matches("l.$LAYER_ID.w", "l..w"));
  EXPECT_FALSE(Matches("l.$LAYER_ID.w", "l.1a.w"));
}

TEST(NamePattern, Match_ManyWaysToDivideTheDigits_EndsWhenTheTriesAreUsedUp) {
  const std::string key = "a" + std::string(500, '1') + "x";
  NamePattern::Captures captures;
  for (const std::string& pattern : {std::string("a**********"), "a" + std::string(100'000, '*') + "x"}) {
    uint64_t tries = 1'000'000;
    EXPECT_FALSE(NamePattern(pattern).Match(key, captures, tries));
    EXPECT_EQ(tries, 0u);
  }
  uint64_t tries = 10;
  EXPECT_TRUE(NamePattern("a$LAYER_IDx").Match(key, captures, tries));
  EXPECT_EQ(tries, 10u) << "there is one way only";
}

TEST(NamePattern, Match_DigitsBesidePlaceholders_AreTried) {
  EXPECT_TRUE(Matches("a1$LAYER_ID", "a12"));
  EXPECT_FALSE(Matches("a1$LAYER_ID", "a1"));
  EXPECT_TRUE(Matches("a*2.w", "a1222.w"));
  EXPECT_TRUE(Matches("a$LAYER_ID$EXPERT_ID", "a12"));
  EXPECT_FALSE(Matches("a$LAYER_ID$EXPERT_ID", "a1"));
  // A placeholder stands for one number, wherever it occurs.
  EXPECT_TRUE(Matches("$LAYER_ID.x.$LAYER_ID", "4.x.4"));
  EXPECT_FALSE(Matches("$LAYER_ID.x.$LAYER_ID", "4.x.5"));
}

TEST(NamePattern, Match_OffsetAndId_AreToldApart) {
  EXPECT_TRUE(NamePattern("$LAYER_ID_OFFSET").Has(Placeholder::kLayerIdOffset));
  EXPECT_FALSE(NamePattern("$LAYER_ID_OFFSET").Has(Placeholder::kLayerId));
}

TEST(NumberLess, NumberLess_NumbersOfAnyLength_OrdersThemByValue) {
  EXPECT_TRUE(NumberLess("9", "10"));
  EXPECT_FALSE(NumberLess("10", "9"));
  EXPECT_TRUE(NumberLess("99999999999999999999", "100000000000000000000"));
  EXPECT_TRUE(NumberLess("007", "8"));
  EXPECT_NE(NumberLess("07", "7"), NumberLess("7", "07"));
}

TEST(StateKey, SplitStateKey_Suffixes_AreFound) {
  EXPECT_EQ(SplitStateKey("a.w_0").weight, "a");
  EXPECT_EQ(SplitStateKey("a.moment2_0").kind, StateKind::kElementwise);
  EXPECT_EQ(SplitStateKey("a.beta1_pow_acc_0").kind, StateKind::kScalar);
  EXPECT_EQ(SplitStateKey("a.w_01").kind, StateKind::kWeight);
  EXPECT_EQ(SplitStateKey("aw_0").suffix, "");
}

// The full matrix as textbooks have it; the banded one is checked against it.
int PlainDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

TEST(EditDistance, EditDistance_RandomWords_EqualsThePlainOne) {
  uint32_t state = 7;
  const auto random = [&](uint32_t below) { return (state = state * 1664525u + 1013904223u) / 65536 % below; };
  for (int i = 0; i < 5000; ++i) {
    std::string a, b;
    for (uint32_t n = random(8); n > 0; --n) a += static_cast<char>('a' + random(3));
    for (uint32_t n = random(8); n > 0; --n) b += static_cast<char>('a' + random(3));
    const int limit = static_cast<int>(random(5));
    ASSERT_EQ(EditDistance(a, b, limit), std::min(PlainDistance(a, b), limit + 1)) << a << " " << b << " " << limit;
  }
}

TEST(Suggest, Suggest_WrongName_ShowsTheNearest) {
  SymbolTable symbols;
  std::vector<Symbol> names;
  for (const char* name : {"model.norm.weight", "model.embed.weight", "other"}) names.push_back(symbols.Intern(name));
  EXPECT_EQ(Suggest("model.norms.weight", names, symbols),
            "; did you mean 'model.norm.weight' or 'model.embed.weight'?");
  EXPECT_EQ(Suggest("completely.different.name", names, symbols), "");
}

// Interned in blocks or one by one, the same names get the same symbols, also while the table grows and within one
// block.
TEST(SymbolTable, Intern_ManyTogether_EqualsOneByOne) {
  SymbolTable together, alone;
  NameBatch batch;
  for (int block = 0; block < 300; ++block) {
    batch.Clear();
    std::vector<std::string> names;
    for (int i = 0; i < 40; ++i) {
      names.push_back("layers." + std::to_string(block * 20 + i % 25) + ".weight");  // some twice, some known
      batch.text() += names.back();
      batch.End();
    }
    const auto symbols = batch.Intern(together);
    ASSERT_EQ(symbols.size(), names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      ASSERT_EQ(symbols[i], alone.Intern(names[i])) << names[i];
      ASSERT_EQ(together.Text(symbols[i]), names[i]);
    }
  }
  EXPECT_EQ(together.size(), alone.size());
}

}  // namespace
}  // namespace cairn::aoa
