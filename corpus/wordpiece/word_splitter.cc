#include "corpus/wordpiece/word_splitter.h"

#include <algorithm>

#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2;

}  // namespace

const std::vector<WordSplitter::Word>& WordSplitter::Split(std::string_view text) {
  Clean(text);
  if (lower_case_) LowerAndStrip();
  Cut(lower_case_ ? lowered_ : clean_);
  return words_;
}

void WordSplitter::Clean(std::string_view text) {
  clean_.clear();
  for (size_t i = 0; i < text.size();) {
    const char32_t scalar = NextScalar(text, i);
    switch (chars_.ClassOf(scalar)) {
      case CharClass::kDrop:
        break;
      case CharClass::kSpace:
        clean_.push_back(U' ');
        break;
      case CharClass::kCjk:
        clean_.append({U' ', scalar, U' '});
        break;
      case CharClass::kWord:
      case CharClass::kPunct:
        clean_.push_back(scalar);
        break;
    }
  }
}

// Canonical decomposition sorts marks between two starters stably by their class. Stripping removes only some of them.
void WordSplitter::LowerAndStrip() {
  lowered_.clear();
  for (size_t i = 0; i < clean_.size(); ++i) {
    const char32_t scalar = clean_[i];
    if (dialect_ == BertDialect::kLegacy && scalar == kCapitalSigma) {
      FlushMarks();
      lowered_.push_back(FinalSigma(i));
      continue;
    }
    replacement_.clear();
    chars_.Replace(scalar, replacement_);
    if (chars_.IsStrippedStarter(scalar)) FlushMarks();
    for (const char32_t c : replacement_) {
      const uint8_t combining = chars_.CombiningClassOf(c);
      if (combining == 0) {
        FlushMarks();
        lowered_.push_back(c);
      } else {
        marks_.emplace_back(combining, c);
      }
    }
  }
  FlushMarks();
}

// Returns the form that clean_[i] takes within its part between blanks (Unicode Standard, section 3.13, Final_Sigma).
char32_t WordSplitter::FinalSigma(size_t i) const {
  size_t before = i;
  while (before > 0 && BertChars::IsCaseIgnorable(clean_[before - 1])) --before;
  if (before == 0 || !BertChars::IsCased(clean_[before - 1])) return kCapitalSigma + 0x20;
  size_t after = i + 1;
  while (after < clean_.size() && BertChars::IsCaseIgnorable(clean_[after])) ++after;
  const bool followed = after < clean_.size() && BertChars::IsCased(clean_[after]);
  return followed ? kCapitalSigma + 0x20 : kFinalSigma;
}

void WordSplitter::FlushMarks() {
  if (marks_.empty()) return;
  std::stable_sort(marks_.begin(), marks_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [combining, mark] : marks_) lowered_.push_back(mark);
  marks_.clear();
}

void WordSplitter::Cut(const std::u32string& text) {
  normal_.clear();
  words_.clear();
  Word word{0, 0, 0};
  const auto finish = [&] {
    word.bytes = normal_.size() - word.first;
    if (word.bytes != 0) words_.push_back(word);
    word = {normal_.size(), 0, 0};
  };
  for (const char32_t scalar : text) {
    const CharClass kind = chars_.FinalClassOf(scalar);
    if (kind != CharClass::kWord) finish();
    if (kind == CharClass::kSpace) continue;
    AppendUtf8(scalar, normal_);
    ++word.scalars;
    if (kind == CharClass::kPunct) finish();
  }
  finish();
}

}  // namespace cairn::corpus
