#include "corpus/bpe/special_matcher.h"

#include <algorithm>
#include <cstring>

namespace cairn::corpus {

SpecialMatcher::SpecialMatcher(const std::vector<std::string>& tokens) {
  int starts = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) continue;
    uint32_t node = 0;
    for (const char c : tokens[i]) {
      const uint64_t edge = uint64_t{node} << 8 | static_cast<uint8_t>(c);
      const auto [it, added] = child_.try_emplace(edge, static_cast<uint32_t>(token_of_.size()));
      if (added) token_of_.push_back(kNone);
      node = it->second;
    }
    token_of_[node] = static_cast<uint32_t>(i);
    const auto first = static_cast<uint8_t>(tokens[i][0]);
    if (!starts_[first]) {
      starts_[first] = true;
      only_start_ = ++starts == 1 ? first : -1;
    }
    longest_ = std::max(longest_, tokens[i].size());
  }
}

size_t SpecialMatcher::NextCandidate(std::string_view text, size_t from) const {
  if (only_start_ >= 0) {
    const void* p = from < text.size() ? std::memchr(text.data() + from, only_start_, text.size() - from) : nullptr;
    return p == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(p) - text.data());
  }
  while (from < text.size() && !starts_[static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

size_t SpecialMatcher::LongestAt(std::string_view text, size_t position, uint32_t* token) const {
  size_t end = 0;
  uint32_t node = 0;
  for (size_t i = position; i < text.size(); ++i) {
    const auto it = child_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (it == child_.end()) break;
    node = it->second;
    if (token_of_[node] != kNone) {
      end = i + 1;
      *token = token_of_[node];
    }
  }
  return end;
}

SpecialMatcher::Match SpecialMatcher::Find(std::string_view text, size_t from) const {
  if (empty()) return {};
  for (size_t i = NextCandidate(text, from); i < text.size(); i = NextCandidate(text, i + 1)) {
    if (const Match match = FindAt(text, i); match.found()) return match;
  }
  return {};
}

SpecialMatcher::Match SpecialMatcher::FindAt(std::string_view text, size_t position) const {
  uint32_t token = 0;
  const size_t end = LongestAt(text, position, &token);
  return end == 0 ? Match{} : Match{position, end, token};
}

bool SpecialMatcher::Crosses(std::string_view text, size_t position) const {
  if (empty()) return false;
  const size_t first = position > longest_ ? position - longest_ : 0;
  for (size_t i = NextCandidate(text, first); i < position; i = NextCandidate(text, i + 1)) {
    uint32_t token = 0;
    if (LongestAt(text, i, &token) > position) return true;
  }
  return false;
}

}  // namespace cairn::corpus
