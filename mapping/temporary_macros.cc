// Expands the macros that make temporaries, names these, and counts the shards of tensors.
#include "mapping/temporary_macros.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "mapping/state_key.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

constexpr int64_t kStemsTried = 8;

// Returns the largest N of all names that begin with "BASE_freeN"; 0 if there is none.
int64_t LastFree(const SymbolTable& symbols, std::string_view base) {
  const std::string prefix = absl::StrCat(View(base), "_free");
  int64_t last = 0;
  for (Symbol symbol = 0; symbol < symbols.size(); ++symbol) {
    const std::string_view name = symbols.Text(symbol);
    if (!name.starts_with(prefix)) continue;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
    if (error == std::errc() && number < INT64_MAX - 1) last = std::max(last, number);
  }
  return last;
}

}  // namespace

TemporaryMacros::TemporaryMacros(MacroContext& context) : context_(context), statements_(context.program.current()) {
  taken_.resize(context.symbols().size());
  for (LineId line : statements_) {
    for (const Token& token : context.program.tokens(line)) {
      if (token.is(TokenKind::kIdentifier)) taken_[token.symbol] = true;
    }
  }
}

void TemporaryMacros::Fail(LineId line, Stage stage, Reason reason, std::string message) {
  context_.diagnostics.Add(reason, line, stage, std::move(message));
}

bool TemporaryMacros::IsTaken(Symbol name) const {
  if (name < taken_.size() && taken_[name]) return true;
  return context_.left.HasWeight(name) || context_.right.HasWeight(name) ||
         context_.left.FirstShard(name) != KeySpace::kNone || context_.right.FirstShard(name) != KeySpace::kNone;
}

Symbol TemporaryMacros::FreeName(Symbol wanted) {
  SymbolTable& symbols = context_.program.symbols();
  Symbol name = wanted;
  for (int i = 0; IsTaken(name); ++i) name = symbols.Intern(absl::StrCat(View(symbols.Text(wanted)), "_free", i));
  return name;
}

std::vector<Symbol> TemporaryMacros::FreeNames(std::string_view base, int64_t count) {
  SymbolTable& symbols = context_.program.symbols();
  std::vector<Symbol> names(count);
  std::string stem(base);
  for (int64_t attempt = 0;; ++attempt) {
    bool free = true;
    for (int64_t i = 0; i < count && free; ++i) {
      const auto known = symbols.Find(absl::StrCat(stem, i));
      free = !known.has_value() || !IsTaken(*known);
    }
    if (free) {
      for (int64_t i = 0; i < count; ++i) names[i] = symbols.Intern(absl::StrCat(stem, i));
      return names;
    }
    // Many numbers may be taken, but no number above the last one.
    if (attempt == kStemsTried) attempt = LastFree(symbols, base) + 1;
    stem = absl::StrCat(View(base), "_free", attempt, "_");
  }
}

void TemporaryMacros::CheckChains() {
  for (LineId line : statements_) {
    // A statement with one name left of its arrow is in order; most statements begin in this way.
    if (context_.program.line(line).count > 1 && context_.program.TokenAt(line, 1).is(TokenKind::kArrow)) continue;
    const StatementNames names = NamesOf(context_.program, line);
    if (names.left.size() <= 1 || names.right.size() <= 1) continue;
    Fail(line, Stage::kMappingChain, Reason::kMappingSyntax,
         absl::StrCat("one side of a statement must be a single name, but ", names.left.size(), " stand left and ",
                      names.right.size(), " right of the arrow: merge them first, then split"));
  }
}

void TemporaryMacros::NameTransposes() {
  SymbolTable& symbols = context_.program.symbols();
  transpose_of_.resize(symbols.size(), kNoTranspose);
  for (LineId line : statements_) {
    if (!(context_.program.line(line).traits & kHasTransposeTag)) continue;
    for (const Token& token : context_.program.tokens(line)) {
      if (!token.is(TokenKind::kIdentifier) || !(symbols.Traits(token.symbol) & kHasTransposeTag)) continue;
      if (transpose_of_[token.symbol] != kNoTranspose) continue;
      transpose_of_[token.symbol] = static_cast<uint32_t>(transposes_.size());
      transposes_.push_back({.written = token.symbol});
    }
  }
  NameBatch batch;
  for (size_t begin = 0, end = 0; begin < transposes_.size(); begin = end) {
    batch.Clear();
    for (; end < transposes_.size() && !batch.full(); ++end) {
      std::string_view name = symbols.Text(transposes_[end].written);
      name.remove_suffix(2);
      batch.text() += name;
      batch.End();
      batch.text().append(name) += "_transpose_tmp";
      batch.End();
    }
    auto symbol = batch.Intern(symbols).begin();
    for (size_t i = begin; i < end; ++i) {
      transposes_[i].variable = *symbol++;
      transposes_[i].temporary = *symbol++;
    }
  }
}

