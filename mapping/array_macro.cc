// Expands arrays of names: a[0:3].
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/macros.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

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
  if (std::string fault = CountMadeNames(context, total); !fault.empty()) {
    return context.diagnostics.Add(Reason::kMappingMacro, line, Stage::kArray, std::move(fault));
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

}  // namespace cairn::aoa
