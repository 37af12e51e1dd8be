#include "corpus/bpe/pretokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/status/reason.h"
#include "corpus/bpe/ascii_masks.h"
#include "corpus/bpe/compiled_pattern.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

const char* const kNames[] = {"gpt2", "gpt4", "cl100k", "llama3", "qwen2", "o200k", "whitespace"};

void AppendUtf8(char32_t c, std::string& s) {
  const auto add = [&s](uint32_t byte) { s += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  if (c < 0x800) return add(0xC0 | c >> 6), add(0x80 | (c & 0x3F));
  if (c < 0x10000) return add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 0x3F)), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
}

std::vector<uint32_t> Ends(Splitter& splitter, std::string_view text, size_t room = 7) {
  std::vector<uint32_t> ends;
  std::vector<uint32_t> some(room);
  size_t from = 0;
  while (from < text.size()) {
    const auto count = splitter.Split(text, from, some);
    EXPECT_TRUE(count.ok()) << count.status();
    if (!count.ok() || *count == 0) break;
    ends.insert(ends.end(), some.begin(), some.begin() + static_cast<ptrdiff_t>(*count));
    from = ends.back();
  }
  return ends;
}

std::vector<std::string> Pieces(std::string_view name, std::string_view text) {
  const Pretokenizer pretokenizer = *Pretokenizer::NamedOrPattern(std::string(name));
  Splitter splitter(pretokenizer);
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (const uint32_t end : Ends(splitter, text)) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return pieces;
}

// Returns the same expression in a spelling that is not recognised, so that PCRE2 matches it.
std::string Disguised(const Pretokenizer& pretokenizer) { return "(?:" + pretokenizer.pattern() + ")"; }

// PCRE2 has a Unicode version of its own, so only characters on which both versions agree can be compared.
std::vector<bool> AgreedCharacters() {
  std::vector<bool> agreed(0x110000, true);
  const struct {
    const char* pattern;
    uint8_t mask;
  } kClasses[] = {{"\\p{L}", kLetter},
                  {"\\p{N}", kNumber},
                  {"\\s", kSpace},
                  {"[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", kUpper},
                  {"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]", kLower}};
  for (const auto& [pattern, mask] : kClasses) {
    const auto compiled = *CompiledPattern::Compile(pattern);
    PatternMatcher matcher(*compiled);
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) {
        agreed[c] = false;
        continue;
      }
      std::string text;
      AppendUtf8(c, text);
      if (matcher.Find(text, 0)->found != ((ClassOf(c) & mask) != 0)) agreed[c] = false;
    }
  }
  return agreed;
}

TEST(Pretokenizer, Cut_EveryAgreedCharacter_IsCutAsPcre2Cuts) {
  const std::vector<bool> agreed = AgreedCharacters();
  const auto count = std::count(agreed.begin(), agreed.end(), true);
  EXPECT_GT(count, 1'090'000);  // all but those that were assigned between the two versions
  for (const char* name : kNames) {
    const Pretokenizer ours = *Pretokenizer::Named(name);
    const Pretokenizer theirs = *Pretokenizer::FromPattern(Disguised(ours));
    Splitter our_splitter(ours), their_splitter(theirs);
    std::string text;
    for (char32_t c = 0; c < 0x110000; ++c) {
      // No character of the planes that are left out has a class.
      if (!agreed[c] || (c > 0x3FFFF && c < 0xE0000) || c > 0xE0FFF) continue;
      for (const char* around : {"a", " ", "1", "!", "'"}) {
        AppendUtf8(c, text);
        text += around;
      }
      if (text.size() > 4096) {
        ASSERT_EQ(Ends(our_splitter, text, 8192), Ends(their_splitter, text, 8192))
            << name << " near U+" << std::hex << static_cast<uint32_t>(c);
        text.clear();
      }
    }
  }
}

