#include "mapping/name_pattern.h"

#include <algorithm>
#include <tuple>

namespace cairn::aoa {
namespace {

constexpr char kNumber = '\1';
constexpr size_t kMostPieces = 256;

// The longest tags come first, because one is the beginning of another.
constexpr std::array<std::string_view, kPlaceholders> kTags = {"$LAYER_ID_OFFSET", "$EXPERT_ID", "$LAYER_ID", "*"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendRun(std::string_view literal, std::string& skeleton) {
  for (char c : literal) {
    if (!IsDigit(c)) {
      skeleton += c;
    } else if (skeleton.empty() || skeleton.back() != kNumber) {
      skeleton += kNumber;
    }
  }
}

}  // namespace

std::string_view TagOf(Placeholder placeholder) { return kTags[static_cast<size_t>(placeholder)]; }

NamePattern::NamePattern(std::string_view name) {
  size_t literal = 0;
  for (size_t at = 0; at < name.size();) {
    size_t tag = kPlaceholders;
    if (name[at] == '$' || name[at] == '*') {
      for (tag = 0; tag < kPlaceholders && !name.substr(at).starts_with(kTags[tag]); ++tag) {
      }
    }
    if (tag == kPlaceholders) {
      ++at;
      continue;
    }
    pieces_.push_back({name.substr(literal, at - literal), true, static_cast<Placeholder>(tag)});
    present_ |= static_cast<uint8_t>(1u << tag);
    at += kTags[tag].size();
    literal = at;
  }
  pieces_.push_back({name.substr(literal)});
}

bool NamePattern::Match(std::string_view key, Captures& captures, uint64_t& tries) const {
  captures = {};
  // The matching recurses once for each piece.
  if (pieces_.size() > kMostPieces) tries = 0;
  return tries > 0 && MatchFrom(0, key, captures, tries);
}

bool NamePattern::MatchFrom(size_t index, std::string_view rest, Captures& captures, uint64_t& tries) const {
  const Piece& piece = pieces_[index];
  if (!rest.starts_with(piece.literal)) return false;
  rest.remove_prefix(piece.literal.size());
  if (!piece.has_placeholder) return rest.empty();
  std::string_view& captured = captures[static_cast<size_t>(piece.placeholder)];
  const std::string_view before = captured;
  if (!before.empty() && piece.placeholder != Placeholder::kStar) {
    return rest.starts_with(before) && MatchFrom(index + 1, rest.substr(before.size()), captures, tries);
  }
  size_t digits = 0;
  while (digits < rest.size() && IsDigit(rest[digits])) ++digits;
  // The longest run is tried first; shorter ones matter only where digits follow the placeholder.
  for (; digits > 0; --digits) {
    captured = rest.substr(0, digits);
    if (MatchFrom(index + 1, rest.substr(digits), captures, tries)) return true;
    const Piece& next = pieces_[index + 1];
    const bool digits_may_follow = next.literal.empty() ? next.has_placeholder : IsDigit(next.literal.front());
    if (!digits_may_follow || tries == 0) break;
    tries -= std::min<uint64_t>(tries, rest.size() + 1);
  }
  captured = before;
  return false;
}

void NamePattern::Substitute(const Captures& values, std::string& text) const {
  for (const Piece& piece : pieces_) {
    text += piece.literal;
    if (!piece.has_placeholder) continue;
    const std::string_view value = values[static_cast<size_t>(piece.placeholder)];
    text += value.empty() ? TagOf(piece.placeholder) : value;
  }
}

std::string NamePattern::Skeleton() const {
  std::string skeleton;
  for (const Piece& piece : pieces_) {
    AppendRun(piece.literal, skeleton);
    if (piece.has_placeholder && (skeleton.empty() || skeleton.back() != kNumber)) skeleton += kNumber;
  }
  return skeleton;
}

void AppendSkeleton(std::string_view key, std::string& skeleton) { AppendRun(key, skeleton); }

bool NumberLess(std::string_view a, std::string_view b) {
  const auto strip = [](std::string_view digits) {
    const size_t first = digits.find_first_not_of('0');
    return first == std::string_view::npos ? std::string_view() : digits.substr(first);
  };
  const std::string_view x = strip(a), y = strip(b);
  if (x.size() != y.size()) return x.size() < y.size();
  return std::tie(x, a) < std::tie(y, b);
}

}  // namespace cairn::aoa
