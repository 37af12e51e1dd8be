#include "corpus/punkt/punkt_words.h"

#include "corpus/punkt/punkt_chars.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

bool BeginsNoWord(char32_t c) {
  return c < 0x80 && std::string_view("(\"`{[:;&#*@)}]-,").find(static_cast<char>(c)) != std::string_view::npos;
}

// Returns the length in bytes of a blank at text[at]; 0 if there is none.
size_t BlankAt(std::string_view text, size_t at) {
  if (at >= text.size()) return 0;
  size_t next = at;
  return IsRegexSpace(NextScalar(text, next)) ? next - at : 0;
}

size_t RunOf(std::string_view text, size_t at, char c) {
  size_t n = 0;
  while (at + n < text.size() && text[at + n] == c) ++n;
  return n;
}

// Returns the length in bytes of a punctuation mark of several characters at text[at]: dashes, dots, or at least three
// dots with a blank behind each but the last. 0: there is none.
size_t MultiCharAt(std::string_view text, size_t at) {
  if (at >= text.size()) return 0;
  if (text[at] == '-') {
    const size_t n = RunOf(text, at, '-');
    return n >= 2 ? n : 0;
  }
  if (text[at] != '.') return 0;
  if (const size_t n = RunOf(text, at, '.'); n >= 2) return n;
  // This finds the longest chain of "dot, blank" with a dot behind it. A chain without that dot ends with its own last
  // dot.
  size_t dots = 0, end = at, last_dot_end = at;
  while (end < text.size() && text[end] == '.') {
    ++dots;
    last_dot_end = end + 1;
    const size_t blank = BlankAt(text, end + 1);
    if (blank == 0) break;
    end += 1 + blank;
  }
  return dots >= 3 ? last_dot_end - at : 0;
}

// Returns whether such a mark stands there, in bounded time.
bool HasMultiChar(std::string_view text, size_t at) {
  if (at + 1 >= text.size() || (text[at] != '-' && text[at] != '.')) return false;
  if (text[at + 1] == text[at]) return true;
  if (text[at] == '-') return false;
  const size_t first = BlankAt(text, at + 1);
  const size_t second_dot = at + 1 + first;
  if (first == 0 || second_dot >= text.size() || text[second_dot] != '.') return false;
  const size_t second = BlankAt(text, second_dot + 1);
  const size_t third_dot = second_dot + 1 + second;
  return second != 0 && third_dot < text.size() && text[third_dot] == '.';
}

// Returns whether the end of a line, a blank, a non-word character or a mark of several characters stands at text[at].
bool EndsPlainly(std::string_view text, size_t at) {
  if (at >= text.size()) return true;
  size_t next = at;
  const char32_t c = NextScalar(text, next);
  return IsRegexSpace(c) || IsNonWord(c) || HasMultiChar(text, at);
}

void SplitLine(std::string_view line, std::vector<std::string_view>& words) {
  for (size_t at = 0; at < line.size();) {
    if (const size_t several = MultiCharAt(line, at); several != 0) {
      words.push_back(line.substr(at, several));
      at += several;
      continue;
    }
    size_t end = at;
    const char32_t first = NextScalar(line, end);
    if (IsRegexSpace(first)) {
      at = end;
      continue;
    }
    if (!BeginsNoWord(first)) {
      while (!EndsPlainly(line, end) && !(line[end] == ',' && EndsPlainly(line, end + 1))) NextScalar(line, end);
    }
    words.push_back(line.substr(at, end - at));
    at = end;
  }
}

}  // namespace

bool IsNonWord(char32_t c) {
  if (c < 0x80) return std::string_view(")\";}]*:@'({[?!").find(static_cast<char>(c)) != std::string_view::npos;
  return c == 0x2018 || c == 0x2019 || c == 0x201C || c == 0x201D || c == 0xAB || c == 0xBB;
}

void SplitPunktWords(std::string_view text, std::vector<std::string_view>& words) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (!PythonRstrip(line).empty()) SplitLine(line, words);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace cairn::corpus
