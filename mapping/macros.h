// The macros rewrite statements with placeholders, arrays, stars, transposes and fused layouts into plain ones.
// docs/mapping.md describes each.
#ifndef CAIRN_MAPPING_MACROS_H_
#define CAIRN_MAPPING_MACROS_H_

#include <vector>

#include "mapping/macro_context.h"

namespace cairn::aoa {

// Runs all macros over program.current(), in the order of the stages, and keeps the statements after each
// (Program::After). It stops after the first stage with errors; the diagnostics then have all errors of that stage.
void RunMacros(MacroContext& context);

// Each of these rewrites one statement: it appends the statements that replace it to `out`, or adds errors.
void ExpandLayerIdOffset(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandIds(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandArrays(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandStars(MacroContext& context, LineId line, std::vector<LineId>& out);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MACROS_H_
