// Expands stars: all names that match, or a rename of all of them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/macros.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// A name with one star, cut at it.
struct StarName {
  std::string_view prefix, suffix;
  bool transposed = false;

  explicit StarName(std::string_view name) : transposed(name.ends_with("^T")) {
    if (transposed) name.remove_suffix(2);
    prefix = name.substr(0, name.find('*'));
    suffix = name.substr(prefix.size() + 1);
  }
  std::string With(std::string_view middle) const { return absl::StrCat(View(prefix), View(middle), View(suffix)); }
  // Returns the text that the star matches; nothing if the name does not match.
  std::string_view Middle(std::string_view name) const {
    if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return {};
    return name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  }
};

// Returns true if a statement without a star has the name on this side of the arrow.
bool IsNamed(MacroContext& context, std::string_view name, bool left) {
  const SymbolTable& symbols = context.symbols();
  if (!context.named) {
    context.named.emplace();
    const auto note = [&](Symbol symbol, bool side) {
      if (symbols.Traits(symbol) & kHasStar) return;
      if (symbols.Traits(symbol) & kHasTransposeTag) {
        const std::string_view text = symbols.Text(symbol);
        symbol = context.program.symbols().Intern(text.substr(0, text.size() - 2));
      }
      std::vector<bool>& named = (*context.named)[side ? 0 : 1];
      if (named.size() <= symbol) named.resize(symbol + size_t{1}, false);
      named[symbol] = true;
    };
    for (const LineId line : context.program.current()) {
      const StatementNames names = NamesOf(context.program, line);
      for (const uint32_t at : names.left) note(context.program.TokenAt(line, at).symbol, true);
      for (const uint32_t at : names.right) note(context.program.TokenAt(line, at).symbol, false);
    }
  }
  const std::vector<bool>& named = (*context.named)[left ? 0 : 1];
  const auto symbol = symbols.Find(name);
  return symbol && *symbol < named.size() && named[*symbol];
}

// Rewrites a statement that renames: `a.* -> b.*`. The star stands for any text, the same on both sides. Returns false
// if the statement is none, or if its stars stand for two single names with different numbers, as in Paddle.
bool ExpandStarPair(MacroContext& context, LineId line, std::vector<LineId>& out) {
  Program& program = context.program;
  const SymbolTable& symbols = context.symbols();
  const StatementNames names = NamesOf(program, line);
  if (names.left.size() != 1 || names.right.size() != 1) return false;
  const std::string_view texts[] = {symbols.Text(program.TokenAt(line, names.left[0]).symbol),
                                    symbols.Text(program.TokenAt(line, names.right[0]).symbol)};
  for (const std::string_view text : texts) {
    if (std::count(text.begin(), text.end(), '*') != 1) return false;
  }
  const StarName left(texts[0]), right(texts[1]);
  const auto numbered = [&](KeySpace& side, const StarName& name) {
    const std::vector<Symbol> found = side.MatchStar(name.With("*"), symbols, context.tries);
    return found.size() == 1 ? name.Middle(symbols.Text(found[0])) : std::string_view();
  };
  const std::string_view number = numbered(context.left, left), other = numbered(context.right, right);
  if (!number.empty() && !other.empty() && number != other) return false;
  // The names on the read side are expanded. If the written side has any of the new names, only names whose new name is
  // there count; nobody would use the others.
  const bool from_left = !context.reverse;
  const StarName &read = from_left ? left : right, &written = from_left ? right : left;
  KeySpace &source = from_left ? context.left : context.right, &target = from_left ? context.right : context.left;
  const bool choose =
      target.known() && std::any_of(target.weights().begin(), target.weights().end(),
                                    [&](Symbol weight) { return !written.Middle(symbols.Text(weight)).empty(); });
  std::vector<std::string_view> middles;
  bool any = false;
  for (const Symbol weight : source.weights()) {
    const std::string_view middle = read.Middle(symbols.Text(weight));
    if (middle.empty()) continue;
    any = true;
    const std::string name = written.With(middle);
    if (choose) {
      const auto found = symbols.Find(name);
      if (!found || !target.HasWeight(*found)) continue;
    }
    // A statement about a single name has priority over a star.
    if (!IsNamed(context, symbols.Text(weight), from_left) && !IsNamed(context, name, !from_left)) {
      middles.push_back(middle);
    }
  }
  if (!any) {
    context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kStar, NoMatch(context, read.With("*"), from_left));
    return true;
  }
  const size_t count = program.line(line).count;
  if (middles.size() * count > kMaxTokens) {
    context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kStar,
                            absl::StrCat("the statement would become ", middles.size(), " statements, too many"));
    return true;
  }
  out.reserve(out.size() + middles.size());
  for (const std::string_view middle : middles) {
    program.Begin(line, Stage::kStar);
    for (size_t i = 0; i < count; ++i) {
      Token token = program.TokenAt(line, i);
      for (const auto& [at, name] : {std::pair(names.left[0], &left), std::pair(names.right[0], &right)}) {
        if (i == at) token.symbol = program.symbols().Intern(name->With(middle) + (name->transposed ? "^T" : ""));
      }
      program.Push(token);
    }
    out.push_back(program.End());
  }
  return true;
}

}  // namespace

void ExpandStars(MacroContext& context, LineId line, std::vector<LineId>& out) {
  if (ExpandStarPair(context, line, out)) return;
  Program& program = context.program;
  const SymbolTable& symbols = context.symbols();
  const size_t count = program.line(line).count;
  std::vector<std::pair<size_t, std::vector<Symbol>>> stars;
  bool left = true;
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const Token token = program.TokenAt(line, i);
    if (token.is(TokenKind::kArrow)) left = false;
    if (!token.is(TokenKind::kIdentifier) || !(symbols.Traits(token.symbol) & kHasStar)) continue;
    const std::string_view written = symbols.Text(token.symbol);
    const bool transposed = written.ends_with("^T");
    const std::string_view name = transposed ? written.substr(0, written.size() - 2) : written;
    if (std::count(name.begin(), name.end(), '*') != 1) {
      return context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kStar,
                                     absl::StrCat("the name ", context.Quoted(token.symbol), " has more than one '*'"));
    }
    std::vector<Symbol> found = (left ? context.left : context.right).MatchStar(name, symbols, context.tries);
    if (context.tries == 0) {
      return context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kStar, TooManyTries(name));
    }
    if (found.empty()) {
      return context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kStar, NoMatch(context, name, left));
    }
    if (transposed) {
      for (Symbol& key : found) key = program.symbols().Intern(absl::StrCat(View(symbols.Text(key)), "^T"));
    }
    total += found.size();
    stars.emplace_back(i, std::move(found));
  }
  if (total > kMaxNamesPerStatement) {
    return context.diagnostics.Add(
        Reason::kMappingMacro, line, Stage::kStar,
        absl::StrCat("the statement would name ", total, " tensors, more than ", kMaxNamesPerStatement));
  }
  program.Begin(line, Stage::kStar);
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const Token token = program.TokenAt(line, i);
    if (next == stars.size() || stars[next].first != i) {
      program.Push(token);
      continue;
    }
    const std::vector<Symbol>& names = stars[next++].second;
    for (size_t k = 0; k < names.size(); ++k) {
      if (k > 0) program.Push(MakeToken(TokenKind::kComma, 0, token.column));
      program.PushName(names[k], token.column);
    }
  }
  out.push_back(program.End());
}

}  // namespace cairn::aoa
