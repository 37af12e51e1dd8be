// The macros rewrite statements with placeholders, arrays, stars, transposes and fused layouts into plain ones.
// docs/mapping.md says what each means.
#ifndef CAIRN_MAPPING_MACROS_H_
#define CAIRN_MAPPING_MACROS_H_

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

struct MacroContext {
  Program& program;
  // The sides that the names left and right of the arrow belong to: source and destination, swapped when the program
  // runs backwards.
  KeySpace& left;
  KeySpace& right;
  bool reverse = false;
  // For old QKV configs: `fused_qkv` from one name to one means fused_qkv_old, and num_key_value_groups counts the
  // query heads per KV head.
  bool legacy_qkv = false;
  Diagnostics& diagnostics;
  // By symbol: the names that statements without a star give, left and right of their arrows. Nothing before the first
  // pair of stars is expanded.
  std::optional<std::array<std::vector<bool>, 2>> named = std::nullopt;

  const SymbolTable& symbols() const { return program.symbols(); }
  // Returns the name in quotes, for messages.
  std::string Quoted(Symbol symbol) const { return "'" + std::string(symbols().Text(symbol)) + "'"; }
};

// Runs all macros over program.current(), in order, and keeps the statements after each. It stops after the first stage
// that finds errors; the diagnostics then have all errors of that stage.
void RunMacros(MacroContext& context);

// The names of a statement left and right of its arrow, up to the first reserved word, as indexes of their tokens.
struct StatementNames {
  std::vector<uint32_t> left;  // token indexes of identifiers
  std::vector<uint32_t> right;
  bool has_arrow = false;
};
StatementNames NamesOf(const Program& program, LineId line);

// Each of these rewrites one statement: it appends what replaces the statement to `out`, or adds errors.
void ExpandLayerIdOffset(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandIds(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandArrays(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandStars(MacroContext& context, LineId line, std::vector<LineId>& out);

// The macros that make temporaries. They run after all names are known.
class TemporaryMacros {
 public:
  // Notes the names of program.current(), so that no temporary gets one of them.
  explicit TemporaryMacros(MacroContext& context);

  void CheckChains();
  void NameTransposes();  // must run before the first ExpandTranspose
  void ExpandTranspose(LineId line, std::vector<LineId>& out);
  void ExpandFusedQkvOld(LineId line, std::vector<LineId>& out);
  void ExpandFusedFfn(LineId line, std::vector<LineId>& out);
  void ExpandFusedQkv(LineId line, std::vector<LineId>& out);

 private:
  struct Fused {  // what a fused macro's statement says
    std::vector<Symbol> left, right;
    int64_t axis = 1;
    int64_t heads = 0;
    int64_t kv_heads = 0;
  };
  struct Producer {
    LineId line;
    Symbol name;
  };

  bool ParseFused(LineId line, Stage stage, Fused& fused);
  bool CheckHeads(LineId line, Stage stage, const Fused& fused);
  void Fail(LineId line, Stage stage, Reason reason, std::string message);
  bool IsTaken(Symbol name) const;
  // Returns a free name: `wanted`, or a similar one if a tensor or a variable of the program has that name.
  Symbol FreeName(Symbol wanted);
  // Returns base0 .. base{count-1}, all of them free.
  std::vector<Symbol> FreeNames(std::string_view base, int64_t count);

  // Counts the shards of the tensor that `name` stands for, on the left or right side; 0 after an error.
  int64_t ShardCount(LineId line, Stage stage, Symbol name, bool on_left);
  int64_t CountOf(LineId line, Stage stage, Symbol name, const KeySpace& side);
  void IndexChains();
  Symbol WithoutTranspose(Symbol name);

  void Emit(LineId parent, Stage stage, const std::vector<Symbol>& left, const std::vector<Symbol>& right, int64_t axis,
            std::vector<LineId>& out);

  struct Transpose {
    Symbol written;    // "a^T"
    Symbol variable;   // "a"
    Symbol temporary;  // the name that its transpose gets
  };

  static constexpr uint32_t kNoTranspose = UINT32_MAX;

  MacroContext& context_;
  std::vector<Transpose> transposes_;   // each name once
  std::vector<uint32_t> transpose_of_;  // by symbol as written, or kNoTranspose
  std::vector<bool> taken_;             // by symbol: the program itself uses it
  std::vector<LineId> statements_;      // as they stood before there were temporaries
  bool chains_indexed_ = false;
  std::vector<LineId> last_reader_, last_writer_;  // by symbol, or kNoLine
  std::vector<Symbol> transposed_;                 // by temporary: the name that it transposes; kAxis: none
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MACROS_H_
