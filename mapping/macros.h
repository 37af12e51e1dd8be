// The macros rewrite statements with placeholders, arrays, stars, transposes and fused layouts into plain ones.
// docs/mapping.md says what each means.
#ifndef CAIRN_MAPPING_MACROS_H_
#define CAIRN_MAPPING_MACROS_H_

#include <vector>

#include "mapping/macro_context.h"

namespace cairn::aoa {

// Runs all macros over program.current(), in order, and keeps the statements after each. It stops after the first stage
// that finds errors; the diagnostics then have all errors of that stage.
void RunMacros(MacroContext& context);

// Each of these rewrites one statement: it appends what replaces the statement to `out`, or adds errors.
void ExpandLayerIdOffset(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandIds(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandArrays(MacroContext& context, LineId line, std::vector<LineId>& out);
void ExpandStars(MacroContext& context, LineId line, std::vector<LineId>& out);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MACROS_H_
