// The arguments of every macro, and functions that all macros use.
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

// The most names of a statement, and the most tokens of a program, after the macros. They limit the memory that a few
// characters of hostile input can take.
inline constexpr size_t kMaxNamesPerStatement = 1 << 20;
inline constexpr size_t kMaxTokens = 1 << 28;
// The most names that arrays and fused layouts of all statements together may make.
inline constexpr size_t kMaxMadeNames = 1 << 22;
// The most bytes of names that may be compared while digits are divided among placeholders (NamePattern::Match), or
// while placeholders are matched with names that earlier statements assign. It takes a second or two.
inline constexpr uint64_t kMaxTries = uint64_t{1} << 30;

struct MacroContext {
  Program& program;
  // The tensors to which the names left and right of the arrow belong: source and destination, or the other way round
  // if the program runs backwards.
  KeySpace& left;
  KeySpace& right;
  bool reverse = false;
  // True for old QKV configs: `fused_qkv` from one name to one means fused_qkv_old, and num_key_value_groups counts the
  // query heads per KV head.
  bool legacy_qkv = false;
  Diagnostics& diagnostics;
  uint64_t tries = kMaxTries;  // remaining tries
  size_t made_names = 0;
  // [left or right of the arrow][symbol]: whether a statement without a star has this name. Computed when the first
  // pair of stars is expanded.
  std::optional<std::array<std::vector<bool>, 2>> named = std::nullopt;

  const SymbolTable& symbols() const { return program.symbols(); }
  std::string Quoted(Symbol symbol) const { return "'" + std::string(symbols().Text(symbol)) + "'"; }
};

// The names of a statement left and right of its arrow, up to the first reserved word.
struct StatementNames {
  std::vector<uint32_t> left;  // token indexes of identifiers
  std::vector<uint32_t> right;
  bool has_arrow = false;
};
StatementNames NamesOf(const Program& program, LineId line);

// Returns the error message for a name for which all tries were used up.
std::string TooManyTries(std::string_view name);

// Counts names that a statement makes. Returns an error message if they are too many; else "".
std::string CountMadeNames(MacroContext& context, size_t names);

// Returns an error message such as "no source tensor matches 'a.$LAYER_ID'", with similar names. `left`: the name is
// left of the arrow.
std::string NoMatch(MacroContext& context, std::string_view name, bool left);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MACRO_CONTEXT_H_
