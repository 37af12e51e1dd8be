#include "mapping/macros.h"

#include <algorithm>
#include <utility>

#include "mapping/temporary_macros.h"

namespace cairn::aoa {

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
