#include "mapping/macros.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/suggestion.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

constexpr Placeholder kIdTags[] = {Placeholder::kExpertId, Placeholder::kLayerId};
constexpr size_t kOffset = static_cast<size_t>(Placeholder::kLayerIdOffset);
constexpr size_t kExpert = static_cast<size_t>(Placeholder::kExpertId);
constexpr size_t kLayer = static_cast<size_t>(Placeholder::kLayerId);

std::string_view SideName(const MacroContext& context, bool left) {
  return left != context.reverse ? "source" : "destination";
}

// Returns "no source tensor matches 'a.$LAYER_ID'", and names that are near.
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

bool IsPastNames(const Token& token) { return token.is(TokenKind::kIdentifier) && IsKeyword(token.symbol); }

// Returns number + delta for a text of digits; nothing if the result is beyond 2^63 or below 0.
std::optional<std::string> Add(std::string_view digits, int64_t delta) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (__builtin_add_overflow(number, delta, &number) || number < 0) return std::nullopt;
  return absl::StrCat(number);
}

}  // namespace

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
      .Match(pattern, context.symbols(),
             [&](Symbol, const NamePattern::Captures& captures) { numbers.push_back(captures[kOffset]); });
  std::sort(numbers.begin(), numbers.end(), NumberLess);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
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

namespace {

struct Combination {
  std::string_view expert, layer;
  uint64_t expert_number, layer_number;  // saturated; only numbers of 20 digits and more need their texts compared

  Combination(std::string_view e, std::string_view l)
      : expert(e), layer(l), expert_number(NumberOf(e)), layer_number(NumberOf(l)) {}
  bool operator==(const Combination& other) const {
    return expert_number == other.expert_number && layer_number == other.layer_number && expert == other.expert &&
           layer == other.layer;
  }

  static uint64_t NumberOf(std::string_view digits) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() || digits.empty() ? number : UINT64_MAX;
  }
};

bool Less(const Combination& a, const Combination& b) {
  if (a.expert_number != b.expert_number) return a.expert_number < b.expert_number;
  if (a.layer_number != b.layer_number) return a.layer_number < b.layer_number;
  if (a.expert != b.expert) return NumberLess(a.expert, b.expert);
  return NumberLess(a.layer, b.layer);
}

// Returns the id combinations of all names of one side that match `name`.
std::vector<Combination> Combinations(MacroContext& context, std::string_view name, bool left) {
  std::vector<Combination> found;
  KeySpace& side = left ? context.left : context.right;
  const NamePattern pattern(name.ends_with("^T") ? name.substr(0, name.size() - 2) : name);
  side.Match(pattern, context.symbols(), [&](Symbol, const NamePattern::Captures& captures) {
    const Combination combination(captures[kExpert], captures[kLayer]);
    if (found.empty() || !(found.back() == combination)) found.push_back(combination);
  });
  return found;
}

// Returns the same for temporaries: names that statements give which are executed earlier.
std::vector<Combination> AmongEarlier(MacroContext& context, std::string_view name,
                                      const std::vector<LineId>& earlier) {
  std::vector<Combination> found;
  const NamePattern pattern(name.ends_with("^T") ? name.substr(0, name.size() - 2) : name);
  NamePattern::Captures captures;
  for (LineId line : earlier) {
    const StatementNames names = NamesOf(context.program, line);
    for (uint32_t at : context.reverse ? names.left : names.right) {
      std::string_view given = context.symbols().Text(context.program.TokenAt(line, at).symbol);
      if (given.ends_with("^T")) given.remove_suffix(2);
      if (pattern.Match(given, captures)) {
        found.emplace_back(captures[kExpert], captures[kLayer]);
      }
    }
  }
  return found;
}

}  // namespace

