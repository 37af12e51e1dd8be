// Finds which stored values a target's wishes mean, by the names of a checkpoint's objects.
#ifndef CAIRN_PLANNER_LOAD_OBJECT_MATCH_H_
#define CAIRN_PLANNER_LOAD_OBJECT_MATCH_H_

#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "planner/layout/layout_set.h"

namespace cairn {

// Returns the names of values that the target wants and the checkpoint has neither whole nor, where the wish allows it,
// in parts: objects or tensors whose names begin with the wanted one and a dot. Tensors do not make the value, but they
// are what the checkpoint has there, and are told as unexpected.
std::vector<std::string> MissingObjects(const Manifest& source, const LayoutSet& targets);

// Returns the names of objects that stand in a place of the target, which is a dict whose items have names of their
// own, and that no wish is about. Those of ranks that are gone are none of them (IsOfAnotherRank). A wish is about an
// object if one is the other, or a part of it. The parts of one value may be wanted by several ranks, so only all
// layouts together tell.
std::vector<std::string> UnexpectedObjects(const Manifest& source, const LayoutSet& targets);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_OBJECT_MATCH_H_
