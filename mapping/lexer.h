// Cuts statements of the mapping language into tokens:
//
//   ->  =  :  [  ]  ,   digits   "text" or 'text' without escapes   names
//
// A name begins with a letter or "_", followed by letters, digits and . $ _ * ^ . Blanks and tabs separate tokens. "#"
// begins a comment, which ends with its line. Several line ends in a row are one NEWLINE.
#ifndef CAIRN_MAPPING_LEXER_H_
#define CAIRN_MAPPING_LEXER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mapping/symbol_table.h"

namespace cairn::aoa {

enum class TokenKind : uint8_t {
  kIdentifier,
  kNumber,
  kDoubleQuoted,
  kSingleQuoted,
  kArrow,
  kEqual,
  kColon,
  kLeftBracket,
  kRightBracket,
  kComma,
  kNewline,
};

struct Token {
  Symbol symbol;  // identifiers and numbers: the text; strings: the text inside the quotes; else 0
  uint32_t kind_bits : 4;
  uint32_t column : 28;  // position in the user's statement, counted from 0; macros keep it

  TokenKind kind() const { return static_cast<TokenKind>(kind_bits); }
  bool is(TokenKind wanted) const { return kind() == wanted; }
  bool is_string() const { return is(TokenKind::kDoubleQuoted) || is(TokenKind::kSingleQuoted); }
};
static_assert(sizeof(Token) == 8);

inline Token MakeToken(TokenKind kind, Symbol symbol, uint32_t column) {
  return {symbol, static_cast<uint32_t>(kind) & 0xfu, column & 0xfffffffu};
}

// Longer statements are refused, because a column must fit into its 28 bits. No statement that a person writes is that
// long.
inline constexpr size_t kMaxStatementBytes = 1 << 24;

struct LexFault {
  size_t position;      // byte in `text`
  std::string message;  // "Unexpected character '!' at position 7"
};

// Appends the tokens of `text`. Stops at the first fault and returns it.
std::optional<LexFault> Lex(std::string_view text, SymbolTable& symbols, std::vector<Token>& tokens);

// Returns the name of a kind for messages: "RARROW", "IDENTIFIER".
std::string_view NameOf(TokenKind kind);

// Appends the text of the token, with blanks that make a statement readable.
void AppendToken(const Token& token, const SymbolTable& symbols, std::string& text);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_LEXER_H_
