// Expands $LAYER_ID_OFFSET.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/macros.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

constexpr size_t kOffset = static_cast<size_t>(Placeholder::kLayerIdOffset);

// Returns number + delta for a text of digits; nothing if the result is beyond 2^63 or below 0.
std::optional<std::string> Add(std::string_view digits, int64_t delta) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (__builtin_add_overflow(number, delta, &number) || number < 0) return std::nullopt;
  return absl::StrCat(number);
}

}  // namespace

// Names left of the arrow get N and those right of it N - 1, for every N that a tensor on the read side has.
void ExpandLayerIdOffset(MacroContext& context, LineId line, std::vector<LineId>& out) {
  const auto fail = [&](std::string message) {
    context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kLayerIdOffset, std::move(message));
  };
  Program& program = context.program;
  const StatementNames names = NamesOf(program, line);
  for (const auto* side : {&names.left, &names.right}) {
    for (uint32_t at : *side) {
      const Symbol name = program.TokenAt(line, at).symbol;
      if (name == kNothing || (context.symbols().Traits(name) & kHasOffsetTag)) continue;
      return fail(absl::StrCat("all names must contain $LAYER_ID_OFFSET when one does, but ", context.Quoted(name),
                               " does not"));
    }
  }
  // The tensors that are read stand left of the arrow, or right of it when the program runs backwards.
  const bool from_left = !context.reverse;
  std::optional<Symbol> reference;
  bool reference_left = from_left;
  for (bool left : {from_left, !from_left}) {
    for (uint32_t at : left ? names.left : names.right) {
      const Symbol name = program.TokenAt(line, at).symbol;
      if (name == kNothing || reference.has_value()) continue;
      reference = name;
      reference_left = left;
    }
  }
  if (!reference.has_value()) return fail("no name contains $LAYER_ID_OFFSET");
  std::vector<std::string_view> numbers;
  const NamePattern pattern(context.symbols().Text(*reference));
  (reference_left ? context.left : context.right)
      .Match(pattern, context.symbols(), context.tries,
             [&](Symbol, const NamePattern::Captures& captures) { numbers.push_back(captures[kOffset]); });
  std::sort(numbers.begin(), numbers.end(), NumberLess);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (context.tries == 0) return fail(TooManyTries(context.symbols().Text(*reference)));
  if (numbers.empty()) {
    return context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kLayerIdOffset,
                                   NoMatch(context, context.symbols().Text(*reference), reference_left));
  }
  std::string text;
  for (std::string_view number : numbers) {
    const auto other = Add(number, reference_left ? -1 : 1);
    if (!other.has_value()) {
      return fail(absl::StrCat("layer ", View(number), " of '", View(context.symbols().Text(*reference)), "' has no ",
                               reference_left ? "predecessor" : "successor",
                               ": $LAYER_ID_OFFSET writes N left of the arrow and N - 1 right of it"));
    }
    program.Begin(line, Stage::kLayerIdOffset);
    bool left = true;
    for (size_t i = 0; i < program.line(line).count; ++i) {
      Token token = program.TokenAt(line, i);
      if (token.is(TokenKind::kArrow)) left = false;
      if (token.is(TokenKind::kIdentifier) && (context.symbols().Traits(token.symbol) & kHasOffsetTag)) {
        NamePattern::Captures values;
        values[kOffset] = left == reference_left ? number : std::string_view(*other);
        text.clear();
        NamePattern(context.symbols().Text(token.symbol)).Substitute(values, text);
        token.symbol = program.symbols().Intern(text);
      }
      program.Push(token);
    }
    out.push_back(program.End());
  }
}

}  // namespace cairn::aoa
