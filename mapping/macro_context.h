// Holds what every macro is given, and says what all of them need to know of a statement.
#ifndef CAIRN_MAPPING_MACRO_CONTEXT_H_
#define CAIRN_MAPPING_MACRO_CONTEXT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mapping/diagnostics.h"
#include "mapping/key_space.h"
#include "mapping/program.h"

namespace cairn::aoa {

// After its macros, no statement may name more variables than this, and no program may have more tokens than this. That
// bounds what a few characters of hostile input can make.
inline constexpr size_t kMaxNamesPerStatement = 1 << 20;
inline constexpr size_t kMaxTokens = 1 << 28;
// Arrays and fused layouts of all statements together may make no more names than this.
inline constexpr size_t kMaxMadeNames = 1 << 22;
// How many bytes of names may be looked at while digits are divided among placeholders (NamePattern::Match), or while
// placeholders are looked for among the names that earlier statements give. It is a second or two.
inline constexpr uint64_t kMaxTries = uint64_t{1} << 30;

struct MacroContext {
  Program& program;
  // The sides that the names left and right of the arrow belong to: source and destination, swapped when the program
  // runs backwards.
  KeySpace& left;
  KeySpace& right;
  bool reverse = false;
  // True for old QKV configs: `fused_qkv` from one name to one means fused_qkv_old, and num_key_value_groups counts the
  // query heads per KV head.
  bool legacy_qkv = false;
  Diagnostics& diagnostics;
  uint64_t tries = kMaxTries;  // those that are left
  size_t made_names = 0;
  // Says of each symbol whether a statement without a star names it, left or right of its arrow. There is none before
  // the first pair of stars is expanded.
  std::optional<std::array<std::vector<bool>, 2>> named = std::nullopt;

  const SymbolTable& symbols() const { return program.symbols(); }
  // Returns the name in quotes, for messages.
  std::string Quoted(Symbol symbol) const { return "'" + std::string(symbols().Text(symbol)) + "'"; }
};

// The names of a statement left and right of its arrow, up to the first reserved word, as indexes of their tokens.
struct StatementNames {
  std::vector<uint32_t> left;  // token indexes of identifiers
  std::vector<uint32_t> right;
  bool has_arrow = false;
};
StatementNames NamesOf(const Program& program, LineId line);

// Says what to do about a name over which all tries were used up.
std::string TooManyTries(std::string_view name);

// Counts names that a statement makes. Returns what is wrong if they are too many; else nothing.
std::string CountMadeNames(MacroContext& context, size_t names);

// Returns for example "no source tensor matches 'a.$LAYER_ID'", and names that are near. `left`: the side of the arrow
// on which the name stands.
std::string NoMatch(MacroContext& context, std::string_view name, bool left);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MACRO_CONTEXT_H_
