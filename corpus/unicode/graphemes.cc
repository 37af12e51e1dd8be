#include "corpus/unicode/graphemes.h"

#include <cstdint>
#include <iterator>
#include <vector>

#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

// The numbers are those of generate_grapheme_table.py.
enum Kind : uint8_t {
  kOther = 0,
  kControl = 1,
  kExtend = 2,
  kExtendApart = 3,  // extends, but no consonants join across it
  kLinker = 4,       // extends, and makes a consonant before it and one behind it join
  kJoiner = 5,       // U+200D
  kSpacingMark = 6,
  kPrepend = 7,
  kConsonant = 8,  // of a script that has linkers
  kPictograph = 9,
  kHangulL = 10,
  kHangulV = 11,
  kHangulT = 12,
  kHangulLv = 13,
  kHangulLvt = 14,
};

// The characters from `first` up to the next run are of this kind.
struct Run {
  char32_t first;
  uint8_t kind;
};

#include "corpus/unicode/grapheme_table.inc"

Kind KindOf(char32_t scalar) {
  static const auto& kinds = *[] {
    auto* all = new std::vector<uint8_t>();
    for (size_t i = 0; i < std::size(kRuns); ++i) {
      all->resize(i + 1 < std::size(kRuns) ? kRuns[i + 1].first : 0x110000, kRuns[i].kind);
    }
    return all;
  }();
  return static_cast<Kind>(kinds[scalar]);
}

bool Extends(Kind kind) { return kind >= kExtend && kind <= kSpacingMark; }

// Says whether the syllable that ends with `last` goes on with `next`.
bool InSyllable(Kind last, Kind next) {
  switch (last) {
    case kHangulL:
      return next == kHangulL || next == kHangulV || next == kHangulLv || next == kHangulLvt;
    case kHangulV:
    case kHangulLv:
      return next == kHangulV || next == kHangulT;
    case kHangulT:
    case kHangulLvt:
      return next == kHangulT;
    default:
      return false;
  }
}

// A grapheme as far as it was read.
class Grapheme {
 public:
  explicit Grapheme(char32_t first) { Take(first, KindOf(first)); }

  // Takes a character if it belongs to the grapheme.
  bool Join(char32_t scalar) {
    const Kind kind = KindOf(scalar);
    if (!Joins(scalar, kind)) return false;
    Take(scalar, kind);
    return true;
  }

 private:
  enum Stage { kNone, kBegun, kLinked };

  bool Joins(char32_t scalar, Kind kind) const {
    if (last_ == kControl || kind == kControl) return scalar_ == '\r' && scalar == '\n';
    return Extends(kind) || last_ == kPrepend || InSyllable(last_, kind) ||
           (kind == kConsonant && conjunct_ == kLinked) || (kind == kPictograph && picture_ == kLinked);
  }
  void Take(char32_t scalar, Kind kind) {
    // A consonant goes on behind marks of which one is a linker, a pictograph behind marks and a joiner.
    if (kind == kConsonant) {
      conjunct_ = kBegun;
    } else if (kind == kLinker) {
      if (conjunct_ == kBegun) conjunct_ = kLinked;
    } else if (kind != kExtend && kind != kJoiner) {
      conjunct_ = kNone;
    }
    if (kind == kPictograph) {
      picture_ = kBegun;
    } else if (kind == kJoiner) {
      picture_ = picture_ == kBegun ? kLinked : kNone;
    } else if (picture_ == kLinked || !Extends(kind) || kind == kSpacingMark) {
      picture_ = kNone;
    }
    scalar_ = scalar;
    last_ = kind;
  }

  char32_t scalar_ = 0;
  Kind last_ = kOther;
  Stage conjunct_ = kNone;
  Stage picture_ = kNone;
};

}  // namespace

size_t GraphemeEnd(std::string_view text, size_t at) {
  const auto is_ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  if (is_ascii(at) && (at + 1 == text.size() || (is_ascii(at + 1) && text[at] != '\r'))) return at + 1;
  Grapheme grapheme(NextScalar(text, at));
  for (size_t end = at; at < text.size(); at = end) {
    if (!grapheme.Join(NextScalar(text, end))) break;
  }
  return at;
}

}  // namespace cairn::corpus
