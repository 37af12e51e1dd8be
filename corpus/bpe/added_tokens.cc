#include "corpus/bpe/added_tokens.h"

#include <utility>

#include "corpus/unicode/characters.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

const uint8_t* Bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

Character CharacterAt(std::string_view text, size_t position) {
  return DecodeCharacter(Bytes(text) + position, Bytes(text) + text.size());
}

size_t CharacterBefore(std::string_view text, size_t position) {
  size_t start = position - 1;
  while (start > 0 && position - start < 4 && IsUtf8Continuation(Bytes(text)[start])) --start;
  return start;
}

bool IsWordCharacter(const Character& character) {
  return character.code_point != Character::kInvalid && (FlagsOf(character.code_point) & kWordPart);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts)
    : tokens_(std::move(tokens)) {
  std::vector<std::string> contents;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    contents.push_back(i < texts.size() && !texts[i].empty() ? texts[i] : tokens_[i].content);
  }
  matcher_ = SpecialMatcher(contents);
}

// As in Hugging Face, the search goes on behind the token itself: the next token may begin in the white space that
// rstrip took, and what follows that token is then text again.
bool AddedTokens::Find(std::string_view text, size_t done, size_t& from, Match& match) const {
  while (from < text.size()) {
    const SpecialMatcher::Match found = matcher_.Find(text, from);
    if (!found.found()) return false;
    from = found.end;
    const AddedToken& token = tokens_[found.token];
    size_t begin = found.begin, end = found.end;
    if (token.single_word) {
      const bool free_before = begin == 0 || !IsWordCharacter(CharacterAt(text, CharacterBefore(text, begin)));
      const bool free_behind = end == text.size() || !IsWordCharacter(CharacterAt(text, end));
      if (!free_before || !free_behind) continue;
    }
    while (token.lstrip && begin > done) {
      const size_t start = CharacterBefore(text, begin);
      if (!(CharacterAt(text, start).char_class & kSpace)) break;
      begin = std::max(start, done);
    }
    if (token.lstrip && begin < done) begin = done;
    while (token.rstrip && end < text.size() && (CharacterAt(text, end).char_class & kSpace)) {
      end += CharacterAt(text, end).length;
    }
    if (begin >= end) continue;  // it is white space that the token before has taken
    match = {begin, end, found.token};
    return true;
  }
  return false;
}

}  // namespace cairn::corpus
