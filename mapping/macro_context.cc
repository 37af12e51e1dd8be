#include "mapping/macro_context.h"

#include "absl/strings/str_cat.h"
#include "mapping/suggestion.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string_view SideName(const MacroContext& context, bool left) {
  return left != context.reverse ? "source" : "destination";
}

bool IsPastNames(const Token& token) { return token.is(TokenKind::kIdentifier) && IsKeyword(token.symbol); }

}  // namespace

std::string NoMatch(MacroContext& context, std::string_view name, bool left) {
  const KeySpace& side = left ? context.left : context.right;
  const std::string_view side_name = SideName(context, left);
  if (!side.known()) {
    return absl::StrCat("'", View(name), "' can only be expanded over the ", View(side_name),
                        " tensors, and none were given");
  }
  std::string text = absl::StrCat("no ", View(side_name), " tensor matches '", View(name), "'");
  if (context.diagnostics.has_room()) {
    // A name can be near only once its placeholders hold some number.
    std::string example;
    NamePattern::Captures zero;
    zero.fill("0");
    NamePattern(name).Substitute(zero, example);
    text += Suggest(example, side.weights(), context.symbols());
  }
  return text;
}

std::string TooManyTries(std::string_view name) {
  return absl::StrCat(
      "there are too many ways in which '", View(name),
      "' can match the tensors' names: put something else than digits between its placeholders, or list "
      "the names in statements of their own");
}

std::string CountMadeNames(MacroContext& context, size_t names) {
  context.made_names += names;
  if (context.made_names <= kMaxMadeNames) return "";
  return absl::StrCat("with this statement the mapping makes more than ", kMaxMadeNames,
                      " names for the elements of arrays, heads and ranks: give smaller numbers, or split the mapping");
}

StatementNames NamesOf(const Program& program, LineId line) {
  StatementNames names;
  const auto tokens = program.tokens(line);
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    if (IsPastNames(tokens[i])) break;
    if (tokens[i].is(TokenKind::kArrow)) names.has_arrow = true;
    if (tokens[i].is(TokenKind::kIdentifier)) (names.has_arrow ? names.right : names.left).push_back(i);
  }
  return names;
}

}  // namespace cairn::aoa
