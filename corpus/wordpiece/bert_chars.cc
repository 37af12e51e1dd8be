#include "corpus/wordpiece/bert_chars.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace cairn::corpus {
namespace {

struct ClassRange {
  char32_t first, last;
  CharClass kind;
};
struct ScalarRange {
  char32_t first, last;
};
struct StrippedMarks {
  char32_t first, last;
  bool starter;
};
// Each of first, first + stride .. last becomes itself + delta.
struct LowerRun {
  char32_t first, last;
  uint8_t stride;
  int32_t delta;
};
struct LowerExpansion {
  char32_t scalar;
  const char32_t* text;
};
struct CombiningClass {
  char32_t first, last;
  uint8_t value;
};

#include "corpus/wordpiece/bert_tables.inc"

struct Tables {
  std::span<const ClassRange> classes;
  std::span<const StrippedMarks> stripped;
  std::span<const LowerRun> runs;
  std::span<const LowerExpansion> expansions;
  std::span<const CombiningClass> combining;
};

Tables TablesOf(BertDialect dialect) {
  if (dialect == BertDialect::kFast) {
    return {kFastClasses, kFastLowerDrops, kFastLowerRuns, kFastLowerExpansions, kFastCombining};
  }
  return {kLegacyClasses, kLegacyLowerDrops, kLegacyLowerRuns, kLegacyLowerExpansions, kLegacyCombining};
}

constexpr char32_t kScalars = 0x110000;
constexpr char32_t kFirstSyllable = 0xAC00, kLastSyllable = 0xD7A3;
constexpr char32_t kFirstLead = 0x1100, kFirstVowel = 0x1161, kBeforeTrail = 0x11A7;
constexpr char32_t kVowels = 21, kTrails = 28;

bool IsSyllable(char32_t scalar) { return scalar >= kFirstSyllable && scalar <= kLastSyllable; }

bool InRanges(std::span<const ScalarRange> ranges, char32_t scalar) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), scalar,
                                      [](char32_t s, const ScalarRange& range) { return s < range.first; });
  return after != ranges.begin() && scalar <= std::prev(after)->last;
}

}  // namespace

const BertChars& BertChars::Get(BertDialect dialect, bool lower_case) {
  // Each table is built when it is first asked for, and is never destroyed.
  if (dialect == BertDialect::kFast) {
    static const BertChars* const cased = new BertChars(BertDialect::kFast, false);
    static const BertChars* const lower = new BertChars(BertDialect::kFast, true);
    return lower_case ? *lower : *cased;
  }
  static const BertChars* const cased = new BertChars(BertDialect::kLegacy, false);
  static const BertChars* const lower = new BertChars(BertDialect::kLegacy, true);
  return lower_case ? *lower : *cased;
}

BertChars::BertChars(BertDialect dialect, bool lower_case) : flags_(kScalars, 0) {
  const Tables tables = TablesOf(dialect);
  for (const ClassRange& range : tables.classes) {
    std::fill(flags_.begin() + range.first, flags_.begin() + range.last + 1, static_cast<uint8_t>(range.kind));
  }
  if (!lower_case) return;
  for (const StrippedMarks& range : tables.stripped) {
    for (char32_t s = range.first; s <= range.last; ++s) {
      flags_[s] |= kReplaced | (range.starter ? kStrippedStarter : 0);
      several_[s] = U"";
    }
  }
  for (const LowerRun& run : tables.runs) {
    for (char32_t s = run.first; s <= run.last; s += run.stride) {
      flags_[s] |= kReplaced;
      single_[s] = static_cast<char32_t>(static_cast<int32_t>(s) + run.delta);
    }
  }
  for (const LowerExpansion& expansion : tables.expansions) {
    flags_[expansion.scalar] |= kReplaced;
    several_[expansion.scalar] = expansion.text;
  }
  for (char32_t s = kFirstSyllable; s <= kLastSyllable; ++s) flags_[s] |= kReplaced;
  for (const CombiningClass& range : tables.combining) {
    for (char32_t s = range.first; s <= range.last; ++s) {
      flags_[s] |= kCombines;
      combining_[s] = range.value;
    }
  }
}

void BertChars::Replace(char32_t scalar, std::u32string& out) const {
  if (!IsReplaced(scalar)) {
    out.push_back(scalar);
  } else if (IsSyllable(scalar)) {
    const char32_t index = scalar - kFirstSyllable;
    out.push_back(kFirstLead + index / (kVowels * kTrails));
    out.push_back(kFirstVowel + index % (kVowels * kTrails) / kTrails);
    if (index % kTrails != 0) out.push_back(kBeforeTrail + index % kTrails);
  } else if (const auto it = single_.find(scalar); it != single_.end()) {
    out.push_back(it->second);
  } else {
    out += several_.at(scalar);
  }
}

uint8_t BertChars::CombiningClassOf(char32_t scalar) const {
  return (flags_[scalar] & kCombines) != 0 ? combining_.at(scalar) : 0;
}

bool BertChars::IsCased(char32_t scalar) { return InRanges(kCased, scalar); }
bool BertChars::IsCaseIgnorable(char32_t scalar) { return InRanges(kCaseIgnorable, scalar); }

}  // namespace cairn::corpus