void ExpandIds(MacroContext& context, LineId line, std::vector<LineId>& out) {
  const auto fail = [&](std::string message) {
    context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kId, std::move(message));
  };
  Program& program = context.program;
  const SymbolTable& symbols = context.symbols();
  const StatementNames names = NamesOf(program, line);
  uint8_t wanted = 0;
  constexpr uint8_t kIdBits = (1u << kExpert) | (1u << kLayer);
  for (const auto* side : {&names.left, &names.right}) {
    for (uint32_t at : *side) wanted |= NamePattern(symbols.Text(program.TokenAt(line, at).symbol)).present();
  }
  wanted &= kIdBits;
  if (wanted == 0) return fail("a placeholder stands where no name is expected");
  for (const auto* side : {&names.left, &names.right}) {
    for (uint32_t at : *side) {
      const Symbol name = program.TokenAt(line, at).symbol;
      if (name == kNothing) continue;
      if ((wanted & ~NamePattern(symbols.Text(name)).present()) == 0) continue;
      std::string tags;
      for (Placeholder tag : kIdTags) {
        if ((wanted >> static_cast<int>(tag)) & 1) absl::StrAppend(&tags, tags.empty() ? "" : ", ", View(TagOf(tag)));
      }
      return fail(absl::StrCat("the name ", context.Quoted(name), " must contain all of the following keys: ", tags));
    }
  }
  // This is the first name that real tensors match. Names that are read come before names that are written.
  const bool from_left = !context.reverse;
  std::vector<Combination> combinations;
  std::optional<std::pair<Symbol, bool>> first;
  for (bool left : {from_left, !from_left}) {
    for (uint32_t at : left ? names.left : names.right) {
      const Symbol name = program.TokenAt(line, at).symbol;
      if (name == kNothing || !combinations.empty()) continue;
      if (!first.has_value()) first = {name, left};
      combinations = Combinations(context, symbols.Text(name), left);
    }
  }
  if (combinations.empty() && first.has_value()) {
    combinations = AmongEarlier(context, symbols.Text(first->first), out);
  }
  if (combinations.empty()) {
    if (!first.has_value()) return fail("no name contains a placeholder");
    return fail(NoMatch(context, symbols.Text(first->first), first->second));
  }
  std::sort(combinations.begin(), combinations.end(), Less);
  combinations.erase(std::unique(combinations.begin(), combinations.end()), combinations.end());

  // The names with placeholders are cut up once for all combinations.
  std::vector<std::pair<size_t, NamePattern>> patterns;
  const size_t count = program.line(line).count;
  if (combinations.size() * count > kMaxTokens) {
    return fail(absl::StrCat("the statement would become ", combinations.size(), " statements, too many"));
  }
  for (size_t i = 0; i < count; ++i) {
    const Token token = program.TokenAt(line, i);
    if (token.is(TokenKind::kIdentifier) && (symbols.Traits(token.symbol) & kHasIdTag)) {
      patterns.emplace_back(i, NamePattern(symbols.Text(token.symbol)));
    }
  }
  out.reserve(out.size() + combinations.size());
  NameBatch batch;
  for (size_t begin = 0, end = 0; begin < combinations.size(); begin = end) {
    batch.Clear();
    for (; end < combinations.size() && !batch.full(); ++end) {
      NamePattern::Captures values;
      values[kExpert] = combinations[end].expert;
      values[kLayer] = combinations[end].layer;
      for (const auto& pattern : patterns) {
        pattern.second.Substitute(values, batch.text());
        batch.End();
      }
    }
    auto name = batch.Intern(program.symbols()).begin();
    for (size_t k = begin; k < end; ++k) {
      program.Begin(line, Stage::kId);
      size_t next = 0;
      for (size_t i = 0; i < count; ++i) {
        Token token = program.TokenAt(line, i);
        if (next < patterns.size() && patterns[next].first == i) {
          token.symbol = *name++;
          ++next;
        }
        program.Push(token);
      }
      out.push_back(program.End());
    }
  }
}

void ExpandArrays(MacroContext& context, LineId line, std::vector<LineId>& out) {
  Program& program = context.program;
  const size_t count = program.line(line).count;
  const auto fail = [&](size_t at, std::string_view what) {
    context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kArray,
                            absl::StrCat("an array must be written NAME[START:END], but at column ",
                                         program.TokenAt(line, at).column + 1, " ", View(what)));
  };
  struct Array {
    size_t bracket;
    int64_t start, end;
  };
  std::vector<Array> arrays;
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!program.TokenAt(line, i).is(TokenKind::kLeftBracket)) continue;
    constexpr TokenKind kForm[] = {TokenKind::kLeftBracket, TokenKind::kNumber, TokenKind::kColon, TokenKind::kNumber,
                                   TokenKind::kRightBracket};
    bool fits = i + 5 <= count;
    for (size_t k = 0; fits && k < 5; ++k) fits = program.TokenAt(line, i + k).is(kForm[k]);
    if (!fits) {
      return fail(i, "stands another bracket (a list is written in quotes: permute='[1, 0]')");
    }
    if (i == 0 || !program.TokenAt(line, i - 1).is(TokenKind::kIdentifier)) return fail(i, "no name comes before it");
    Array array{i, 0, 0};
    for (auto [at, number] : {std::pair(i + 1, &array.start), std::pair(i + 3, &array.end)}) {
      const std::string_view digits = context.symbols().Text(program.TokenAt(line, at).symbol);
      if (std::from_chars(digits.data(), digits.data() + digits.size(), *number).ec != std::errc()) {
        return fail(i, "a number is too large");
      }
    }
    if (array.start >= array.end) return fail(i, "the array is empty: END must be larger than START");
    total += static_cast<size_t>(array.end - array.start);
    if (array.end - array.start > static_cast<int64_t>(kMaxNamesPerStatement) || total > kMaxNamesPerStatement) {
      return fail(i, absl::StrCat("stand more than ", kMaxNamesPerStatement, " names"));
    }
    arrays.push_back(array);
  }
  std::string text;
  program.Begin(line, Stage::kArray);
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const Token token = program.TokenAt(line, i);
    if (next == arrays.size() || i + 1 != arrays[next].bracket) {
      program.Push(token);
      continue;
    }
    const Array& array = arrays[next++];
    for (int64_t k = array.start; k < array.end; ++k) {
      if (k > array.start) program.Push(MakeToken(TokenKind::kComma, 0, token.column));
      text = absl::StrCat(View(context.symbols().Text(token.symbol)), "_", k);
      program.PushName(program.symbols().Intern(text), token.column);
    }
    i += 5;
  }
  out.push_back(program.End());
}

