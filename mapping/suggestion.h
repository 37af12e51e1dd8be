// "Did you mean": the known names nearest to a wrong one.
#ifndef CAIRN_MAPPING_SUGGESTION_H_
#define CAIRN_MAPPING_SUGGESTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "mapping/symbol_table.h"

namespace cairn::aoa {

// Edits (insert, remove, replace, swap of neighbours) from `a` to `b`, or `limit` + 1 if there are more.
// O(limit * length).
int EditDistance(std::string_view a, std::string_view b, int limit);

// "; did you mean 'x' or 'y'?" with at most three of the candidates, nearest first; empty if none is near. Names that
// differ in one dotted part only count as near even if that part differs much.
std::string Suggest(std::string_view wrong, const std::vector<Symbol>& candidates, const SymbolTable& symbols);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_SUGGESTION_H_
