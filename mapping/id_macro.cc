// Expands $LAYER_ID and $EXPERT_ID.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/macros.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

constexpr Placeholder kIdTags[] = {Placeholder::kExpertId, Placeholder::kLayerId};
constexpr size_t kExpert = static_cast<size_t>(Placeholder::kExpertId);
constexpr size_t kLayer = static_cast<size_t>(Placeholder::kLayerId);
// The number of tries for which each name of an earlier statement counts.
constexpr uint64_t kTriesForEach = 16;

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
  side.Match(pattern, context.symbols(), context.tries, [&](Symbol, const NamePattern::Captures& captures) {
    const Combination combination(captures[kExpert], captures[kLayer]);
    if (found.empty() || !(found.back() == combination)) found.push_back(combination);
  });
  return found;
}

// Returns the same for temporaries: names that earlier executed statements assign.
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
      context.tries -= std::min<uint64_t>(context.tries, kTriesForEach);
      if (pattern.Match(given, captures, context.tries)) {
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
  if (context.tries == 0 && first.has_value()) return fail(TooManyTries(symbols.Text(first->first)));
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

}  // namespace cairn::aoa
