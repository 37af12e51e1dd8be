#include "corpus/bpe/pretokenizer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/compiled_pattern.h"
#include "corpus/bpe/scanners.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

struct Rule {
  std::string_view name;
  const char* pattern;
  Pretokenizer::Scanner scanner;
};

constexpr Rule kRules[] = {
    {"gpt2", kGpt2Pattern, ScanGpt2},
    {"gpt4", kGpt4Pattern, ScanGpt4},
    {"llama3", kGpt4Pattern, ScanGpt4},
    {"cl100k", kCl100kPattern, ScanCl100k},
    {"qwen2", kQwen2Pattern, ScanQwen2},
    {"o200k", kO200kPattern, ScanO200k},
    {"whitespace", kWhitespacePattern, ScanWhitespace},
};

// The same rules in other spellings that are in use.
constexpr Rule kSpellings[] = {
    {"",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     ScanCl100k},
    {"", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", ScanGpt2},
    {"", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", ScanGpt2},
    {"",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     ScanGpt4},
    {"",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     ScanGpt4},
};

// Returns the class of the character that ends at `position`; 0 for a byte that is not part of valid UTF-8.
uint8_t ClassBefore(std::string_view text, size_t position) {
  const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = begin + position;
  for (size_t back = 1; back <= 4 && back <= position; ++back) {
    if (back < 4 && IsUtf8Continuation(*(end - back))) continue;
    const Character character = DecodeCharacter(end - back, end);
    return character.length == back ? character.char_class : uint8_t{0};
  }
  return 0;
}

}  // namespace

struct Splitter::PatternState {
  explicit PatternState(const CompiledPattern& pattern) : matcher(pattern) {}

  PatternMatcher matcher;
  // If the text is not UTF-8, this holds the text with every invalid byte replaced by a character without class, and
  // where its characters stand in the original. It is kept from one call to the next for the same text.
  std::string_view text;
  std::string_view subject;
  std::string repaired;
  std::vector<std::pair<size_t, size_t>> replaced;  // of each bad byte: its offset in the original, and in `repaired`

  void Reset(std::string_view new_text);
  size_t ToSubject(size_t offset) const;
  size_t FromSubject(size_t offset) const;
};

// U+10FFFF is a noncharacter, so it is no letter, number, mark or space in any Unicode version.
constexpr std::string_view kNoncharacter = "\xF4\x8F\xBF\xBF";

void Splitter::PatternState::Reset(std::string_view new_text) {
  text = subject = new_text;
  repaired.clear();
  replaced.clear();
  size_t at = FindInvalidUtf8(new_text);
  if (at == std::string_view::npos) return;
  size_t copied = 0;
  while (at != std::string_view::npos) {
    repaired.append(new_text.substr(copied, at - copied));
    replaced.emplace_back(at, repaired.size());
    repaired.append(kNoncharacter);
    copied = at + 1;
    const size_t next = FindInvalidUtf8(new_text.substr(copied));
    at = next == std::string_view::npos ? next : copied + next;
  }
  repaired.append(new_text.substr(copied));
  subject = repaired;
}

size_t Splitter::PatternState::ToSubject(size_t offset) const {
  const auto after = std::lower_bound(replaced.begin(), replaced.end(), offset,
                                      [](const auto& bad, size_t value) { return bad.first < value; });
  return offset + static_cast<size_t>(after - replaced.begin()) * (kNoncharacter.size() - 1);
}

size_t Splitter::PatternState::FromSubject(size_t offset) const {
  const auto after = std::lower_bound(replaced.begin(), replaced.end(), offset,
                                      [](const auto& bad, size_t value) { return bad.second < value; });
  return offset - static_cast<size_t>(after - replaced.begin()) * (kNoncharacter.size() - 1);
}

absl::StatusOr<Pretokenizer> Pretokenizer::Named(std::string_view name) {
  std::string names;
  for (const Rule& rule : kRules) {
    if (rule.name == name) return Pretokenizer(rule.pattern, rule.scanner);
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(rule.name));
  }
  return MakeError(Reason::kBadPattern,
                   absl::StrCat("no pre-tokenizer is named '", std::string(name), "'; there are ", names));
}

