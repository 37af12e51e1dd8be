#include "mapping/lexer.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace cairn::aoa {
namespace {

enum CharClass : uint8_t { kOther = 0, kNameStart = 1, kNamePart = 2, kDigit = 4, kBlank = 8, kLineEnd = 16 };

constexpr std::array<uint8_t, 256> kClasses = [] {
  std::array<uint8_t, 256> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = kNameStart | kNamePart;
  for (int c = 'A'; c <= 'Z'; ++c) classes[c] = kNameStart | kNamePart;
  for (int c = '0'; c <= '9'; ++c) classes[c] = kNamePart | kDigit;
  for (char c : {'_', '*'}) classes[static_cast<unsigned char>(c)] = kNameStart | kNamePart;
  for (char c : {'.', '$', '^'}) classes[static_cast<unsigned char>(c)] = kNamePart;
  classes[' '] = classes['\t'] = kBlank;
  classes['\n'] = classes['\r'] = kLineEnd;
  return classes;
}();

uint8_t ClassOf(char c) { return kClasses[static_cast<unsigned char>(c)]; }

// Returns the bytes of the character at `at`, so that a message does not cut a character.
std::string_view CharacterAt(std::string_view text, size_t at) {
  size_t size = 1;
  while (size < 4 && at + size < text.size() && (static_cast<unsigned char>(text[at + size]) & 0xc0) == 0x80) ++size;
  return text.substr(at, size);
}

std::string Unexpected(std::string_view text, size_t at) {
  const std::string_view character = CharacterAt(text, at);
  std::string message = absl::StrCat("Unexpected character '", absl::string_view(character.data(), character.size()),
                                     "' at position ", at);
  // A text of many statements has lines, and people look for these.
  if (text.find('\n') != std::string_view::npos) {
    const std::string_view before = text.substr(0, at);
    const size_t begin = before.rfind('\n');
    absl::StrAppend(&message, " (line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ",
                    begin == std::string_view::npos ? at + 1 : at - begin, ")");
  }
  if (text[at] == '"' || text[at] == '\'') absl::StrAppend(&message, ": the quote is never closed");
  if (text[at] == '-' || text[at] == '/') absl::StrAppend(&message, ": names hold letters, digits and . _ only");
  return message;
}

}  // namespace

std::optional<LexFault> Lex(std::string_view text, SymbolTable& symbols, std::vector<Token>& tokens) {
  if (text.size() > kMaxStatementBytes) {
    return LexFault{kMaxStatementBytes, absl::StrCat("The statement has ", text.size(), " bytes, more than the ",
                                                     kMaxStatementBytes, " allowed")};
  }
  const auto push = [&](TokenKind kind, size_t column, Symbol symbol = 0) {
    tokens.push_back(MakeToken(kind, symbol, static_cast<uint32_t>(column)));
  };
  const auto span = [&](size_t from, uint8_t classes) {
    size_t to = from;
    while (to < text.size() && (ClassOf(text[to]) & classes) != 0) ++to;
    return to;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const uint8_t kind = ClassOf(c);
    if (kind & kNameStart) {
      const size_t end = span(at, kNamePart);
      push(TokenKind::kIdentifier, at, symbols.Intern(text.substr(at, end - at)));
      at = end;
    } else if (kind & kDigit) {
      const size_t end = span(at, kDigit);
      push(TokenKind::kNumber, at, symbols.Intern(text.substr(at, end - at)));
      at = end;
    } else if (kind & kBlank) {
      at = span(at, kBlank);
    } else if (kind & kLineEnd) {
      push(TokenKind::kNewline, at);
      at = span(at, kLineEnd);
    } else if (c == '#') {
      while (at < text.size() && (ClassOf(text[at]) & kLineEnd) == 0) ++at;
    } else if (c == '"' || c == '\'') {
      const size_t end = text.find(c, at + 1);
      if (end == std::string_view::npos) return LexFault{at, Unexpected(text, at)};
      push(c == '"' ? TokenKind::kDoubleQuoted : TokenKind::kSingleQuoted, at,
           symbols.Intern(text.substr(at + 1, end - at - 1)));
      at = end + 1;
    } else if (c == '-' && at + 1 < text.size() && text[at + 1] == '>') {
      push(TokenKind::kArrow, at);
      at += 2;
    } else {
      switch (c) {
        case '=':
          push(TokenKind::kEqual, at);
          break;
        case ':':
          push(TokenKind::kColon, at);
          break;
        case '[':
          push(TokenKind::kLeftBracket, at);
          break;
        case ']':
          push(TokenKind::kRightBracket, at);
          break;
        case ',':
          push(TokenKind::kComma, at);
          break;
        default:
          return LexFault{at, Unexpected(text, at)};
      }
      ++at;
    }
  }
  return std::nullopt;
}

std::string_view NameOf(TokenKind kind) {
  switch (kind) {
    case TokenKind::kIdentifier:
      return "IDENTIFIER";
    case TokenKind::kNumber:
      return "NUMBER";
    case TokenKind::kDoubleQuoted:
    case TokenKind::kSingleQuoted:
      return "STRING";
    case TokenKind::kArrow:
      return "RARROW";
    case TokenKind::kEqual:
      return "EQUAL";
    case TokenKind::kColon:
      return "COLON";
    case TokenKind::kLeftBracket:
      return "LBRACKET";
    case TokenKind::kRightBracket:
      return "RBRACKET";
    case TokenKind::kComma:
      return "COMMA";
    case TokenKind::kNewline:
      return "NEWLINE";
  }
  return "?";
}

void AppendToken(const Token& token, const SymbolTable& symbols, std::string& text) {
  switch (token.kind()) {
    case TokenKind::kIdentifier:
    case TokenKind::kNumber:
      text += symbols.Text(token.symbol);
      break;
    case TokenKind::kDoubleQuoted:
      (((text += '"') += symbols.Text(token.symbol)) += '"');
      break;
    case TokenKind::kSingleQuoted:
      (((text += '\'') += symbols.Text(token.symbol)) += '\'');
      break;
    case TokenKind::kArrow:
      text += " -> ";
      break;
    case TokenKind::kEqual:
      text += '=';
      break;
    case TokenKind::kColon:
      text += ':';
      break;
    case TokenKind::kLeftBracket:
      text += '[';
      break;
    case TokenKind::kRightBracket:
      text += ']';
      break;
    case TokenKind::kComma:
      text += ", ";
      break;
    case TokenKind::kNewline:
      text += '\n';
      break;
  }
}

}  // namespace cairn::aoa
