#include "corpus/pipeline/normal_form.h"

#include <gtest/gtest.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <random>
#include <string>
#include <vector>

#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr NormalForm kForms[] = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd};

std::string Text(std::initializer_list<char32_t> characters) {
  std::string text;
  for (const char32_t c : characters) AppendUtf8(c, text);
  return text;
}

std::string IcusForm(NormalForm form, const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const forms[] = {
      icu::Normalizer2::getNFCInstance(error), icu::Normalizer2::getNFDInstance(error),
      icu::Normalizer2::getNFKCInstance(error), icu::Normalizer2::getNFKDInstance(error)};
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  forms[static_cast<size_t>(form)]->normalizeUTF8(0, text, sink, nullptr, error);
  EXPECT_TRUE(U_SUCCESS(error));
  return result;
}

bool IsInUnicode9(char32_t c) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] > 0 && age[0] <= 9;
}

TEST(NormalForm, IsSurelyNormal_TextOfSuchCharacters_IsAsIcuLeavesIt) {
  std::mt19937_64 random(1);
  for (const NormalForm form : kForms) {
    std::vector<char32_t> plain;
    for (char32_t c = 0; c < 0x110000; ++c) {
      const bool surrogate = c >= 0xD800 && c < 0xE000;
      if (!surrogate && IsInUnicode9(c) && IsSurelyNormal(form, Text({'a', c}))) plain.push_back(c);
    }
    EXPECT_GT(plain.size(), 90'000u);
    for (int round = 0; round < 100'000; ++round) {
      std::string text;
      for (int i = 0; i < 4; ++i) AppendUtf8(plain[random() % plain.size()], text);
      ASSERT_TRUE(IsSurelyNormal(form, text));
      ASSERT_EQ(IcusForm(form, text), text);
    }
  }
}

TEST(NormalForm, IsSurelyNormal_TextThatChanges_IsNot) {
  const std::string ascii = "some letters before";
  EXPECT_FALSE(IsSurelyNormal(NormalForm::kNfc, ascii + Text({'e', 0x301})));
  EXPECT_FALSE(IsSurelyNormal(NormalForm::kNfc, ascii + Text({0x212B})));
  EXPECT_FALSE(IsSurelyNormal(NormalForm::kNfd, ascii + Text({0xE9})));
  EXPECT_FALSE(IsSurelyNormal(NormalForm::kNfkc, ascii + Text({0xFB01})));
  EXPECT_FALSE(IsSurelyNormal(NormalForm::kNfkd, ascii + Text({0xAC00})));
  EXPECT_TRUE(IsSurelyNormal(NormalForm::kNfc, ascii + Text({0xE9, 0xAC00, 0x4E2D, 0x1F600})));
}

TEST(NormalForm, Normalize_MarksThatUnicode9DoesNotHave_StayWhereTheyAre) {
  // U+1AC1 came with Unicode 14, and stands between a letter and its mark.
  std::string text = Text({'e', 0x1AC1, 0x301});
  Normalize(NormalForm::kNfc, text);
  EXPECT_EQ(text, Text({'e', 0x1AC1, 0x301}));
  text = Text({'e', 0x301});
  Normalize(NormalForm::kNfc, text);
  EXPECT_EQ(text, Text({0xE9}));
}

}  // namespace
}  // namespace cairn::corpus