std::string RandomText(std::mt19937_64& random, size_t characters) {
  static const std::vector<std::string> kParts = {"a",
                                                  "b",
                                                  "Z",
                                                  "Q",
                                                  "s",
                                                  "S",
                                                  "t",
                                                  "re",
                                                  "LL",
                                                  "ve",
                                                  "'",
                                                  "'s",
                                                  "'S",
                                                  "'\xC5\xBF",
                                                  "'ll",
                                                  "'rE",
                                                  "1",
                                                  "23",
                                                  "4567",
                                                  " ",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\r\n",
                                                  "\n\n",
                                                  "\t",
                                                  "\v",
                                                  "!",
                                                  "?!",
                                                  "/",
                                                  "_",
                                                  "-",
                                                  "\xC2\xA0",
                                                  "\xC2\x85",
                                                  "\xE2\x80\xA8",
                                                  "\xE3\x80\x80",
                                                  "\xE4\xB8\xAD",
                                                  "\xE6\x96\x87",
                                                  "\xE3\x80\x82",
                                                  "\xC3\xA9",
                                                  "\xC3\x89",
                                                  "e\xCC\x81",
                                                  "\xCC\x81",
                                                  "\xD0\x96",
                                                  "\xD0\xB6",
                                                  "\xC7\x85",
                                                  "\xCA\xB0",
                                                  "\xD9\xA3",
                                                  "\xC2\xBD",
                                                  "\xE2\x85\xA7",
                                                  "\xF0\x9F\x98\x80",
                                                  "\xE2\x80\x8B",
                                                  "\xEF\xBB\xBF",
                                                  "\xE0\xA4\xA8\xE0\xA4\xBF",
                                                  std::string(1, '\0'),
                                                  "\xED\x95\x9C"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += kParts[random() % kParts.size()];
  return text;
}

TEST(Pretokenizer, Cut_RandomText_IsCutAsPcre2Cuts) {
  for (const char* name : kNames) {
    const Pretokenizer ours = *Pretokenizer::Named(name);
    const Pretokenizer theirs = *Pretokenizer::FromPattern(Disguised(ours));
    Splitter our_splitter(ours), their_splitter(theirs);
    std::mt19937_64 random(7);
    for (int i = 0; i < 8000; ++i) {
      const std::string text = RandomText(random, 1 + random() % 40);
      ASSERT_EQ(Ends(our_splitter, text), Ends(their_splitter, text, 3))
          << name << ": " << ::testing::PrintToString(text);
    }
  }
}

TEST(Pretokenizer, Cut_InvalidBytes_AreOneCharacterWithoutClass) {
  for (const char* name : kNames) {
    const Pretokenizer ours = *Pretokenizer::Named(name);
    const Pretokenizer theirs = *Pretokenizer::FromPattern(Disguised(ours));
    Splitter our_splitter(ours), their_splitter(theirs);
    std::mt19937_64 random(8);
    for (int i = 0; i < 4000; ++i) {
      std::string text = RandomText(random, 1 + random() % 20);
      for (size_t k = random() % 4; k > 0; --k) text[random() % text.size()] = static_cast<char>(random());
      ASSERT_EQ(Ends(our_splitter, text), Ends(their_splitter, text, 2))
          << name << ": " << ::testing::PrintToString(text);
    }
  }
  EXPECT_EQ(Pieces("gpt2",
                   "ab\xFF\xFE"
                   "cd \xC3"),
            (std::vector<std::string>{"ab", "\xFF\xFE", "cd", " \xC3"}));
}

TEST(Pretokenizer, Cut_SafeCuts_ChangeNothing) {
  for (const char* name : kNames) {
    const Pretokenizer pretokenizer = *Pretokenizer::Named(name);
    Splitter splitter(pretokenizer);
    std::mt19937_64 random(9);
    int cuts = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text = RandomText(random, 2 + random() % 30);
      if (i % 3 == 0) text[random() % text.size()] = static_cast<char>(random());
      const std::vector<uint32_t> whole = Ends(splitter, text);
      for (size_t cut = 1; cut < text.size(); ++cut) {
        if (!pretokenizer.IsSafeCut(text, cut)) continue;
        ++cuts;
        std::vector<uint32_t> parts = Ends(splitter, std::string_view(text).substr(0, cut));
        for (const uint32_t end : Ends(splitter, std::string_view(text).substr(cut))) {
          parts.push_back(static_cast<uint32_t>(end + cut));
        }
        ASSERT_EQ(parts, whole) << name << " at " << cut << ": " << ::testing::PrintToString(text);
      }
    }
    EXPECT_GT(cuts, 1000);
  }
}

TEST(Pretokenizer, LastSafeCut_AnyText_IsTheLastOne) {
  const Pretokenizer gpt2 = *Pretokenizer::Named("gpt2");
  EXPECT_EQ(gpt2.LastSafeCut("one two three", 13), 7u);
  EXPECT_EQ(gpt2.LastSafeCut("one two three", 7), 7u);
  EXPECT_EQ(gpt2.LastSafeCut("one two three", 6), 3u);
  EXPECT_EQ(gpt2.LastSafeCut("onetwothree", 11), 0u);
  EXPECT_EQ(gpt2.LastSafeCut("", 0), 0u);
}

