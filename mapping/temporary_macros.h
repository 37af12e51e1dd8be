// The macros that make temporary variables: transposes and fused layouts.
#ifndef CAIRN_MAPPING_TEMPORARY_MACROS_H_
#define CAIRN_MAPPING_TEMPORARY_MACROS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mapping/fused_statement.h"
#include "mapping/macro_context.h"

namespace cairn::aoa {

// They run after all names are known.
class TemporaryMacros {
 public:
  // Records the names of program.current(), so that no temporary gets one of them.
  explicit TemporaryMacros(MacroContext& context);

  void CheckChains();
  void NameTransposes();  // must run before the first ExpandTranspose
  void ExpandTranspose(LineId line, std::vector<LineId>& out);
  void ExpandFusedQkvOld(LineId line, std::vector<LineId>& out);
  void ExpandFusedFfn(LineId line, std::vector<LineId>& out);
  void ExpandFusedQkv(LineId line, std::vector<LineId>& out);

 private:
  struct Producer {
    LineId line;
    Symbol name;
  };

  // Returns whether the line is a statement of fused_qkv_old, or one of fused_qkv that means it
  // (MacroContext::legacy_qkv).
  bool IsFusedQkvOld(LineId line) const;
  // Returns false after an error.
  bool ReadFused(LineId line, Stage stage, FusedStatement& fused);
  void Fail(LineId line, Stage stage, Reason reason, std::string message);
  bool IsTaken(Symbol name) const;
  // Returns a free name: `wanted`, or a similar one if a tensor or a variable of the program has that name.
  Symbol FreeName(Symbol wanted);
  // Returns base0 .. base{count-1}, all of them free.
  std::vector<Symbol> FreeNames(std::string_view base, int64_t count);

  // Returns the number of shards of the tensor that `name` means on this side of the arrow; 0 after an error.
  int64_t ShardCount(LineId line, Stage stage, Symbol name, bool on_left);
  // Returns the number of shards of a side that is one fused tensor; 1 if the side lists the parts.
  int64_t ShardsOf(LineId line, Stage stage, const std::vector<Symbol>& side, bool on_left);
  int64_t CountOf(LineId line, Stage stage, Symbol name, const KeySpace& side);
  void IndexChains();
  Symbol WithoutTranspose(Symbol name);

  void Emit(LineId parent, Stage stage, const std::vector<Symbol>& left, const std::vector<Symbol>& right, int64_t axis,
            std::vector<LineId>& out);
  // Emits statements that split the left side, which `from` ranks hold, into `parts`, and merge the parts to the right
  // side, which `to` ranks hold.
  void EmitRankByRank(LineId line, Stage stage, const FusedStatement& fused,
                      const std::vector<std::vector<Symbol>>& parts, int64_t from, int64_t to,
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
  std::vector<LineId> statements_;      // the statements before the first temporary was made
  bool chains_indexed_ = false;
  std::vector<LineId> last_reader_, last_writer_;  // by symbol, or kNoLine
  std::vector<Symbol> transposed_;                 // by temporary: the name that it transposes; kAxis: none
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_TEMPORARY_MACROS_H_