namespace {

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
  // Returns what the star stands for; nothing if the name does not match.
  std::string_view Middle(std::string_view name) const {
    if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return {};
    return name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  }
};

// Returns true if a statement gives a name itself, on one side of the arrow.
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
    const std::vector<Symbol> found = side.MatchStar(name.With("*"), symbols);
    return found.size() == 1 ? name.Middle(symbols.Text(found[0])) : std::string_view();
  };
  const std::string_view number = numbered(context.left, left), other = numbered(context.right, right);
  if (!number.empty() && !other.empty() && number != other) return false;
  // The names that are read decide. Of those that are written, only these count that there are, if they are known; the
  // others would be read in vain.
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
    // What another statement says about one name goes before what a star says about many.
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
    std::vector<Symbol> found = (left ? context.left : context.right).MatchStar(name, symbols);
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

void RunMacros(MacroContext& context) {
  Program& program = context.program;
  std::vector<LineId> next;
  // A statement that does not concern the macro passes through unchanged.
  const auto run = [&](Stage stage, auto&& concerns, auto&& expand) {
    if (!context.diagnostics.empty()) return;
    const bool any = std::any_of(program.current().begin(), program.current().end(),
                                 [&](LineId line) { return concerns(program.line(line)); });
    if (any) {
      next.clear();
      next.reserve(program.current().size());
      // Statements are taken in the order of execution, because placeholders of temporaries are looked up among earlier
      // ones.
      std::vector<LineId> order = program.current();
      if (context.reverse) std::reverse(order.begin(), order.end());
      for (LineId line : order) {
        const size_t first = next.size();
        if (concerns(program.line(line))) {
          expand(line, next);
        } else {
          next.push_back(line);
        }
        // The whole list is turned around once more below.
        if (context.reverse) std::reverse(next.begin() + static_cast<std::ptrdiff_t>(first), next.end());
      }
      if (context.reverse) std::reverse(next.begin(), next.end());
      program.current().swap(next);
    }
    program.KeepStage(stage);
  };
  const auto has = [](uint8_t trait) { return [trait](const Line& line) { return (line.traits & trait) != 0; }; };
  const auto simple = [&](void (*expand)(MacroContext&, LineId, std::vector<LineId>&)) {
    return [&context, expand](LineId line, std::vector<LineId>& out) { expand(context, line, out); };
  };
  run(Stage::kLayerIdOffset, has(kHasOffsetTag), simple(ExpandLayerIdOffset));
  run(Stage::kId, has(kHasIdTag), simple(ExpandIds));
  run(Stage::kArray, [](const Line& line) { return line.has_bracket; }, simple(ExpandArrays));
  run(Stage::kStar, has(kHasStar), simple(ExpandStars));
  if (!context.diagnostics.empty()) return;

  TemporaryMacros temporaries(context);
  temporaries.CheckChains();
  const auto fused = [](const Line& line) { return line.has_fused_flag; };
  const auto member = [&](void (TemporaryMacros::*expand)(LineId, std::vector<LineId>&)) {
    return [&temporaries, expand](LineId line, std::vector<LineId>& out) { (temporaries.*expand)(line, out); };
  };
  temporaries.NameTransposes();
  run(Stage::kTranspose, has(kHasTransposeTag), member(&TemporaryMacros::ExpandTranspose));
  run(Stage::kFusedQkvOld, fused, member(&TemporaryMacros::ExpandFusedQkvOld));
  run(Stage::kFusedFfn, fused, member(&TemporaryMacros::ExpandFusedFfn));
  run(Stage::kFusedQkv, fused, member(&TemporaryMacros::ExpandFusedQkv));
}

}  // namespace cairn::aoa