absl::StatusOr<Pretokenizer> Pretokenizer::FromPattern(const std::string& pattern) {
  for (const Rule& rule : kRules) {
    if (rule.pattern == pattern) return Pretokenizer(pattern, rule.scanner);
  }
  for (const Rule& rule : kSpellings) {
    if (rule.pattern == pattern) return Pretokenizer(pattern, rule.scanner);
  }
  Pretokenizer result(pattern, nullptr);
  CAIRN_ASSIGN_OR_RETURN(result.compiled_, CompiledPattern::Compile(pattern));
  return result;
}

absl::StatusOr<Pretokenizer> Pretokenizer::NamedOrPattern(const std::string& text) {
  for (const Rule& rule : kRules) {
    if (rule.name == text) return Pretokenizer(rule.pattern, rule.scanner);
  }
  return FromPattern(text);
}

bool Pretokenizer::is_gpt2() const { return scanner_ == ScanGpt2; }

// These cuts are safe for the following reasons. No published expression has an alternative that goes on from a visible
// character to white space other than CR and LF (which may follow punctuation); from a letter or number to white space;
// or from a letter to a character that is no letter, number, mark or apostrophe (a contraction may follow a word;
// `whitespace` has no such end). None looks behind, so what follows such a place does not depend on what stands before
// it. The only look ahead is at the end of white space, which is never cut.
bool Pretokenizer::IsSafeCut(std::string_view text, size_t position) const {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t next_byte = p[position];
  if (IsUtf8Continuation(next_byte)) return false;
  const uint8_t before = ClassBefore(text, position);
  if (before & kSpace) return false;
  const Character next = DecodeCharacter(p + position, p + text.size());
  if (next.char_class & kSpace) {
    return (before & (kLetter | kNumber)) || (next_byte != '\r' && next_byte != '\n');
  }
  if (scanner_ == ScanWhitespace) return false;
  return (before & kLetter) && next.code_point != Character::kInvalid && next.char_class == 0 && next_byte != '\'';
}

size_t Pretokenizer::LastSafeCut(std::string_view text, size_t limit) const {
  if (text.empty()) return 0;
  for (size_t position = std::min(limit, text.size() - 1); position > 0; --position) {
    if (IsSafeCut(text, position)) return position;
  }
  return 0;
}

Splitter::Splitter(const Pretokenizer& pretokenizer) : pretokenizer_(pretokenizer) {
  if (pretokenizer.compiled_ != nullptr) state_ = std::make_unique<PatternState>(*pretokenizer.compiled_);
}

Splitter::~Splitter() = default;

absl::StatusOr<size_t> Splitter::Split(std::string_view text, size_t from, std::span<uint32_t> ends) {
  if (pretokenizer_.scanner_ != nullptr) return pretokenizer_.scanner_(text, from, ends);
  return SplitByPattern(text, from, ends);
}

absl::StatusOr<size_t> Splitter::SplitByPattern(std::string_view text, size_t from, std::span<uint32_t> ends) {
  PatternState& state = *state_;
  if (from == 0 || state.text.data() != text.data() || state.text.size() != text.size()) state.Reset(text);
  const std::string_view subject = state.subject;
  size_t done = state.ToSubject(from);  // where the current pre-token begins
  size_t search = done;
  size_t count = 0;
  const auto emit = [&](size_t end) {
    ends[count++] = static_cast<uint32_t>(state.FromSubject(end));
    done = end;
  };
  while (done < subject.size() && count < ends.size()) {
    PatternMatcher::Match match;
    if (search <= subject.size()) {
      CAIRN_ASSIGN_OR_RETURN(match, state.matcher.Find(subject, search));
    }
    if (!match.found) {
      emit(subject.size());
      break;
    }
    // The text between two matches is a pre-token. If there is no room for the match itself, it is found again later.
    if (match.begin > done) emit(match.begin);
    if (match.end > match.begin) {
      if (count == ends.size()) break;
      emit(match.end);
      search = match.end;
    } else if (match.begin < subject.size()) {
      const auto* p = reinterpret_cast<const uint8_t*>(subject.data());
      search = match.begin + DecodeCharacter(p + match.begin, p + subject.size()).length;
    } else {
      search = subject.size() + 1;
    }
  }
  return count;
}

}  // namespace cairn::corpus
