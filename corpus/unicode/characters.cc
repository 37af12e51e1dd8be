#include "corpus/unicode/characters.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

// The characters from `first` up to the next run have this value.
struct Run {
  char32_t first;
  uint8_t value;
};

struct Lowered {
  char32_t from;
  char32_t to;
  char32_t second;  // 0: there is none
};

#include "corpus/unicode/character_tables.inc"

std::vector<uint8_t> Expand(const Run* runs, size_t count) {
  std::vector<uint8_t> values;
  for (size_t i = 0; i < count; ++i) values.resize(i + 1 < count ? runs[i + 1].first : 0x110000, runs[i].value);
  return values;
}

}  // namespace

uint8_t FlagsOf(char32_t scalar) {
  static const auto& flags = *new std::vector<uint8_t>(Expand(kFlagRuns, std::size(kFlagRuns)));
  return flags[scalar];
}

uint8_t ScriptOf(char32_t scalar) {
  static const auto& scripts = *new std::vector<uint8_t>(Expand(kScriptRuns, std::size(kScriptRuns)));
  return scripts[scalar];
}

void AppendLower(char32_t scalar, std::string& out) {
  const Lowered* const found =
      std::lower_bound(std::begin(kLowered), std::end(kLowered), scalar,
                       [](const Lowered& entry, char32_t value) { return entry.from < value; });
  if (found == std::end(kLowered) || found->from != scalar) {
    AppendUtf8(scalar, out);
    return;
  }
  AppendUtf8(found->to, out);
  if (found->second != 0) AppendUtf8(found->second, out);
}

}  // namespace cairn::corpus
