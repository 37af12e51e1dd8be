#include "corpus/punkt/punkt_splitter.h"

#include <algorithm>

#include "corpus/punkt/punkt_chars.h"
#include "corpus/punkt/punkt_words.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr std::string_view kNumber = "##number##";

bool EndsSentences(char c) { return c == '.' || c == '?' || c == '!'; }
bool IsAsciiBlankOfC(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

char32_t FirstOf(std::string_view text) {
  size_t next = 0;
  return NextScalar(text, next);
}

// Matches -?[.,]?\d[\d,.-]*.
bool IsNumber(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) ++at;
  if (at >= text.size() || !IsRegexDigit(NextScalar(text, at))) return false;
  while (at < text.size()) {
    const char32_t c = NextScalar(text, at);
    if (c != ',' && c != '.' && c != '-' && !IsRegexDigit(c)) return false;
  }
  return true;
}

// Matches one letter and a period.
bool IsInitial(std::string_view text) {
  size_t at = 0;
  return IsRegexLetter(NextScalar(text, at)) && text.substr(at) == ".";
}

bool IsClosing(char32_t c) {
  return c == '"' || c == '\'' || c == ')' || c == ']' || c == '}' || c == 0x2018 || c == 0x2019 || c == 0x201C ||
         c == 0x201D || c == 0xAB || c == 0xBB;
}

struct Closing {
  size_t marks = 0;   // the closing marks at the begin of a sentence that belong to the one before, in bytes; 0: none
  size_t blanks = 0;  // the blanks behind them, in bytes
};

// Finds the fewest closing marks with a blank, two dashes or the end behind them.
Closing ClosingMarks(std::string_view sentence) {
  Closing closing;
  size_t at = 0;
  while (at < sentence.size() && IsClosing(FirstOf(sentence.substr(at)))) {
    NextScalar(sentence, at);
    size_t blanks_end = at;
    while (blanks_end < sentence.size()) {
      size_t next = blanks_end;
      if (!IsRegexSpace(NextScalar(sentence, next))) break;
      blanks_end = next;
    }
    if (blanks_end > at || at == sentence.size() || sentence.substr(at).starts_with("--")) {
      closing.marks = at;
      closing.blanks = blanks_end - at;
      return closing;
    }
  }
  return closing;
}

}  // namespace

std::string_view PunktSplitter::Token::TypeNoPeriod() const {
  std::string_view result = type;
  if (result.size() > 1 && result.ends_with('.')) result.remove_suffix(1);
  return result;
}

void PunktSplitter::Split(std::string_view text, std::vector<std::string_view>& sentences) {
  slices_.clear();
  FindSlices(text);
  const auto part = [&](const Slice& slice) {
    return slice.begin < slice.end ? text.substr(slice.begin, slice.end - slice.begin) : std::string_view();
  };
  size_t moved = 0;  // how many bytes at the begin of a slice went to the one before
  for (size_t i = 0; i < slices_.size(); ++i) {
    const Slice slice{slices_[i].begin + moved, slices_[i].end};
    moved = 0;
    if (i + 1 < slices_.size()) {
      const Closing closing = ClosingMarks(part(slices_[i + 1]));
      if (closing.marks != 0) {
        sentences.push_back(part({slice.begin, slices_[i + 1].begin + closing.marks}));
        moved = closing.marks + closing.blanks;
        continue;
      }
    }
    if (const std::string_view sentence = part(slice); !sentence.empty()) sentences.push_back(sentence);
  }
}

// A mark (. ? !) with a blank and a word, or with a non-word character, behind it may end a sentence. The word before
// it, the mark itself and what is behind it decide. Of several marks in one word only the last counts.
void PunktSplitter::FindSlices(std::string_view text) {
  struct Candidate {
    Slice word;          // the word before, up to the mark
    size_t mark;         // where the mark is; it has one byte
    size_t next_begin;   // where the next word begins; 0: a non-word character follows
    size_t context_end;  // where the next word, or that character, ends
  };
  size_t last_break = 0;
  const auto decide = [&](const Candidate& candidate) {
    context_.assign(text.substr(candidate.word.begin, candidate.context_end - candidate.word.begin));
    if (!HasBreak(context_)) return;
    slices_.push_back({last_break, candidate.mark + 1});
    last_break = candidate.next_begin != 0 ? candidate.next_begin : candidate.mark + 1;
  };

  std::optional<Candidate> previous;
  Slice previous_word{0, 0};
  for (size_t mark = 0; mark < text.size(); ++mark) {
    if (!EndsSentences(text[mark])) continue;
    Candidate candidate{{0, mark}, mark, 0, mark + 1};
    size_t at = mark + 1;
    if (at == text.size()) continue;
    if (IsNonWord(NextScalar(text, at))) {
      candidate.context_end = at;
    } else {
      at = mark + 1;
      while (at < text.size()) {
        size_t next = at;
        if (!IsRegexSpace(NextScalar(text, next))) break;
        at = next;
      }
      if (at == mark + 1 || at == text.size()) continue;
      candidate.next_begin = at;
      while (at < text.size()) {
        size_t next = at;
        if (IsRegexSpace(NextScalar(text, next))) break;
        at = next;
      }
      candidate.context_end = at;
    }
    // The word before begins behind the last blank since the last candidate. A blank that is the very first character
    // does not count.
    candidate.word.begin = previous_word.begin;
    for (size_t i = mark; i > previous_word.end + 1; --i) {
      if (IsAsciiBlankOfC(text[i - 1])) {
        candidate.word.begin = i;
        break;
      }
    }
    if (previous && previous_word.end <= candidate.word.begin) decide(*previous);
    previous = candidate;
    previous_word = candidate.word;
  }
  if (previous) decide(*previous);
  slices_.push_back({last_break, PythonRstrip(text).size()});
}

