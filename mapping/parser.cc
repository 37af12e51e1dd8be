#include "mapping/parser.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::aoa {
namespace {

class LineParser {
 public:
  LineParser(const Program& program, LineId line, Diagnostics& diagnostics)
      : program_(program), tokens_(program.tokens(line)), line_(line), diagnostics_(diagnostics) {}

  std::optional<Statement> Parse() {
    Statement statement;
    statement.line = line_;
    statement.left_count = Names(false);
    if (statement.left_count == 0 || !Expect(TokenKind::kArrow, "'->'")) return std::nullopt;
    statement.right_first = static_cast<uint32_t>(at_);
    statement.right_count = Names(true);
    if (statement.right_count == 0) return std::nullopt;
    while (at_ < tokens_.size()) {
      if (!Expect(TokenKind::kComma, "','") || !ParseAttribute(statement)) return std::nullopt;
    }
    return statement;
  }

 private:
  bool Is(size_t at, TokenKind kind) const { return at < tokens_.size() && tokens_[at].is(kind); }

  bool Fail(std::string message) {
    diagnostics_.Add(Reason::kMappingSyntax, line_, Stage::kParser, std::move(message));
    return false;
  }

  bool Expect(TokenKind kind, const char* written) {
    if (Is(at_, kind)) {
      ++at_;
      return true;
    }
    return Unexpected(absl::StrCat(std::string(NameOf(kind)), " (", written, ")"));
  }

  bool Unexpected(std::string_view expected) {
    std::string got = "NEWLINE (the end of the statement)";
    std::string where = absl::StrCat("pos ", at_);
    if (at_ < tokens_.size()) {
      got = std::string(NameOf(tokens_[at_].kind()));
      got += " '";
      AppendToken(tokens_[at_], program_.symbols(), got);
      got += '\'';
      // Columns are those of the user's text only while no macro has rewritten the statement.
      if (program_.line(line_).parent == kNoLine) absl::StrAppend(&where, ", column ", tokens_[at_].column + 1);
    }
    return Fail(absl::StrCat("Expected ", std::string(expected), ", got ", got, " at ", where));
  }

  // Reads a list of names, which ends on the right side where an attribute begins. Returns their number, 0 after an
  // error.
  uint32_t Names(bool right) {
    uint32_t count = 0;
    while (true) {
      if (!Is(at_, TokenKind::kIdentifier)) {
        Unexpected("IDENTIFIER (a tensor's name)");
        return 0;
      }
      if (IsKeyword(tokens_[at_].symbol)) {
        std::string name(program_.symbols().Text(tokens_[at_].symbol));
        Fail(absl::StrCat("'", name, "' is a reserved word and cannot be a tensor's name",
                          Is(at_ + 1, TokenKind::kEqual) ? "; a comma must stand before an attribute" : ""));
        return 0;
      }
      ++count;
      ++at_;
      if (!Is(at_, TokenKind::kComma)) return count;
      if (right && Is(at_ + 1, TokenKind::kIdentifier) && Is(at_ + 2, TokenKind::kEqual)) return count;
      ++at_;
    }
  }

  bool ParseAttribute(Statement& statement) {
    if (!Is(at_, TokenKind::kIdentifier)) return Unexpected("IDENTIFIER (an attribute)");
    Attribute attribute{.key = tokens_[at_++].symbol};
    if (!Expect(TokenKind::kEqual, "'='")) return false;
    if (at_ >= tokens_.size() || !(tokens_[at_].is(TokenKind::kNumber) || tokens_[at_].is_string())) {
      return Unexpected("a NUMBER or a STRING in quotes; Unexpected value");
    }
    attribute.is_string = tokens_[at_].is_string();
    attribute.value = tokens_[at_++].symbol;
    for (const Attribute& other : statement.attributes) {
      if (other.key == attribute.key) {
        return Fail(
            absl::StrCat("the attribute '", std::string(program_.symbols().Text(attribute.key)), "' is given twice"));
      }
    }
    statement.attributes.push_back(attribute);
    return true;
  }

  const Program& program_;
  std::span<const Token> tokens_;
  LineId line_;
  Diagnostics& diagnostics_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Statement> ParseStatement(const Program& program, LineId line, Diagnostics& diagnostics) {
  return LineParser(program, line, diagnostics).Parse();
}

std::optional<int64_t> ParseNumber(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty() || value < 0) return std::nullopt;
  return value;
}

std::optional<Shape> ParseList(std::string_view text) {
  const auto skip = [&] {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  };
  const auto take = [&](char c) {
    skip();
    if (text.empty() || text.front() != c) return false;
    text.remove_prefix(1);
    return true;
  };
  Shape list;
  if (!take('[')) return std::nullopt;
  if (take(']')) {
    skip();
    return text.empty() ? std::optional(list) : std::nullopt;
  }
  do {
    skip();
    size_t digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
    const auto value = ParseNumber(text.substr(0, digits));
    if (!value.has_value()) return std::nullopt;
    list.push_back(*value);
    text.remove_prefix(digits);
  } while (take(','));
  if (!take(']')) return std::nullopt;
  skip();
  return text.empty() ? std::optional(list) : std::nullopt;
}

}  // namespace cairn::aoa
