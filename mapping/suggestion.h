// Suggests known names that are similar to a wrong one ("did you mean").
#ifndef CAIRN_MAPPING_SUGGESTION_H_
#define CAIRN_MAPPING_SUGGESTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "mapping/symbol_table.h"

namespace cairn::aoa {

// Counts the edits (insert, remove, replace, swap of neighbours) from `a` to `b`; `limit` + 1 if there are more than
// `limit`. O(limit * length).
int EditDistance(std::string_view a, std::string_view b, int limit);

// Returns "; did you mean 'x' or 'y'?" with at most three of the candidates, the most similar first; empty if none is
// similar. A name that differs in only one dotted part counts as similar even if that part differs much.
std::string Suggest(std::string_view wrong, const std::vector<Symbol>& candidates, const SymbolTable& symbols);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_SUGGESTION_H_