// Returns whether there is a break before the last word.
bool PunktSplitter::HasBreak(const std::string& context) {
  words_.clear();
  SplitPunktWords(context, words_);
  tokens_.resize(words_.size());
  for (size_t i = 0; i < words_.size(); ++i) {
    Token& token = tokens_[i];
    token = {.text = words_[i], .type = PythonLower(words_[i])};
    if (IsNumber(token.type)) token.type = kNumber;
    token.period_final = token.text.ends_with('.');
    ClassifyByType(token);
  }
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    ClassifyByContext(tokens_[i], tokens_[i + 1]);
    if (tokens_[i].sentence_break) return true;
  }
  return false;
}

// Section 3 of the paper classifies a word by its type alone.
void PunktSplitter::ClassifyByType(Token& token) const {
  const std::string_view text = token.text;
  if (text.size() == 1 && EndsSentences(text[0])) {
    token.sentence_break = true;
  } else if (text.size() > 1 && text.find_first_not_of('.') == text.npos) {
    token.ellipsis = true;
  } else if (token.period_final && !text.ends_with("..")) {
    const std::string lower = PythonLower(text.substr(0, text.size() - 1));
    const size_t dash = lower.rfind('-');
    token.abbreviation =
        model_.HasAbbreviation(lower) ||
        (dash != std::string::npos && model_.HasAbbreviation(std::string_view(lower).substr(dash + 1)));
    token.sentence_break = !token.abbreviation;
  }
}

// Section 4 of the paper classifies a word by itself and the next one.
void PunktSplitter::ClassifyByContext(Token& token, const Token& next) const {
  if (!token.period_final) return;
  const std::string_view type = token.TypeNoPeriod(), next_type = next.TypeNoSentencePeriod();
  const bool initial = IsInitial(token.text);
  // Section 4.1.2 treats collocations.
  if (model_.HasCollocation(type, next_type)) {
    token.sentence_break = false;
    token.abbreviation = true;
    return;
  }
  const bool next_upper = IsPythonUpper(FirstOf(next.text));
  // Section 4.2: an abbreviation or ellipsis may also end a sentence.
  if ((token.abbreviation || token.ellipsis) && !initial) {
    if (StartsSentence(next) == true || (next_upper && model_.HasStarter(next_type))) {
      token.sentence_break = true;
      return;
    }
  }
  // Section 4.3 treats initials and ordinal numbers.
  if (!initial && type != kNumber) return;
  const std::optional<bool> starts = StartsSentence(next);
  const bool never_lower = !starts && initial && next_upper && (model_.ContextOf(next_type) & kAnyLower) == 0;
  if (starts == false || never_lower) {
    token.sentence_break = false;
    token.abbreviation = true;
  }
}

// Section 4.1.1: returns whether the way in which the word is written, here and elsewhere, shows that it begins a
// sentence; nothing if it shows neither.
std::optional<bool> PunktSplitter::StartsSentence(const Token& token) const {
  if (token.text.size() == 1 && std::string_view(";:,.!?").find(token.text[0]) != std::string_view::npos) return false;
  const uint32_t context = model_.ContextOf(token.TypeNoSentencePeriod());
  const char32_t first = FirstOf(token.text);
  if (IsPythonUpper(first) && (context & kAnyLower) != 0 && (context & kMiddleUpper) == 0) return true;
  if (IsPythonLower(first) && ((context & kAnyUpper) != 0 || (context & kBeginLower) == 0)) return false;
  return std::nullopt;
}

}  // namespace cairn::corpus