void TemporaryMacros::ExpandTranspose(LineId line, std::vector<LineId>& out) {
  Program& program = context_.program;
  SymbolTable& symbols = program.symbols();
  const size_t count = program.line(line).count;
  absl::InlinedVector<Transpose, 4> transposes;
  bool left = true;
  for (size_t i = 0; i < count; ++i) {
    const Token token = program.TokenAt(line, i);
    if (token.is(TokenKind::kArrow)) left = false;
    if (!token.is(TokenKind::kIdentifier) || !(symbols.Traits(token.symbol) & kHasTransposeTag)) continue;
    const std::string_view written = symbols.Text(token.symbol);
    if (!left) {
      return Fail(line, Stage::kTranspose, Reason::kMappingMacro,
                  absl::StrCat("Cannot assign to transpose '", View(written), "' (e.g., 'A -> B^T'): B^T is a view. ",
                               "Assign first, then transpose: 'A -> B', 'B^T -> B'"));
    }
    const bool known = std::any_of(transposes.begin(), transposes.end(),
                                   [&](const Transpose& other) { return other.written == token.symbol; });
    if (known) continue;
    Transpose transpose = transposes_[transpose_of_[token.symbol]];
    transpose.temporary = FreeName(transpose.temporary);
    transposes.push_back(transpose);
  }
  const Symbol reversed = symbols.Intern("[]");
  for (const Transpose& transpose : transposes) {
    if (transposed_.size() <= transpose.temporary) {
      transposed_.resize(std::max<size_t>(2 * transposed_.size(), transpose.temporary + 1), kAxis);
    }
    transposed_[transpose.temporary] = transpose.variable;
    program.Begin(line, Stage::kTranspose);
    program.PushName(transpose.variable, 0);
    program.Push(MakeToken(TokenKind::kArrow, 0, 0));
    program.PushName(transpose.temporary, 0);
    program.Push(MakeToken(TokenKind::kComma, 0, 0));
    program.PushName(kPermute, 0);
    program.Push(MakeToken(TokenKind::kEqual, 0, 0));
    program.Push(MakeToken(TokenKind::kDoubleQuoted, reversed, 0));
    out.push_back(program.End());
  }
  program.Begin(line, Stage::kTranspose);
  for (size_t i = 0; i < count; ++i) {
    Token token = program.TokenAt(line, i);
    for (const Transpose& transpose : transposes) {
      if (token.is(TokenKind::kIdentifier) && token.symbol == transpose.written) token.symbol = transpose.temporary;
    }
    program.Push(token);
  }
  out.push_back(program.End());
}

Symbol TemporaryMacros::WithoutTranspose(Symbol name) {
  SymbolTable& symbols = context_.program.symbols();
  if (!(symbols.Traits(name) & kHasTransposeTag)) return name;
  const std::string_view text = symbols.Text(name);
  return symbols.Intern(text.substr(0, text.size() - 2));
}

void TemporaryMacros::IndexChains() {
  if (std::exchange(chains_indexed_, true)) return;
  for (LineId line : statements_) {
    bool left = true;
    for (uint32_t i = 0; i < context_.program.line(line).count; ++i) {
      const Token token = context_.program.TokenAt(line, i);
      if (token.is(TokenKind::kArrow)) left = false;
      if (!token.is(TokenKind::kIdentifier)) continue;
      if (IsKeyword(token.symbol)) break;
      const Symbol name = WithoutTranspose(token.symbol);
      std::vector<LineId>& by_name = left ? last_reader_ : last_writer_;
      if (by_name.size() <= name) by_name.resize(std::max<size_t>(name + 1, context_.symbols().size()), kNoLine);
      by_name[name] = line;
    }
  }
}

int64_t TemporaryMacros::CountOf(LineId line, Stage stage, Symbol name, const KeySpace& side) {
  // These are the weight's own shards, or those of the states that are sharded like it.
  int64_t count = 0;
  std::string counts;
  for (std::string_view suffix : {std::string_view(), kStateSuffixes[0], kStateSuffixes[1], kStateSuffixes[2]}) {
    const auto key = context_.symbols().Find(absl::StrCat(View(context_.symbols().Text(name)), View(suffix)));
    const int64_t shards = key.has_value() ? side.ShardCount(*key) : 0;
    if (shards == 0) continue;
    absl::StrAppend(&counts, counts.empty() ? "" : ", ", View(context_.symbols().Text(*key)), " ", shards);
    if (count != 0 && shards != count) count = -1;
    if (count == 0) count = shards;
  }
  if (count >= 0) return count == 0 ? 1 : count;
  Fail(line, stage, Reason::kMappingMacro,
       absl::StrCat("Inconsistent shard numbers among the keys of ", context_.Quoted(name), ": ", counts));
  return 0;
}

int64_t TemporaryMacros::ShardCount(LineId line, Stage stage, Symbol name, bool on_left) {
  const KeySpace& side = on_left ? context_.left : context_.right;
  if (!SplitStateKey(context_.symbols().Text(name)).suffix.empty()) {
    Fail(line, stage, Reason::kMappingMacro,
         absl::StrCat("AOA notions apply only to the model state, but are automatically propagated to the optimizer ",
                      "state; ", context_.Quoted(name), " is an optimizer state"));
    return 0;
  }
  if (!side.known()) return 1;
  if (name < transposed_.size() && transposed_[name] != kAxis) name = transposed_[name];
  // A temporary has as many shards as the tensor from which it is made or into which it goes.
  std::vector<Symbol> seen;
  while (!side.HasWeight(name)) {
    IndexChains();
    const auto& by_name = on_left ? last_writer_ : last_reader_;
    if (name >= by_name.size() || by_name[name] == kNoLine) break;
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      Fail(line, stage, Reason::kMappingMacro,
           absl::StrCat("the statements around ", context_.Quoted(name), " form a loop that meets no tensor"));
      return 0;
    }
    seen.push_back(name);
    const LineId next = by_name[name];
    const StatementNames names = NamesOf(context_.program, next);
    const std::vector<uint32_t>& others = on_left ? names.left : names.right;
    if (others.empty()) break;
    if (others.size() > 1) {
      Fail(line, stage, Reason::kMappingMacro,
           absl::StrCat("cannot tell how many shards ", context_.Quoted(seen.front()), " has: ", context_.Quoted(name),
                        " goes with ", others.size(), " names in '", context_.program.Text(next), "'"));
      return 0;
    }
    name = WithoutTranspose(context_.program.TokenAt(next, others[0]).symbol);
  }
  return CountOf(line, stage, name, side);
}

}  // namespace cairn::aoa
