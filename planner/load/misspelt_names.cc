#include "planner/load/misspelt_names.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "mapping/suggestion.h"
#include "mapping/symbol_table.h"

namespace cairn {
namespace {

// The most missing names that are looked at.
constexpr size_t kMaxNames = 8;
constexpr int kShown = 3;
// The most bytes of the text. A message is cut at 512 bytes (common/status/reason.h) and has other text too.
constexpr size_t kMaxBytes = 200;
// With more names the comparison would take longer than some tenths of a second.
constexpr size_t kMaxOthers = 50000;

}  // namespace

std::string MisspeltNames(const std::vector<std::string>& missing, const std::vector<std::string_view>& others) {
  if (others.size() > kMaxOthers) return "";
  aoa::SymbolTable symbols;
  std::vector<aoa::Symbol> candidates;
  candidates.reserve(others.size());
  for (const std::string_view other : others) candidates.push_back(symbols.Intern(other));
  std::string text;
  int shown = 0;
  for (size_t i = 0; i < std::min(missing.size(), kMaxNames) && shown < kShown; ++i) {
    const std::string near = aoa::Suggest(missing[i], candidates, symbols);
    if (near.empty()) continue;
    // Names may be long, so the length is checked for each.
    const size_t bytes = missing[i].size() + near.size();
    if (shown > 0 && text.size() + bytes > kMaxBytes) continue;
    ++shown;
    absl::StrAppend(&text, "; for '", missing[i], "', ", absl::StripPrefix(near, "; "));
  }
  return text;
}

}  // namespace cairn
