// Runs the lexer and the parser of the mapping language on any text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "mapping/lexer.h"
#include "mapping/parser.h"
#include "mapping/program.h"

namespace {

using namespace cairn::aoa;  // NOLINT: the whole file is about it

bool Same(const Token& a, const Token& b) { return a.symbol == b.symbol && a.kind() == b.kind(); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  SymbolTable symbols;
  std::vector<Token> tokens;
  if (const auto fault = Lex(text, symbols, tokens)) {
    if (fault->position >= size || fault->message.empty()) std::abort();
    return 0;
  }
  // The text that is written out must read as the same tokens.
  std::string written;
  for (const Token& token : tokens) AppendToken(token, symbols, written);
  std::vector<Token> again;
  if (Lex(written, symbols, again).has_value() || again.size() > tokens.size()) std::abort();
  if (again.size() == tokens.size()) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!Same(tokens[i], again[i])) std::abort();
    }
  }
  Program program;
  if (program.AddText(text).fault.has_value()) std::abort();
  for (LineId line : program.current()) {
    Diagnostics diagnostics;
    const auto statement = ParseStatement(program, line, diagnostics);
    if (statement.has_value() != diagnostics.empty()) std::abort();
    if (statement.has_value() && (statement->left_count == 0 || statement->right_count == 0)) std::abort();
    for (const MappingError& error : diagnostics.Render(program, true)) {
      if (error.message.empty() || error.chain.empty() || !error.statement.has_value()) std::abort();
    }
  }
  return 0;
}
