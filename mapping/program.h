// A mapping program while macros rewrite it. It keeps every statement, including rewritten ones, and the statement from
// which each was made.
#ifndef CAIRN_MAPPING_PROGRAM_H_
#define CAIRN_MAPPING_PROGRAM_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mapping/lexer.h"
#include "mapping/symbol_table.h"

namespace cairn::aoa {

// The stages in order of execution. Every macro runs over all statements before the next macro starts. This order is
// part of what a program means.
enum class Stage : uint8_t {
  kLexer,
  kLayerIdOffset,
  kId,
  kArray,
  kStar,
  kMappingChain,  // rewrites nothing: it refuses statements with several names on both sides
  kTranspose,
  kFusedQkvOld,
  kFusedFfn,
  kFusedQkv,
  kParser,
  kEngine,
};
// Returns a stage's name for error chains: "layer_id_offset", "id" ...
std::string_view NameOf(Stage stage);

// The macros whose results are kept.
inline constexpr std::array<Stage, 8> kMacroStages = {Stage::kLayerIdOffset, Stage::kId,        Stage::kArray,
                                                      Stage::kStar,          Stage::kTranspose, Stage::kFusedQkvOld,
                                                      Stage::kFusedFfn,      Stage::kFusedQkv};

using LineId = uint32_t;
inline constexpr LineId kNoLine = UINT32_MAX;

struct Line {
  uint32_t first;  // token
  uint32_t count;
  LineId parent;  // the statement from which it was made; kNoLine for the user's own
  uint32_t root;  // index of the user's statement
  Stage made_by;
  uint8_t traits;  // the union of the NameTraits of its names
  bool has_bracket;
  bool has_fused_flag;
};

// Const methods are thread-safe; the others are not.
class Program {
 public:
  SymbolTable& symbols() { return symbols_; }
  const SymbolTable& symbols() const { return symbols_; }

  // Takes one string of the user's list, which may hold several statements on lines of their own, comments and blank
  // lines, and appends the statements. If the text has a fault, it appends only one empty line, `faulty`, to which
  // errors can refer, and returns the fault.
  struct AddResult {
    std::optional<LexFault> fault;
    LineId faulty = kNoLine;
  };
  AddResult AddText(std::string_view text);

  // Makes room for `more` further statements of usual length.
  void Reserve(size_t more);

  const Line& line(LineId id) const { return lines_[id]; }
  std::span<const Token> tokens(LineId id) const { return {tokens_.data() + lines_[id].first, lines_[id].count}; }
  // Returns the user's text of the statement from which `id` was made.
  std::string_view UserText(LineId id) const { return roots_[lines_[id].root]; }
  void AppendText(LineId id, std::string& text) const;
  std::string Text(LineId id) const;

  // Makes a new statement from `parent` by `stage`: call Begin, any number of Push, End. A Push makes spans from
  // tokens() invalid.
  void Begin(LineId parent, Stage stage);
  void Push(Token token) { tokens_.push_back(token); }
  void PushName(Symbol name, uint32_t column) { Push(MakeToken(TokenKind::kIdentifier, name, column)); }
  LineId End();
  Token TokenAt(LineId id, size_t index) const { return tokens_[lines_[id].first + index]; }

  // current() returns the present statements; After() those after a macro, if KeepStage was called then.
  std::vector<LineId>& current() { return current_; }
  const std::vector<LineId>& current() const { return current_; }
  void KeepStage(Stage stage) { kept_[Slot(stage)] = current_; }
  const std::vector<LineId>& After(Stage stage) const { return kept_[Slot(stage)]; }

 private:
  static size_t Slot(Stage stage);
  void FinishLine(Line& line);

  SymbolTable symbols_;
  std::vector<Token> tokens_;
  std::vector<Line> lines_;
  std::vector<std::string> roots_;
  std::vector<LineId> current_;
  std::array<std::vector<LineId>, kMacroStages.size()> kept_;
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_PROGRAM_H_