TEST(Pretokenizer, Cut_Examples_GiveTheirWords) {
  using V = std::vector<std::string>;
  EXPECT_EQ(Pieces("gpt2", "it's 2024,  ok?\n\n go"), (V{"it", "'s", " 2024", ",", " ", " ok", "?", "\n\n", " go"}));
  EXPECT_EQ(Pieces("gpt4", "IT'S 2024,  ok?\n\n go"),
            (V{"IT", "'S", " ", "202", "4", ",", " ", " ok", "?\n\n", " go"}));
  EXPECT_EQ(Pieces("qwen2", "a 12"), (V{"a", " ", "1", "2"}));
  EXPECT_EQ(Pieces("o200k", "helloWorld's XMLHttp a/\n/b"), (V{"hello", "World's", " XMLHttp", " a", "/\n/", "b"}));
  EXPECT_EQ(Pieces("cl100k", "a \n "), (V{"a", " \n "}));
  EXPECT_EQ(Pieces("gpt4", "a \n "), (V{"a", " \n", " "}));
  EXPECT_EQ(Pieces("whitespace", " a\tb  "), (V{" ", "a", "\t", "b", "  "}));
  EXPECT_EQ(Pieces("gpt2", ""), V{});
}

TEST(Pretokenizer, Cut_TextBetweenMatches_IsKept) {
  using V = std::vector<std::string>;
  EXPECT_EQ(Pieces("[0-9]+", "ab12cd3"), (V{"ab", "12", "cd", "3"}));
  EXPECT_EQ(Pieces("x*", "abxxc"), (V{"a", "b", "xx", "c"}));
  EXPECT_EQ(Pieces("(?<=a)b", "abab"), (V{"a", "b", "a", "b"}));
}

TEST(Pretokenizer, Pattern_BadPatterns_AreRefused) {
  EXPECT_TRUE(HasReason(Pretokenizer::FromPattern("(").status(), Reason::kBadPattern));
  EXPECT_TRUE(HasReason(Pretokenizer::FromPattern("").status(), Reason::kBadPattern));
  EXPECT_TRUE(HasReason(Pretokenizer::Named("gpt9").status(), Reason::kBadPattern));
}

TEST(Pretokenizer, Pattern_Runaway_StopsWithAnError) {
  const Pretokenizer pretokenizer = *Pretokenizer::FromPattern("(a|aa|aaa)+(a|aa)+[bc]");
  Splitter splitter(pretokenizer);
  std::vector<uint32_t> ends(16);
  const auto count = splitter.Split(std::string(2000, 'a'), 0, ends);
  EXPECT_TRUE(HasReason(count.status(), Reason::kBadPattern)) << count.status();
}

TEST(Pretokenizer, Cut_AsciiText_IsCutAsPcre2Cuts) {
  std::mt19937_64 random(5);
  const std::string characters = "aabbZsStrevlLmd'' ''   \n\n\r\t\v1234567890!?(/._-\x01\x7F";
  for (const char* name : kNames) {
    const Pretokenizer ours = *Pretokenizer::Named(name);
    const Pretokenizer theirs = *Pretokenizer::FromPattern(Disguised(ours));
    Splitter our_splitter(ours), their_splitter(theirs);
    for (int round = 0; round < 4'000; ++round) {
      // Texts of a few windows of 64 bytes; of some, the characters are few, so that runs are long.
      const size_t kinds = 1 + random() % characters.size(), first = random() % characters.size();
      std::string text;
      for (size_t i = random() % 300; i > 0; --i) text += characters[(first + random() % kinds) % characters.size()];
      if (round % 5 == 0 && !text.empty()) text.insert(random() % text.size(), round % 2 ? "\xE3\x80\x80" : "\xC5\xBF");
      ASSERT_EQ(Ends(our_splitter, text), Ends(their_splitter, text, 1024)) << name << ": " << text;
    }
  }
}

TEST(AsciiMasks, EachOfThisProcessor_AnyBytes_IsThePortableOne) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 20'000; ++round) {
    uint8_t bytes[64];
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(round % 2 == 0 ? random() : random() % 128);
    AsciiMasks expected, masks;
    AsciiMasksPortable(bytes, expected);
    for (const MakeAsciiMasks make : AsciiMasksHere()) {
      make(bytes, masks);
      ASSERT_EQ(masks, expected);
    }
  }
}

}  // namespace
}  // namespace cairn::corpus
