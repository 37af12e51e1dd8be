// Compares the objects that a target wants with the objects of a checkpoint, by name.
#ifndef CAIRN_PLANNER_LOAD_OBJECT_MATCH_H_
#define CAIRN_PLANNER_LOAD_OBJECT_MATCH_H_

#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "planner/layout/layout_set.h"

namespace cairn {

// Returns the names of objects that the target wants and the checkpoint lacks. The checkpoint has an object if it
// stores it whole or, if the wish allows parts, if it stores objects or tensors whose names begin with the wanted name
// and a dot. Tensors do not become part of the value, but they are what the checkpoint has there; they are reported as
// unexpected.
std::vector<std::string> MissingObjects(const Manifest& source, const LayoutSet& targets);

// Returns the names of stored objects that lie within a place (Wish::kPlace) of the target and that no wish covers. A
// place is a dict whose items have names of their own. A wish covers an object if the two names are equal or one is a
// part of the other. Objects of ranks that do not exist any more are left out (IsOfAnotherRank). Different ranks may
// want different parts of a value, so this needs the layouts of all ranks.
std::vector<std::string> UnexpectedObjects(const Manifest& source, const LayoutSet& targets);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_OBJECT_MATCH_H_
